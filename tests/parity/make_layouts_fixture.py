"""Write tests/fixtures/layouts: a tiny model as the Model Garden and KerasHub save it, and its outputs in them.

Run it in an environment of its own, with tf-models-official 2.20.0, tf_keras 2.21.0 and keras-hub 0.32.0.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

FIXTURES = Path(__file__).parent.parent / "fixtures" / "layouts"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "aeiounrst")]
LENGTH = 12
# The heads have size 8, so that a reader must read their number.
SHAPE = {"vocab_size": len(PIECES), "hidden_size": 16, "num_layers": 2, "intermediate_size": 24}


def inputs() -> dict[str, np.ndarray]:
    """Return input_ids, input_mask and segment_ids, int32 [3, LENGTH]; the last row has no padding."""
    generator = np.random.default_rng(0)
    mask = np.arange(LENGTH) < np.array([[5], [9], [LENGTH]])
    return {
        "input_ids": np.where(mask, generator.integers(5, len(PIECES), mask.shape), 0).astype(np.int32),
        "input_mask": mask.astype(np.int32),
        "segment_ids": (mask & (np.arange(LENGTH) >= 4)).astype(np.int32),
    }


def randomize(variables: list) -> None:
    """Assign widely varying values to all weights, so that a misplaced weight changes the outputs."""
    generator = np.random.default_rng(1)
    for variable in variables:
        variable.assign(generator.normal(1.0 if "gamma" in variable.name else 0.0, 0.3, variable.shape))


def model_garden() -> None:
    """Write an exported encoder with and without its masked-LM head, and a checkpoint of pretraining."""
    import tensorflow as tf
    from official.nlp.configs import encoders
    from official.nlp.modeling import layers, models
    from official.nlp.tools import export_tfhub_lib

    bert = encoders.BertEncoderConfig(
        **SHAPE, num_attention_heads=2, max_position_embeddings=LENGTH + 4, type_vocab_size=2
    )
    config = encoders.EncoderConfig(type="bert", bert=bert)
    encoder = encoders.build_encoder(config)
    head = layers.ClassificationHead(inner_dim=16, num_classes=2, name="next_sentence")
    pretrainer = models.BertPretrainerV2(
        encoder, mlm_activation=lambda x: tf.nn.gelu(x, approximate=True), classification_heads=[head]
    )
    given = inputs()
    features = {
        "input_word_ids": given["input_ids"],
        "input_mask": given["input_mask"],
        "input_type_ids": given["segment_ids"],
        "masked_lm_positions": np.tile(np.arange(LENGTH, dtype=np.int32), (3, 1)),
    }
    pretrainer(features)
    randomize(pretrainer.variables)
    results = pretrainer(features, training=False)
    np.savez(
        FIXTURES / "model_garden.npz",
        **given,
        last_hidden_state=results["sequence_output"],
        encoder_pooler_output=results["pooled_output"],
        prediction_logits=results["mlm_logits"],
        next_sentence_logits=results["next_sentence"],
    )
    checkpoint = FIXTURES / "model_garden_checkpoint"
    pretraining = tf.train.Checkpoint(model=pretrainer, **pretrainer.checkpoint_items).save(
        str(checkpoint / "bert_model.ckpt")
    )
    vocabulary = FIXTURES / "vocab.txt"
    vocabulary.write_text("".join(f"{piece}\n" for piece in PIECES))
    whole = tf.train.Checkpoint(model=encoder, encoder=encoder).save(str(checkpoint / "encoder"))
    for name, path, with_mlm in (
        ("hub_masked_lm", pretraining, True),
        ("hub_encoder", whole, False),
    ):
        directory = FIXTURES / name
        export_tfhub_lib.export_model(
            str(directory),
            encoder_config=config,
            model_checkpoint_path=path,
            with_mlm=with_mlm,
            vocab_file=str(vocabulary),
            do_lower_case=True,
        )
        # The graph of functions has more than a megabyte and is not read.
        (directory / "saved_model.pb").write_bytes(b"")
        for extra in ("keras_metadata.pb", "fingerprint.pb"):
            (directory / extra).unlink(missing_ok=True)
    for path in [*checkpoint.glob("encoder*"), checkpoint / "checkpoint"]:
        path.unlink()
    vocabulary.unlink()


def keras_hub() -> None:
    """Write a preset with a masked-LM head."""
    import keras_hub as library

    backbone = library.models.BertBackbone(
        vocabulary_size=SHAPE["vocab_size"],
        num_layers=SHAPE["num_layers"],
        num_heads=2,
        hidden_dim=SHAPE["hidden_size"],
        intermediate_dim=SHAPE["intermediate_size"],
        max_sequence_length=LENGTH + 4,
    )
    tokenizer = library.models.BertTokenizer(vocabulary=PIECES, lowercase=True)
    preprocessor = library.models.BertMaskedLMPreprocessor(tokenizer, sequence_length=LENGTH)
    model = library.models.BertMaskedLM(backbone=backbone, preprocessor=preprocessor)
    randomize(model.weights)
    given = inputs()
    features = {
        "token_ids": given["input_ids"],
        "padding_mask": given["input_mask"],
        "segment_ids": given["segment_ids"],
    }
    encoded = backbone(features)
    positions = np.tile(np.arange(LENGTH, dtype=np.int32), (3, 1))
    logits = model({**features, "mask_positions": positions})
    np.savez(
        FIXTURES / "keras_hub.npz",
        **given,
        last_hidden_state=encoded["sequence_output"],
        pooler_output=encoded["pooled_output"],
        prediction_logits=logits,
    )
    model.save_to_preset(str(FIXTURES / "keras_hub"))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        globals()[sys.argv[1]]()
    else:
        shutil.rmtree(FIXTURES, ignore_errors=True)
        FIXTURES.mkdir(parents=True)
        # The two need different versions of Keras in their processes.
        for part, legacy in (("model_garden", "1"), ("keras_hub", "0")):
            environment = {**os.environ, "TF_USE_LEGACY_KERAS": legacy, "KERAS_BACKEND": "tensorflow"}
            subprocess.run([sys.executable, __file__, part], check=True, env=environment)
