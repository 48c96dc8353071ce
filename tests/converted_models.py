"""Write checkpoints for tests in the layout of the TF1 releases, and run our model on a checkpoint of any kind."""

import zipfile

import numpy as np

from beambert.bert_model.checkpoints.reader import open_checkpoint
from beambert.bert_model.config import BertConfig
from beambert.bert_model.heads import ALL_HEADS

PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg.", "##a", "##b")
CONFIG = BertConfig(
    vocab_size=len(PIECES),
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=10,
)


def write_release(directory, task="pretraining", num_labels=None, name="bert_model.ckpt", slots=False, config=CONFIG):
    """Write a directory as released by Google, or with slots as saved by its trainer; return the values by name."""
    import tensorflow as tf

    generator = np.random.default_rng(1)
    shapes = {name.tf1: name.shape for name in ALL_HEADS[task].variable_names(config, num_labels)}
    if slots:
        shapes |= {f"{name}/{slot}": shape for name, shape in shapes.items() for slot in ("adam_m", "adam_v")}
    values = {name: generator.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    if slots:
        values["global_step"] = np.array(1234, np.int64)
    directory.mkdir(parents=True)
    names = sorted(values)
    tf.raw_ops.SaveV2(
        prefix=str(directory / name),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.constant(values[name]) for name in names],
    )
    (directory / "bert_config.json").write_text(config.to_json(), encoding="utf-8")
    (directory / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES), encoding="utf-8")
    return values


def zipped(directory):
    """Write a zip archive of a directory, with the files in a folder of its name as in Google's; return its path."""
    path = directory.with_suffix(".zip")
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(directory.iterdir()):
            archive.write(file, f"{directory.name}/{file.name}")
    return path


def stored_values(prefix):
    """Return every variable of a TF1 checkpoint, read by TensorFlow."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(prefix))
    return {name: np.asarray(reader.get_tensor(name)) for name in reader.get_variable_to_shape_map()}


def assert_same_bytes(first, second):
    assert first.keys() == second.keys()
    for name in first:
        assert first[name].dtype == second[name].dtype, name
        assert first[name].shape == second[name].shape, name
        assert first[name].tobytes() == second[name].tobytes(), name


def our_outputs(path, inputs):
    """Return the outputs of our model with a checkpoint, by their names in transformers."""
    from beambert.bert_model.finetuning_models import BertForTask
    from beambert.bert_model.pretraining import BertForPretraining
    from beambert.bert_model.variable_names import variables_by_tf1_name
    from beambert.trainers.checkpoints.initial_checkpoint import load_weights

    features = {name: inputs[name] for name in ("input_ids", "input_mask", "segment_ids")}
    with open_checkpoint(path) as checkpoint:
        task = checkpoint.head.name
        if task == "pretraining":
            model = BertForPretraining(checkpoint.config)
        else:
            model = BertForTask(checkpoint.config, task, checkpoint.num_labels)
        load_weights(checkpoint, variables_by_tf1_name(model))
    if task == "pretraining":
        batch, length = features["input_ids"].shape
        logits = model({**features, "masked_lm_positions": np.tile(np.arange(length, dtype=np.int32), (batch, 1))})
        hidden, pooled = model.encoder(*features.values())
        results = {
            "prediction_logits": logits.masked_lm,
            "seq_relationship_logits": logits.next_sentence,
            "last_hidden_state": hidden,
            "pooler_output": pooled,
        }
    elif task == "span":
        results = model.head.outputs(model(features))
    else:
        results = {"logits": model(features)}
    results = {name: np.asarray(value) for name, value in results.items()}
    return {**results, "logits": results["logits"][:, None]} if task == "regression" else results
