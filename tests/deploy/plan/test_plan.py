"""Test the estimates of `beambert plan` against figures of the BERT paper, actual builds and manual calculations."""

import json
import math
import re

import pytest

from beambert import cli
from beambert.bert_model.config import BertConfig
from beambert.deploy.plan.training import find_accelerator
from beambert.trainers.optimization.schedule import plan_stages
from beambert.trainers.pretraining.recipes import recipe_cost, run_cost

PAPER = ["--words", "3.3e9", "--vocab_size", "30522", "--model", "base", "--train_batch_size", "256"]
PAPER += ["--num_train_steps", "1000000", "--max_seq_length", "512"]


def plan(capsys, *flags: str) -> dict:
    """Return the numbers that `beambert plan --json` prints."""
    assert cli.main(["plan", "--json", *map(str, flags)]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *flags: str) -> str:
    """Return the one-line error of flags that are rejected."""
    assert cli.main(["plan", *map(str, flags)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


# Devlin et al. 2018, appendix A.2: "256 sequences (256 sequences * 512 tokens = 128,000 tokens/batch) for 1,000,000
# steps, which is approximately 40 epochs over the 3.3 billion word corpus". Base took 4 days on 16 TPU chips.


def test_the_papers_forty_epochs(capsys):
    training = plan(capsys, *PAPER, "--accelerator", "v2-32", "--mfu", "0.31")["Training"]
    assert training["positions per word"] == pytest.approx(1e6 * 256 * 512 / 3.3e9)
    assert round(training["positions per word"]) == 40


def test_the_papers_four_days_imply_the_documented_utilization(capsys):
    chips = find_accelerator("v2-32", 1, None)
    assert (chips.units, chips.flops) == (16, 16 * 45e12)
    config = BertConfig.preset("base", 30_522)
    whole = run_cost(config, plan_stages(1_000_000, [512], None, 256, None), [512], [77])
    four_days = chips.flops * 96 * 3600
    assert whole.flops / four_days == pytest.approx(0.31, abs=0.005)
    # Nine of ten steps have 128 positions, according to the appendix.
    assert recipe_cost("paper-base").flops / four_days == pytest.approx(0.096, abs=0.0005)
    assert plan(capsys, *PAPER, "--accelerator", "v2-32", "--mfu", "0.31")["Training"]["hours"] == pytest.approx(
        96, 0.02
    )


def test_a_tpu7x_chip_has_two_devices():
    slices = find_accelerator("tpu7x-16", 2, None)
    assert (slices.units, slices.hosts) == (16, 4)
    assert slices.flops == pytest.approx(16 * 2307e12)


def test_the_readmes_two_weeks_and_five_hundred_dollars(capsys):
    # README of 2018: base on one preemptible Cloud TPU v2 takes about 2 weeks and about $500 (October 2018). A
    # preemptible v2-8 of 4 chips was $1.35 an hour.
    training = plan(capsys, *PAPER, "--accelerator", "v2-8", "--mfu", "0.33", "--price_per_hour", 1.35 / 4)["Training"]
    assert training["hours"] / 24 == pytest.approx(14, rel=0.1)
    assert training["cost"] == pytest.approx(500, rel=0.1)


# Builds of 2026-11-21. Given: bytes of text, documents, vocabulary size, positions, copies, objective and masking.
# Built: tokens, instances per copy, bytes of all shards and number of shards.
BUILDS = [
    # Wikipedia, 60 MB, vocabulary of 30,000 tokens, 128 positions, 5 copies.
    ((61_168_879, 3_956, 30_000, 128, 5, "nsp", "token"), (12_315_021, 663_623 / 5, 667_433_767, 81)),
    # The same text, vocabulary of 8,000 tokens, 10 copies.
    ((61_168_879, 3_956, 8_000, 128, 10, "nsp", "token"), (14_422_754, 1_497_270 / 10, 1_280_196_048, 161)),
    # The same text and vocabulary size, 64 positions, without sentence pairs and masks.
    ((61_168_879, 3_956, 8_000, 64, 1, "mlm", "dynamic"), (14_422_754, 321_336, 111_461_844, 17)),
    # The same text and 53 books.
    ((79_044_230, 4_007, 8_000, 64, 1, "mlm", "dynamic"), (19_410_231, 431_466, 149_069_148, 17)),
]


@pytest.mark.parametrize(("given", "built"), BUILDS)
def test_estimates_are_close_to_actual_builds(capsys, given, built):
    size, documents, vocab_size, length, copies, objective, masking = given
    flags = ["--corpus_bytes", size, "--document_bytes", size / documents, "--vocab_size", vocab_size]
    flags += ["--max_seq_length", length, "--dupe_factor", copies, "--objective", objective, "--masking", masking]
    found = plan(capsys, *flags)
    pieces, instances, shard_bytes, shards = built
    assert found["Input"]["tokens"] * 0.98 == pytest.approx(pieces, rel=0.05)
    assert found["Data"]["instances"] == pytest.approx(instances, rel=0.05)
    assert found["Data"]["shard bytes"] == pytest.approx(shard_bytes, rel=0.05)
    assert found["Data"]["shards"] == shards


def test_every_line_follows_from_those_before(capsys):
    flags = ["--corpus_bytes", "1e11", "--workers", "10", "--accelerator", "v5e-8", "--mfu", "0.5"]
    found = plan(capsys, *flags, "--price_per_hour", "1.2")
    text, data, dataflow, training = (found[section] for section in ("Input", "Data", "Dataflow", "Training"))
    assert data["partitions"] == math.ceil(1e11 / 2**26)
    assert data["shards"] == data["partitions"] * 10 + round(data["partitions"] * 0.02)
    assert data["instances"] < text["tokens"] / 64
    assert training["operations"] == pytest.approx(training["hours"] * 3600 * 0.5 * 8 * 197e12)
    assert training["epochs"] == pytest.approx(256e6 / data["rows"])
    assert dataflow["vCPU hours"] == pytest.approx(dataflow["hours"] * 40)
    assert dataflow["memory GB hours"] == pytest.approx(dataflow["vCPU hours"] * 4)
    assert dataflow["disk GB hours"] == pytest.approx(dataflow["hours"] * 10 * 30)
    # The shuffle is written and read. For articles, 0.45 bytes per byte of text were measured
    # (docs/benchmarks/scale.md).
    assert dataflow["shuffle"] == pytest.approx(2 * 0.45e11, rel=0.06)
    assert dataflow["storage"] == pytest.approx(data["corpus"] + data["shard bytes"])
    assert training["chip hours"] == pytest.approx(training["hours"] * 8)
    assert training["cost"] == pytest.approx(training["hours"] * 8 * 1.2)


def test_ten_times_the_text_is_ten_times_the_data(capsys):
    small, large = (plan(capsys, "--corpus_bytes", size)["Data"] for size in ("1e11", "1e12"))
    for name in ("instances", "rows", "shard bytes", "corpus"):
        assert large[name] == pytest.approx(10 * small[name], rel=1e-6)


def test_the_text_output_has_the_arithmetic_of_every_number(capsys):
    assert cli.main(["plan", "--words", "3.3e9", "--schedule", "128x0.9,512x0.1"]) == 0
    told = capsys.readouterr().out
    for section in ("Input", "Data", "Dataflow", "Training"):
        assert f"{section}\n" in told
    for label in ("tokens", "steps", "positions per word", "write operations"):
        assert re.search(rf"^  {label} {{2,}}[\d.,]", told, re.M)
    assert re.search(r"128: epochs +5\.\d +230 million sequences / 4\d\.\d million rows", told)
    assert re.search(r"512: epochs +1\.\d", told)
    assert "cost" not in told
    assert max(map(len, told.split("\nWarnings")[0].splitlines())) < 160


@pytest.mark.parametrize(
    ("flags", "warning"),
    [
        (["--corpus_bytes", "1e7"], "vocabulary size 30,000 is too large for 2"),
        (["--corpus_bytes", "1e9", "--vocab_size", "8000"], "repeat every mask"),
        (["--corpus_bytes", "1e9"], "risk overfitting"),
        (["--corpus_bytes", "1e11", "--num_train_steps", "100000"], "reads only 1"),
        (["--corpus_bytes", "2e10"], "use --dupe_factor 6"),
        (["--corpus_bytes", "1e10", "--document_bytes", "500", "--max_seq_length", "512"], "use --pack"),
        (["--corpus_bytes", "1e10", "--train_batch_size", "4096"], "--optimizer lamb"),
        (["--corpus_bytes", "1e7", "--train_batch_size", "4096"], "more than 10 % of an epoch"),
        (["--corpus_bytes", "1e13"], "shards take longer to list"),
        (["--corpus_bytes", "1e13"], "times as large as the text"),
        (["--corpus_bytes", "1e13", "--document_bytes", "4000"], "--validation_fraction 1e-05"),
        (["--corpus_bytes", "1e12", "--num_partitions", "100"], "raise --num_partitions"),
        (["--corpus_bytes", "1e10", "--document_bytes", "1e9"], "documents are not split across partitions"),
        (["--corpus_bytes", "1e8", "--workers", "100"], "leave some idle"),
        (["--corpus_bytes", "1e10", "--accelerator", "v3-32"], "spans 4 hosts"),
        (["--corpus_bytes", "1e10", "--accelerator", "v5litepod-16"], "spans 4 hosts"),
        (["--corpus_bytes", "1e10", "--model", "tiny", "--accelerator", "h100"], "two CPU cores parse"),
    ],
)
def test_a_poor_plan_is_warned_of(capsys, flags, warning):
    assert any(warning in line for line in plan(capsys, *flags)["Warnings"])


def test_a_good_plan_has_no_warnings(capsys):
    flags = ["--words", "3.3e9", "--masking", "dynamic", "--dupe_factor", "5", "--pack", "--num_train_steps", "900000"]
    assert plan(capsys, *flags)["Warnings"] == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "give exactly one of --corpus_bytes, --words and --input"),
        (["--words", "1e9", "--corpus_bytes", "1e9"], "give exactly one of"),
        (
            ["--words", "1e9", "--accelerator", "v3-9"],
            "the number counts cores, and a v3 chip has 2; use a multiple of 2",
        ),
        (["--words", "1e9", "--accelerator", "abacus"], "--peak_tflops"),
        (["--words", "1e9", "--model", "bse"], "did you mean 'base'"),
        (["--words", "1e9", "--max_seq_length", "1024"], "exceeds the 512 position embeddings"),
        (["--words", "1e9", "--schedule", "128"], "such as 128x0.9"),
        (["--words", "1e9", "--vocab_file", "none.txt"], "none.txt"),
        (["--words", "1e9", "--validation_fraction", "1"], "invalid --validation_fraction 1: must be below 1"),
    ],
)
def test_a_mistake_is_one_line(capsys, flags, message):
    assert message in refused(capsys, *flags)


