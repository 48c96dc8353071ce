"""Several runs of one task, one after the other: `--seeds`, and the grid of `beambert tune`.

Each run has a directory of its own in --output. `runs.json` says which are done, so that the same command goes on where
it stopped.
"""

import argparse
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_model import native
from trainers import run_record
from trainers.errors import TrainingError
from trainers.finetune import FEATURES_NAME, run_once
from trainers.finetuning.runs_report import (
    RunOutcome,
    shown,
    summary,
    summary_line,
    warnings_of_runs,
    write_runs_report,
)
from trainers.progress import say, warn
from trainers.run_report.warnings import score_warnings_in
from trainers.whole_files import write_whole

FILE_NAME = "runs.json"
_RESULTS_NAME = "eval_results.json"
# Options that no result depends on.
_FREE = {"output", "cache_dir", "keep_runs", "seeds", "do_predict"}


def run_seeds(args: argparse.Namespace) -> int:
    """`beambert finetune --seeds N`: as of `run_several`."""
    seeds = range(args.seed, args.seed + args.seeds)
    return run_several(args, {f"seed-{seed}": {"seed": seed} for seed in seeds}, keep_all=True)


def run_several(args: argparse.Namespace, runs: Mapping[str, Mapping[str, Any]], keep_all: bool) -> int:
    """Fine-tunes several times, and writes a table of the results.

    Args:
        args: the options of `finetune`.
        runs: the options that differ, by the name of the run's directory.
        keep_all: whether the checkpoints of all runs stay, or only those of the best one.

    Returns:
        0 when all are done; 130 or 143 when one was stopped, after saving; 1 if none succeeded.

    Raises:
        as of `run_once`, for what is wrong with every run.
    """
    if args.strategy == "multi_worker" or "TF_CONFIG" in os.environ:
        raise TrainingError("several runs in one command need one machine; give each its own command on several")
    output = Path(args.output)
    if run_record.load(output) is not None or native.load(output) is not None:
        raise TrainingError(f"{output} holds a single run; give another --output for several")
    args = argparse.Namespace(**{**vars(args), "seeds": 1, "do_train": True, "do_eval": True})
    if args.cache_dir is None:
        args.cache_dir = str(output / FEATURES_NAME)
    outcomes = _done(output)
    for number, (name, options) in enumerate(runs.items(), 1):
        own = argparse.Namespace(**{**vars(args), **options, "output": str(output / name)})
        key = _key(own)
        if outcomes.get(name, {}).get("key") == key:
            say(f"Run {number} of {len(runs)}, {name}, is done")
            continue
        say(f"Run {number} of {len(runs)}: {name}")
        if name in outcomes:
            shutil.rmtree(output / name, ignore_errors=True)
        try:
            code = run_once(own)
        except TrainingError as error:
            # A learning rate that diverges is a result of the grid; what is wrong with the first run is with all.
            if number == 1 and not outcomes:
                raise
            warn(f"{name} failed: {error}")
            outcomes[name] = {"key": key, "options": _texts(options), "metrics": None, "problem": str(error)}
        else:
            if code:
                return code
            metrics = json.loads((output / name / _RESULTS_NAME).read_text(encoding="utf-8"))
            outcomes[name] = {"key": key, "options": _texts(options), "metrics": metrics, "problem": None}
        _write(output, outcomes, runs)
        if not keep_all:
            _keep_best(output, outcomes)
    done = [_outcome(name, outcomes[name]) for name in runs]
    done = [
        outcome if outcome.metrics is None else outcome._replace(warnings=(*score_warnings_in(output / outcome.name),))
        for outcome in done
    ]
    if all(outcome.metrics is None for outcome in done):
        raise TrainingError(f"no run of {output} succeeded; the first: {done[0].problem}")
    metric = _metric(output, outcomes)
    found = summary(done, metric)
    if found is None:
        raise TrainingError(f"no run of {output} has a finite {metric}; try a lower learning rate")
    for outcome in done:
        value = (outcome.metrics or {}).get(metric)
        say(f"{outcome.name:<40} {'failed' if value is None else shown(metric, value)}")
    say(summary_line(done, metric))
    for line in warnings_of_runs(done):
        warn(line)
    say(f"Best         {output / done[found.best].name}")
    say(f"Report       {write_runs_report(output, f'Fine-tuning {args.task}: {len(runs)} runs', done, metric)}")
    return 0


def _metric(output: Path, outcomes: Mapping[str, Any]) -> str:
    """The metric that the runs were compared by, as the first that succeeded records it."""
    name = next(name for name, outcome in outcomes.items() if outcome["metrics"] is not None)
    record = run_record.load(output / name)
    if record is None:
        raise TrainingError(f"{output / name} is not there any more; remove {output / FILE_NAME} to make it again")
    return record.options["best_metric"]


def _keep_best(output: Path, outcomes: Mapping[str, Any]) -> None:
    """Removes the checkpoints of all runs but the best so far."""
    done = [_outcome(name, outcome) for name, outcome in outcomes.items()]
    if all(outcome.metrics is None for outcome in done):
        return
    found = summary(done, _metric(output, outcomes))
    best = None if found is None else done[found.best].name
    for name in outcomes:
        if name != best:
            shutil.rmtree(output / name / native.CHECKPOINTS_NAME, ignore_errors=True)


def _done(output: Path) -> dict[str, Any]:
    """The outcomes that an earlier command left, by name."""
    path = output / FILE_NAME
    try:
        outcomes = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): dict(outcome) for name, outcome in outcomes.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise TrainingError(f"{path} cannot be read ({error}); remove it, and all runs are made again") from error


def _write(output: Path, outcomes: Mapping[str, Any], runs: Mapping[str, Any]) -> None:
    kept = {name: outcome for name, outcome in outcomes.items() if name in runs}
    write_whole(output / FILE_NAME, json.dumps(kept, indent=1, ensure_ascii=False).encode() + b"\n")


def _outcome(name: str, outcome: Mapping[str, Any]) -> RunOutcome:
    return RunOutcome(name, outcome["options"], outcome["metrics"], outcome["problem"])


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    return {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in options.items()}


def _key(args: argparse.Namespace) -> str:
    """Hex digest of the options that a run's results depend on."""
    options = {name: value for name, value in run_record.options_of(args).items() if name not in _FREE}
    return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()
