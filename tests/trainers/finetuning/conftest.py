import pytest

import beambert
from tests.trainers.finetuning.task_files import TEXTS, write_pairs
from tests.trainers.random_models import write_model


@pytest.fixture(scope="module")
def rte(tmp_path_factory):
    """Made-up files of RTE, 24 rows each."""
    directory = tmp_path_factory.mktemp("rte")
    write_pairs(directory, ("sentence1", "sentence2"), ["not_entailment", "entailment"], ("train", "dev", "test"))
    return directory


@pytest.fixture(scope="module")
def initial(tmp_path_factory):
    """A small model with random weights, as if pretrained."""
    return write_model(tmp_path_factory.mktemp("models") / "initial")


@pytest.fixture
def finetune(rte, initial, tmp_path):
    """A function from flags to the exit code of `beambert finetune rte`: 12 steps, 2 epochs, into tmp_path/output."""

    def run(*flags: str) -> int:
        return beambert.main(arguments("rte", rte, initial, tmp_path / "output", *flags))

    return run


def arguments(task, data, initial, output, *flags):
    """The command line of two epochs of six updates."""
    given = ["finetune", task, "--data_dir", str(data), "--init_checkpoint", str(initial), "--output", str(output)]
    return [*given, "--max_seq_length", "48", "--train_batch_size", "4", "--num_train_epochs", "2", *flags]


@pytest.fixture
def table(tmp_path):
    """Made-up reviews with a score, a star and topics, as the task csv reads them."""
    directory = tmp_path / "table"
    directory.mkdir()
    for name in ("train", "dev", "test"):
        lines = ["text,stars,topics,score"]
        for number, text in enumerate(TEXTS * 3):
            topics = ("", "food", "food|staff")[number % 3]
            lines.append(f'"{text}",{"good" if number % 2 else "bad"},{topics},{number % 5}')
        (directory / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return directory