# Values for which estimates would be infinite, or zero and a divisor.
@pytest.mark.parametrize(
    ("flag", "value", "bounds"),
    [
        ("--corpus_bytes", "1e-5", "from 1 to 1e+18"),
        ("--words", "1e307", "from 1 to 1e+18"),
        ("--document_bytes", "1e-300", "from 1 to 1e+18"),
        ("--cpu_factor", "1e308", "from 0.001 to 1000"),
        ("--peak_tflops", "1e308", "from 0.001 to 1e+06"),
        ("--price_per_hour", "1e308", "from 0 to 1e+06"),
        ("--mfu", "1e-308", "from 0.0001 to 1"),
    ],
)
def test_an_extreme_value_is_one_line(capsys, flag, value, bounds):
    size = [] if flag in ("--corpus_bytes", "--words") else ["--words", "1e9"]
    with pytest.raises(SystemExit):
        cli.main(["plan", *size, flag, value])
    error = capsys.readouterr().err
    assert f"argument {flag}: '{value}' is not a number {bounds}" in error
    assert error.count("\n") == 1


def test_the_bounds_of_the_flags_have_finite_estimates(capsys):
    least = ("--corpus_bytes", 1, "--document_bytes", 1, "--cpu_factor", 1e-3, "--peak_tflops", 1e6, "--mfu", 1)
    most = ("--words", 1e18, "--document_bytes", 1, "--cpu_factor", 1e3, "--peak_tflops", 1e-3, "--mfu", 1e-4)
    for flags in (least, most, (*most[:2], "--document_bytes", 1e18)):
        estimates = plan(capsys, *flags, "--accelerator", "v100", "--price_per_hour", 1e6)
        numbers = [
            value
            for part in estimates.values()
            if isinstance(part, dict)
            for value in part.values()
            if value is not None
        ]
        assert all(math.isfinite(number) for number in numbers)


