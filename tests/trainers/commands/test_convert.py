import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from beambert import cli
from beambert.bert_model.checkpoints import safetensors, writer
from beambert.bert_model.checkpoints.reader import open_checkpoint
from beambert.bert_model.checkpoints.stored_tensors import CheckpointError
from beambert.bert_model.config import BertConfig
from beambert.bert_model.heads import PRETRAINING
from beambert.bert_model.pretraining import BertForPretraining
from beambert.bert_model.variable_names import variables_by_tf1_name
from beambert.common.word_rules import WordRules
from beambert.pipelines.errors import OutputError
from beambert.trainers.checkpoints.initial_checkpoint import load_weights
from beambert.trainers.commands import pretrain
from beambert.trainers.commands.fill_mask import fill_masks
from beambert.trainers.errors import TrainingError
from tests.conftest import ROOT
from tests.converted_models import assert_same_bytes, stored_values, write_release, zipped
from tests.small_disk import small_disk
from tests.trainers import random_models
from tests.trainers.pretraining_shards import LENGTH, VOCABULARY

FIXTURES = ROOT / "tests" / "fixtures" / "hugging_face"
# Flags of extend-vocab.
EXTENSION = ("--input", "text.txt", "--num_tokens", "1", "--min_count", "1", "--output", "new")


def convert(capsys, *argv):
    """Run the command; return its exit code, standard output and standard error."""
    capsys.readouterr()
    code = cli.main(["convert", *map(str, argv)])
    return code, *capsys.readouterr()


def test_printed_summary_and_written_files(tmp_path, capsys):
    write_release(tmp_path / "uncased", slots=True)
    code, said, _ = convert(capsys, zipped(tmp_path / "uncased"), tmp_path / "native", "--to", "native")
    assert code == 0
    assert said.splitlines() == [
        f"Found     TF1 checkpoint {tmp_path / 'uncased.zip'}: pretraining, 2 layers, hidden size 8, "
        "vocabulary size 15, 46 tensors with "
        "1,489 parameters",
        "          93 optimizer variables, step 1234",
        "Note      uncased, inferred from the vocabulary; --do_lower_case overrides it",
        f"Wrote     native model {tmp_path / 'native'}: 46 tensors",
        "Left out  93 optimizer variables; --optimizer keep writes them (tf1 and native)",
    ]
    assert {path.name for path in (tmp_path / "native").iterdir()} == {
        "README.md",
        "beambert.json",
        "bert_config.json",
        "model.ckpt.data-00000-of-00001",
        "model.ckpt.index",
        "vocab.txt",
    }
    code, said, _ = convert(capsys, tmp_path / "native", tmp_path / "hf", "--to", "huggingface")
    assert code == 0
    assert "Note" not in said
    assert {path.name for path in (tmp_path / "hf").iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer_config.json",
        "vocab.txt",
    }


_WITHOUT_TENSORFLOW = """
import sys
sys.modules.update(dict.fromkeys(["tensorflow", "keras", "jax"]))
from beambert import cli
source, *destinations = sys.argv[1:]
for destination, kind in zip(destinations, ("native", "huggingface", "tf1"), strict=True):
    keep = ["--optimizer", "keep"] if kind == "native" else []
    code = cli.main(["convert", source, destination, "--to", kind, *keep])
    assert code == 0, code
    source = destination
"""


def test_tensorflow_keras_and_jax_are_not_needed(tmp_path):
    values = write_release(tmp_path / "a", slots=True)
    directories = [tmp_path / name for name in ("a", "native", "hf", "b")]
    subprocess.run([sys.executable, "-c", _WITHOUT_TENSORFLOW, *map(str, directories)], check=True)
    assert_same_bytes(stored_values(tmp_path / "native" / "model.ckpt"), values)
    weights = {name: value for name, value in values.items() if not name.endswith(("adam_m", "adam_v", "global_step"))}
    assert_same_bytes(stored_values(tmp_path / "b" / "bert_model.ckpt"), weights)


