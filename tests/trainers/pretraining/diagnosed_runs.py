"""Pretrain small models, and return the diagnosis of their runs."""

from argparse import ArgumentParser
from pathlib import Path
from typing import NamedTuple

from beambert.bert_model.config import BertConfig
from beambert.trainers.commands import pretrain
from beambert.trainers.metrics.diagnosis import findings_of_run, is_on_plateau
from beambert.trainers.run_report.run_facts import Run, facts_of, read_run

# With these flags, a model learns a toy language and most of the real texts.
GOOD = ("--optimizer", "adamw", "--learning_rate", "3e-3", "--train_batch_size", "64", "--no_next_sentence")


class Diagnosed(NamedTuple):
    """A run with the causes found, and whether it ended at the level of token frequencies."""

    run: Run
    causes: list[str]
    is_stuck: bool


def pretrained(folder: Path, data: Path, model: BertConfig, *flags: str) -> Diagnosed:
    """Pretrain a model in `folder`/run, and return its diagnosis."""
    (folder / "model.json").write_text(model.to_json(), encoding="utf-8")
    parser = ArgumentParser()
    pretrain.add_arguments(parser)
    output = folder / "run"
    files = ["--data", str(data), "--output", str(output), "--model", str(folder / "model.json")]
    assert pretrain.run(pretrain.configure(parser.parse_args([*files, *flags]))) == 0
    run = read_run(output)
    facts = facts_of(run.options, run.config, run.baselines, run.train)
    assert facts is not None
    return Diagnosed(run, [finding.cause for finding in findings_of_run(facts)], is_on_plateau(facts))