def test_an_accelerator_of_ones_own_has_a_cost(capsys):
    flags = ["--words", "1e9", "--accelerator", "abacus", "--peak_tflops", "100", "--num_accelerators", "2"]
    training = plan(capsys, *flags, "--price_per_hour", "3")["Training"]
    assert training["cost"] == pytest.approx(training["hours"] * 2 * 3)
    assert training["cost"] == pytest.approx(training["GPU hours"] * 3)
    assert "cost" not in plan(capsys, *flags)["Training"]
    assert plan(capsys, *flags, "--price_per_hour", "0")["Training"]["cost"] == 0


@pytest.mark.parametrize("spelling", ["v2-64", "V2-64", "tpu-v2-64"])
def test_a_slice_does_not_depend_on_its_spelling(capsys, spelling):
    training = plan(capsys, "--words", "1e9", "--accelerator", spelling)["Training"]
    assert training["chip hours"] == pytest.approx(training["hours"] * 32)


def test_tpu_chips_are_not_called_gpus(capsys):
    for name, unit in (("tpu7x-8", "4 chips of tpu7x-8"), ("v100", "1 GPU of v100")):
        assert cli.main(["plan", "--words", "1e9", "--accelerator", name]) == 0
        assert unit in capsys.readouterr().out


def test_a_text_without_a_training_example_is_one_line(capsys, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "Hello world."}\n')
    assert "too short for one training example" in refused(capsys, "--input", tmp_path / "a.jsonl")


def test_only_the_default_utilization_is_called_assumed(capsys):
    flags = ("--corpus_bytes", "1e9", "--accelerator", "a100")
    by_default, given = (plan(capsys, *flags, *more)["Training"] for more in ((), ("--mfu", "0.45")))
    assert by_default == given
    assert by_default["utilization"] == 0.45
    assert cli.main(["plan", *flags]) == 0
    (line,) = re.findall(r"^  utilization .*$", capsys.readouterr().out, re.MULTILINE)
    assert all(words in line for words in ("0.45", "assumed, not measured", "--mfu"))
    for share in ("0.3", "0.45"):
        assert cli.main(["plan", *flags, "--mfu", share]) == 0
        text = capsys.readouterr().out
        assert "assumed" not in text
        assert re.search(rf"^  utilization +{share} +fraction of the accelerator's peak, from --mfu$", text, re.M)