def test_properties_that_a_format_cannot_store_are_reported(tmp_path, capsys):
    _, said, _ = convert(capsys, FIXTURES / "classification", tmp_path / "a", "--to", "tf1")
    assert "Note      a TF1 checkpoint does not record the labels: no, maybe, yes\n" in said
    assert "this model uses the erf form of GELU" in said
    write_release(tmp_path / "b", "span")
    _, said, _ = convert(capsys, tmp_path / "b", tmp_path / "c", "--to", "huggingface")
    assert (
        "Left out  bert/pooler/dense/kernel, bert/pooler/dense/bias: BertForQuestionAnswering has no such weights\n"
        in said
    )
    _, said, _ = convert(capsys, tmp_path / "b", tmp_path / "d", "--to", "native", "--task", "pretraining")
    assert "Missing   7: cls/predictions/transform/dense/kernel" in said
    assert "Ignored   2: cls/squad/output_bias, cls/squad/output_weights\n" in said


def test_config_and_vocabulary_from_another_directory(tmp_path, capsys):
    """Convert a checkpoint of the released trainer, which writes no configuration and no vocabulary next to it."""
    write_release(tmp_path / "a", "classification", 3, name="model.ckpt-343", slots=True)
    (tmp_path / "a" / "bert_config.json").rename(tmp_path / "bert_config.json")
    (tmp_path / "a" / "vocab.txt").rename(tmp_path / "vocab.txt")
    argv = [tmp_path / "a", tmp_path / "b", "--to", "huggingface"]
    code, _, error = convert(capsys, *argv)
    assert (code, error.count("\n")) == (1, 1)
    assert "has no bert_config.json in its directory" in error
    argv += ["--bert_config_file", tmp_path / "bert_config.json"]
    code, _, error = convert(capsys, *argv)
    assert (code, error.count("\n")) == (1, 1)
    assert "has no vocab.txt; give the model's with --vocab_file" in error
    argv += ["--vocab_file", tmp_path / "vocab.txt", "--do_lower_case", "false"]
    assert convert(capsys, *argv)[0] == 0
    content = json.loads((tmp_path / "b" / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert content["do_lower_case"] is False


def test_errors_are_one_line_and_leave_no_output(tmp_path, capsys):
    write_release(tmp_path / "a")
    vocabulary = tmp_path / "a" / "vocab.txt"
    whole = vocabulary.read_text(encoding="utf-8")
    vocabulary.write_text(whole + "more\n", encoding="utf-8")
    code, _, error = convert(capsys, tmp_path / "a", tmp_path / "b", "--to", "native")
    assert (code, error.count("\n")) == (1, 1)
    assert "has 16 tokens, but vocab_size of the model is 15" in error
    vocabulary.write_text(whole, encoding="utf-8")
    for flags, message in [
        (["--to", "huggingface", "--optimizer", "keep"], "use --optimizer drop"),
        (["--to", "native", "--task", "classification"], "has no classification head"),
    ]:
        code, _, error = convert(capsys, tmp_path / "a", tmp_path / "b", *flags)
        assert (code, error.count("\n")) == (1, 1)
        assert message in error
    code, _, error = convert(capsys, tmp_path / "a", tmp_path / "a", "--to", "tf1")
    assert "already exists; use a new directory" in error
    code, _, error = convert(capsys, tmp_path / "nowhere", tmp_path / "b", "--to", "tf1")
    assert "is not a checkpoint" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


@pytest.mark.parametrize(
    "command", [["convert", "a", "new", "--to", "native"], ["export", "a", "new"], ["extend-vocab", "a", *EXTENSION]]
)
def test_a_destination_that_cannot_be_replaced_is_an_error_before_the_work(command, tmp_path, monkeypatch, capsys):
    """A rename replaces an empty directory, but neither a symbolic link nor a mount point."""
    write_release(tmp_path / "a")
    (tmp_path / "text.txt").write_text("abb abb")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    for target in ("empty", "missing"):
        (tmp_path / "new").symlink_to(target)
        assert cli.main(command) == 1
        output, error = capsys.readouterr()
        assert "Found" not in output
        assert f"new is a symbolic link; use its target, {tmp_path / target}, or a new directory\n" in error
        assert error.count("\n") == 1
        (tmp_path / "new").unlink()
    (tmp_path / "new").mkdir()
    with small_disk(tmp_path / "new", "size=1m"):
        assert cli.main(command) == 1
        output, error = capsys.readouterr()
        assert "Found" not in output
        assert "new is a mount point; use a new directory in it, such as new/model\n" in error
        assert error.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"a", "empty", "new", "text.txt"}


def test_only_temporary_directories_of_beambert_are_removed(tmp_path, capsys):
    write_release(tmp_path / "a")
    for name in (".new.unfinished", ".new.0123456789abcdef.unfinished", ".old.0123456789abcdef.unfinished"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "essay.txt").write_text("text")
    assert convert(capsys, tmp_path / "a", tmp_path / "new", "--to", "native")[0] == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"a", "new", ".new.unfinished", ".old.0123456789abcdef.unfinished"}
    assert (tmp_path / ".new.unfinished" / "essay.txt").read_text() == "text"


@pytest.fixture
def release(tmp_path):
    """A release with the vocabulary of the pretraining data and 4 more positions than the data needs."""
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=20,
        max_position_embeddings=LENGTH + 4,
    )
    values = write_release(tmp_path / "release", config=config)
    (tmp_path / "release" / "vocab.txt").write_bytes(VOCABULARY.to_bytes())
    return tmp_path / "release", config, values


def pretrained(options, capsys, *flags):
    """Train one step, which changes nothing since its learning rate is 0; return the printed text."""
    capsys.readouterr()
    config = options("--num_train_steps", "1", "--num_warmup_steps", "1", "--do_train", *map(str, flags))
    assert pretrain.run(dataclasses.replace(config, model=None)) == 0
    return capsys.readouterr().out


def test_pretraining_begins_with_a_checkpoint_of_any_kind(tmp_path, options, capsys, release):
    directory, config, values = release
    with open_checkpoint(directory) as checkpoint:
        writer.write(checkpoint, tmp_path / "hf", "huggingface", VOCABULARY.to_bytes(), WordRules())
        writer.write(checkpoint, tmp_path / "native", "native", VOCABULARY.to_bytes(), WordRules())
    for path in (zipped(directory), tmp_path / "hf"):
        output = tmp_path / "outputs" / path.name
        said = pretrained(options, capsys, "--init_checkpoint", path, "--output", output)
        assert f"Weights loaded from {path}: loaded 30\n" in said
        # Without --model, the configuration is that of the checkpoint.
        assert BertConfig.load(output / "bert_config.json") == config
        trained = stored_values(output / "checkpoints" / "model.ckpt-1")
        assert_same_bytes({name: trained[name] for name in values}, values)
    card = (output / "README.md").read_text(encoding="utf-8")
    assert "| Origin | training began with the weights of hf |" in card
    filled = fill_masks(output, ["ba [MASK]."])
    for path in (directory, zipped(directory), tmp_path / "hf", tmp_path / "native"):
        assert fill_masks(path, ["ba [MASK]."]) == filled


def test_rows_that_pad_a_vocabulary_are_filled_with_zeros(release):
    directory, config, values = release
    model = BertForPretraining(config, pad_vocabulary=True)
    variables = variables_by_tf1_name(model)
    with open_checkpoint(directory) as checkpoint:
        assert load_weights(checkpoint, variables).initialized == ()
    words = np.asarray(variables["bert/embeddings/word_embeddings"])
    assert words.shape == (128, 16)
    np.testing.assert_array_equal(words[: config.vocab_size], values["bert/embeddings/word_embeddings"])
    assert not words[config.vocab_size :].any()


def test_a_partial_load_names_every_weight(tmp_path, options, capsys, release):
    _, config, _ = release
    values = write_release(tmp_path / "fine-tuned", "classification", 3, config=config)
    (tmp_path / "fine-tuned" / "vocab.txt").write_bytes(VOCABULARY.to_bytes())
    said = pretrained(options, capsys, "--init_checkpoint", tmp_path / "fine-tuned")
    assert (
        "loaded 23; initialized 7: cls/predictions/transform/dense/kernel, cls/predictions/transform/dense/bias, "
        "cls/predictions/transform/LayerNorm/gamma, cls/predictions/transform/LayerNorm/beta, "
        "cls/predictions/output_bias, cls/seq_relationship/output_weights and 1 more; ignored 2: output_weights, "
        "output_bias\n"
    ) in said
    lines = (tmp_path / "output" / "init_checkpoint.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 23 + 7 + 2
    assert "initialized cls/seq_relationship/output_bias" in lines
    names = {name.tf1 for name in PRETRAINING.variable_names(config)} & values.keys()
    trained = stored_values(tmp_path / "output" / "checkpoints" / "model.ckpt-1")
    assert_same_bytes({name: trained[name] for name in names}, {name: values[name] for name in names})
    with pytest.raises(TrainingError, match="has no masked-LM head"):
        fill_masks(tmp_path / "fine-tuned", ["[MASK]"])


def test_incompatible_checkpoints_are_errors(tmp_path, options, capsys, release):
    directory, _, _ = release
    config = options("--do_train", "--init_checkpoint", str(directory))
    message = (
        r"does not fit the model: hidden_size is 16, 32 in the model; num_hidden_layers is 1, 2 in the model; "
        r"intermediate_size is 20, 64 in the model; max_position_embeddings is \d+, \d+ in the model; omit"
    )
    with pytest.raises(TrainingError, match=message):
        pretrain.run(config)
    write_release(tmp_path / "other")
    with pytest.raises(TrainingError, match=r"other/vocab\.txt, but --data has another vocabulary; build"):
        pretrained(options, capsys, "--init_checkpoint", tmp_path / "other")
    with open_checkpoint(directory) as checkpoint:
        writer.write(checkpoint, tmp_path / "native", "native", VOCABULARY.to_bytes(), WordRules())
    with pytest.raises(
        OutputError, match=r"contains a converted model \(beambert.json\), which beambert pretrain does not write"
    ):
        pretrained(options, capsys, "--init_checkpoint", directory, "--output", tmp_path / "native")
    with open_checkpoint(directory) as checkpoint:
        rules = WordRules(strip_accents=False)
        writer.write(checkpoint, tmp_path / "kept", "native", VOCABULARY.to_bytes(), rules)
    message = (
        r"kept \(uncased, accents kept\) and --data .* \(uncased\) differ in word rules; build the data with the rules"
    )
    with pytest.raises(TrainingError, match=message + " of the model, --do_lower_case true --strip_accents false"):
        pretrained(options, capsys, "--init_checkpoint", tmp_path / "kept")
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        pretrained(options, capsys, "--init_checkpoint", tmp_path / "nowhere")
    assert not (tmp_path / "output").exists()


def test_the_head_of_a_loss_that_was_not_trained_is_left_out(tmp_path, options, capsys):
    run, output = tmp_path / "run", tmp_path / "hf"
    assert pretrain.run(options("--do_train", "--no_next_sentence", "--output", str(run))) == 0
    assert json.loads((run / "beambert.json").read_text(encoding="utf-8"))["next_sentence"] is False
    assert "| Next-sentence prediction | not trained |" in (run / "README.md").read_text(encoding="utf-8")
    code, said, _ = convert(capsys, run, output, "--to", "huggingface")
    assert code == 0
    assert "Missing   2: cls/seq_relationship/output_weights, cls/seq_relationship/output_bias\n" in said
    assert "Note      next-sentence prediction was not trained; its head has random weights and is left out\n" in said
    assert "Ignored" not in said
    assert json.loads((output / "config.json").read_text(encoding="utf-8"))["architectures"] == ["BertForMaskedLM"]
    # A native copy keeps the record, also with the optimizer state.
    code, said, _ = convert(capsys, run, tmp_path / "kept", "--to", "native", "--optimizer", "keep")
    assert code == 0
    with open_checkpoint(tmp_path / "kept") as checkpoint:
        assert (len(checkpoint.tensors), len(checkpoint.optimizer)) == (44, 2 * 44 + 1)
        assert checkpoint.record.next_sentence is False
        assert not checkpoint.ignored
    assert fill_masks(run, ["ba [MASK]."]) == fill_masks(output, ["ba [MASK]."])


def test_a_run_is_a_native_model_with_a_card(tmp_path, options, capsys):
    assert pretrain.run(options("--do_train")) == 0
    output = tmp_path / "output"
    assert "## Evaluation" not in (output / "README.md").read_text(encoding="utf-8")
    assert pretrain.run(options("--do_eval")) == 0
    results = json.loads((output / "eval_results.json").read_text(encoding="utf-8"))
    del results["global_step"]
    with open_checkpoint(output) as checkpoint:
        assert checkpoint.kind == "native"
        assert checkpoint.missing == checkpoint.ignored == ()
        assert len(checkpoint.optimizer) == 2 * 46 + 1
        record = checkpoint.record
    with open_checkpoint(output / "checkpoints") as checkpoint:
        assert checkpoint.record == record
    assert "next_sentence" not in json.loads((output / "beambert.json").read_text(encoding="utf-8"))
    assert (record.task, record.steps, record.metrics, record.max_seq_length) == ("pretraining", 6, results, LENGTH)
    run = json.loads((output / "run.json").read_text(encoding="utf-8"))
    assert [record.data_fingerprint] == run["data_fingerprints"]
    card = (output / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\n")
    assert "pipeline_tag: fill-mask\n" in card
    for fact in (
        record.data_fingerprint,
        "| Updates | 6 |",
        f"| loss | {results['loss']:.6g} |",
        "| Parameters | 21,538",
    ):
        assert fact in card
    code, said, _ = convert(capsys, output, tmp_path / "native", "--to", "native", "--optimizer", "keep")
    assert code == 0
    assert "93 optimizer variables, step 6" in said
    # The conversion keeps all information about the run, so the model card is the same.
    assert (tmp_path / "native" / "README.md").read_text(encoding="utf-8") == card
    before = stored_values(output / "checkpoints" / "model.ckpt-6")
    assert_same_bytes(stored_values(tmp_path / "native" / "model.ckpt"), before)


def test_a_model_gets_more_positions_and_fills_short_texts_as_before(tmp_path, options, capsys, release):
    source, config, values = release
    name = "bert/embeddings/position_embeddings"
    short, long = "ba [MASK]. be", "ba " * (LENGTH + 10) + "[MASK]"
    for kind in ("native", "tf1", "huggingface"):
        argv = [source, tmp_path / kind, "--to", kind, "--max_position_embeddings", 2 * LENGTH + 9]
        argv += ["--position_init", "tile"]
        code, said, _ = convert(capsys, *argv)
        assert code == 0
        assert f"Positions {LENGTH + 4} -> {2 * LENGTH + 9}, tiled\n" in said
        with open_checkpoint(tmp_path / kind) as checkpoint:
            found = {name: tensor.read() for name, tensor in checkpoint.tensors.items()}
        former = values[name]
        expected = {**values, name: np.concatenate([former, former, former])[: 2 * LENGTH + 9]}
        assert_same_bytes(found, expected)
    before, [after, further] = fill_masks(source, [short]), fill_masks(tmp_path / "native", [short, long])
    for [old], [new] in zip(before, [after], strict=True):
        assert [filling.token for filling in old] == [filling.token for filling in new]
        assert [filling.probability for filling in old] == pytest.approx([filling.probability for filling in new])
    assert len(further) == 1
    # Conversion back to the former number of positions restores the model.
    code, said, _ = convert(
        capsys, tmp_path / "tf1", tmp_path / "cut", "--to", "tf1", "--max_position_embeddings", LENGTH + 4
    )
    assert f"Positions {2 * LENGTH + 9} -> {LENGTH + 4}, the first {LENGTH + 4} ones kept\n" in said
    assert_same_bytes(stored_values(tmp_path / "cut" / "bert_model.ckpt"), values)
    pretrained(options, capsys, "--init_checkpoint", tmp_path / "huggingface")
    trained = BertConfig.load(tmp_path / "output" / "bert_config.json")
    assert trained == dataclasses.replace(config, max_position_embeddings=2 * LENGTH + 9)


def test_flags_of_positions_that_exclude_each_other(tmp_path, capsys, release):
    source, _, _ = release
    for flags, message in (
        (["--position_init", "tile"], "--position_init has no effect without --max_position_embeddings"),
        (["--max_position_embeddings", "9", "--optimizer", "keep"], "--optimizer keep cannot be combined with"),
    ):
        code, _, error = convert(capsys, source, tmp_path / "new", "--to", "tf1", *flags)
        assert (code, error.count("\n")) == (1, 1)
        assert message in error
    assert not (tmp_path / "new").exists()


def test_a_masked_lm_keeps_its_pooler_for_fine_tuning(tmp_path, capsys):
    source = random_models.write_model(tmp_path / "model", without=("cls/seq_relationship",))
    converted, back = tmp_path / "huggingface", tmp_path / "back"
    _, said, _ = convert(capsys, source, converted, "--to", "huggingface")
    assert "Left out" not in said
    assert json.loads((converted / "config.json").read_text())["architectures"] == ["BertForMaskedLM"]
    assert {f"bert.pooler.dense.{name}" for name in ("weight", "bias")} <= set(
        safetensors.read(converted / "model.safetensors")
    )
    convert(capsys, converted, back, "--to", "tf1")
    with open_checkpoint(source) as before, open_checkpoint(back) as after:
        assert before.tensors.keys() == after.tensors.keys()
        for name, tensor in before.tensors.items():
            np.testing.assert_array_equal(after.tensors[name].read(), tensor.read())
