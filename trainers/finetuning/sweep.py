"""Several runs of one task, one after the other: `--seeds`, and the grid of `beambert tune`.

Each run has a directory of its own in --output. `runs.json` says which are done, and with what options, so that the
same command resumes where it stopped. A run that was made with other options is never deleted: the command is refused.
"""

import dataclasses
import json
import math
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from beambert_common.atomic_files import write_atomic
from beambert_common.renamed_fields import with_new_names
from beambert_common.typed_json import JsonError, Number, read, require, shortened
from bert_model.checkpoints import native
from pipelines.io.output_directory import RUNS_MANIFEST, entries_of, require_own
from trainers.checkpoints.best_checkpoint import FILE_NAME as BEST_NAME
from trainers.checkpoints.best_checkpoint import lower_is_better
from trainers.config.finetune_config import FinetuneConfig
from trainers.config.recorded_options import RENAMED_OPTIONS, RecordedOptions
from trainers.errors import StorageError, TrainingError
from trainers.finetuning.plan import FEATURES_NAME
from trainers.finetuning.prepare import require_data_directory, run_once
from trainers.finetuning.run_comparison import contents_of, differences, option_differences, rounding_differences
from trainers.finetuning.tasks.task_names import check_task_options
from trainers.monitoring.training_progress import print_status, warn
from trainers.run_report.run_warnings import RESULTS_NAME, score_warnings_in
from trainers.run_report.sweep_report import (
    RunOutcome,
    shown,
    summary,
    summary_line,
    warnings_of_runs,
    write_runs_report,
)
from trainers.training import run_manifest
from trainers.training.run_lock import run_lock

FILE_NAME = RUNS_MANIFEST
_CHECKPOINT_FILE = re.compile(rf"model\.ckpt-\d+\.(index|data-\d{{5}}-of-\d{{5}}|state\.json)|{re.escape(BEST_NAME)}")


def run_seeds(config: FinetuneConfig) -> int:
    """Run `beambert finetune --seeds N` by `run_several`."""
    seeds = range(config.seed, config.seed + config.seeds)
    return run_several(config, {f"seed-{seed}": {"seed": seed} for seed in seeds}, keep_all=True)


def run_several(config: FinetuneConfig, runs: Mapping[str, Mapping[str, Any]], keep_all: bool) -> int:
    """Fine-tune several times, and write a table of the results.

    Args:
        config: the options of `finetune`.
        runs: the options that differ, by the name of the run's directory.
        keep_all: whether the checkpoints of all runs stay, or only those of the best one.

    Returns:
        0 when all are done; 130 or 143 when one was stopped, after saving; 1 if none succeeded.

    Raises:
        TrainingError: --output holds a run of another kind or with other options.
        OutputError: another process writes there.
        as of `run_once`, for what is wrong with every run.
    """
    if config.strategy == "multi_worker" or "TF_CONFIG" in os.environ:
        raise TrainingError("several runs in one command need one machine; give each its own command on several")
    output = Path(config.output)
    _require_own(output, runs)
    with run_lock(output, config.strategy):
        return _run_all(config, output, runs, keep_all)


def _require_own(output: Path, runs: Mapping[str, Mapping[str, Any]]) -> None:
    # A directory named as a run is looked at by itself, before any run is made.
    entries = entries_of(output) - {FEATURES_NAME, *runs}
    require_own(f"--output {output}", entries, _command_of(runs), (RUNS_MANIFEST,))


def _run_all(config: FinetuneConfig, output: Path, runs: Mapping[str, Mapping[str, Any]], keep_all: bool) -> int:
    """Run `run_several` while --output is locked."""
    _require_own(output, runs)
    command = _command_of(runs)
    check_task_options(config)
    require_data_directory(config)
    if config.best_metric is not None:
        lower_is_better(config.best_metric)
    cache = config.cache_dir or str(output / FEATURES_NAME)
    config = dataclasses.replace(config, seeds=1, do_train=True, do_eval=True, cache_dir=cache)
    outcomes = _recorded_outcomes(output)
    if outcomes and _are_seeds(outcomes) != _are_seeds(runs):
        other = _command_of(outcomes)
        raise TrainingError(f"--output {output} holds runs of {other}, not of {command}; give another --output")
    contents = contents_of(config, required=not outcomes)
    own = {name: dataclasses.replace(config, **options, output=str(output / name)) for name, options in runs.items()}
    # What is wrong with one of them is found before any is made.
    done = {name for name in runs if _is_done(output / name, outcomes.get(name), own[name], contents)}
    grid = None if keep_all else {"runs": sorted(runs), "best_metric": config.best_metric}
    for number, (name, options) in enumerate(runs.items(), 1):
        if name in done:
            print_status(f"Run {number} of {len(runs)}, {name}, is done")
            continue
        print_status(f"Run {number} of {len(runs)}: {name}")
        outcome: dict[str, Any] = {
            "asked": own[name].to_json(),
            "contents": contents,
            "options": _texts(options),
            "grid": None if _is_adopted(own[name]) else grid,
        }
        try:
            code = run_once(own[name])
        except StorageError:
            raise
        except TrainingError as error:
            # A learning rate that diverges is a result of the grid; what is wrong with the first run is with all.
            if number == 1 and not outcomes:
                raise
            warn(f"{name} failed: {error}")
            outcomes[name] = {**outcome, "metrics": None, "problem": str(error)}
        else:
            if code:
                return code
            metrics = _results(output / name / RESULTS_NAME)
            outcomes[name] = {**outcome, "metrics": metrics, "problem": None}
        _write(output, outcomes)
        if grid is not None:
            _keep_best(output, {name: outcomes[name] for name in runs if name in outcomes}, grid)
    return _report(config, output, [_outcome(name, outcomes[name]) for name in runs])


def _command_of(runs: Iterable[str]) -> str:
    return "finetune --seeds" if _are_seeds(runs) else "tune"


def _are_seeds(runs: Iterable[str]) -> bool:
    """Return whether names of runs are those of `run_seeds`."""
    return all(name.startswith("seed-") for name in runs)


def _report(config: FinetuneConfig, output: Path, done: list[RunOutcome]) -> int:
    """Print and write the table of all runs; return the exit code."""
    done = [
        outcome if outcome.metrics is None else outcome._replace(warnings=(*score_warnings_in(output / outcome.name),))
        for outcome in done
    ]
    if all(outcome.metrics is None for outcome in done):
        raise TrainingError(f"no run of {output} succeeded; the first: {done[0].problem}")
    metric = _metric(config.best_metric, output, done)
    results = summary(done, metric)
    if results is None:
        raise TrainingError(f"no run of {output} has a finite {metric}; try a lower learning rate")
    for outcome in done:
        value = (outcome.metrics or {}).get(metric)
        print_status(f"{outcome.name:<40} {'failed' if value is None else shown(metric, value)}")
    print_status(summary_line(done, metric))
    for line in warnings_of_runs(done):
        warn(line)
    best = output / done[results.best].name
    report = write_runs_report(output, f"Fine-tuning {config.task}: {len(done)} runs", done, metric)
    if not best.is_dir():
        raise TrainingError(f"{best}, the best run, was removed while the command ran; run the same command again")
    if native.model_checkpoint(best) is None:
        warn(f"the checkpoints of {best}, the best run by {metric}, were not kept; train it again in another --output")
    print_status(f"Best         {best}")
    print_status(f"Report       {report}")
    return 0


def _is_done(
    directory: Path, outcome: Mapping[str, Any] | None, config: FinetuneConfig, contents: Mapping[str, str | None]
) -> bool:
    """Return whether a run is complete already; an incomplete one is resumed, a missing one made.

    Args:
        directory: of the run.
        outcome: what runs.json records of it, None for nothing.
        config: its options.
        contents: of `contents_of`.

    Raises:
        TrainingError: the directory holds something else, or a run with other options.
    """
    options = config.to_json()
    record = run_manifest.load(directory)
    if record is None and _has_entries(directory):
        raise TrainingError(f"{directory} exists and is not a run of this command; move it, or give another --output")
    recorded = outcome is not None and "asked" in outcome
    if outcome is not None and recorded:
        differ = differences(outcome["asked"], outcome["contents"], options, contents)
        if not differ and record is not None:
            differ = option_differences(record.options, options)
    else:
        # A run that was stopped, or that an older beambert recorded by a digest alone.
        differ = [] if record is None else differences(record.options, {}, options, contents)
    if differ:
        raise TrainingError(
            f"{directory} holds a run that differs in {', '.join(differ)}; give another --output, or the options that "
            "it was made with"
        )
    if outcome is None or (record is None and not recorded):
        return False
    if record is None and outcome["metrics"] is not None:
        warn(f"{directory} was removed since it was made; it is made again")
        return False
    options_before = outcome["asked"] if recorded else {} if record is None else record.options
    rounded = rounding_differences(options_before, options) if options_before else []
    if rounded:
        print_status(
            f"{directory.name} was made with other numerics, so not bit for bit the same: {', '.join(rounded)}"
        )
    if (
        options_before
        and options["do_predict"]
        and not options_before.get("do_predict")
        and outcome["metrics"] is not None
    ):
        warn(
            f"{directory.name} was made without --do_predict; for its answers run beambert finetune {config.task} "
            f"--do_predict --output {directory}"
        )
    return True


def _is_adopted(config: FinetuneConfig) -> bool:
    """Return whether a run's directory contains one that its own command began, whose checkpoints stay."""
    record = run_manifest.load(Path(config.output))
    return record is not None and record.options.get("cache_dir") != config.cache_dir


def _has_entries(directory: Path) -> bool:
    """Return whether a directory has an entry other than the lock of a killed run."""
    return bool(entries_of(directory)) if directory.is_dir() else directory.exists() or directory.is_symlink()


def _metric(best_metric: str | None, output: Path, done: list[RunOutcome]) -> str:
    """Return the metric that the runs are compared by: the flag's, else that of the first run that succeeded."""
    if best_metric is not None:
        return best_metric
    name = next(outcome.name for outcome in done if outcome.metrics is not None)
    record = run_manifest.load(output / name)
    if record is None:
        raise TrainingError(f"{output / name} was removed while the command ran; run the same command again")
    return record.options["best_metric"]


def _keep_best(output: Path, outcomes: Mapping[str, Any], grid: Mapping[str, Any]) -> None:
    """Remove the checkpoints of all runs of a command but the best so far.

    Those that another command made, with other runs, another metric or with --keep_runs, stay.
    """
    done = [_outcome(name, outcome) for name, outcome in outcomes.items()]
    if all(outcome.metrics is None for outcome in done):
        return
    results = summary(done, _metric(grid["best_metric"], output, done))
    best = None if results is None else done[results.best].name
    for name, outcome in outcomes.items():
        record = run_manifest.load(output / name)
        if name == best or outcome.get("grid") != grid or record is None:
            continue
        if not option_differences(record.options, outcome["asked"]):
            _remove_checkpoints(output / name / native.CHECKPOINTS_NAME)


def _remove_checkpoints(directory: Path) -> None:
    """Remove the files of checkpoints, the indexes first, and their directory if nothing else is in it."""
    if not directory.is_dir():
        return
    shutil.rmtree(directory / ".unfinished", ignore_errors=True)
    for path in sorted(directory.iterdir(), key=lambda path: path.suffix != ".index"):
        if _CHECKPOINT_FILE.fullmatch(path.name):
            path.unlink()
    if not any(directory.iterdir()):
        directory.rmdir()


class _Grid(TypedDict):
    runs: list[str]
    best_metric: str | None


class _OutcomeFields(TypedDict):
    """A run in `runs.json`; older files have fewer fields."""

    options: dict[str, str]
    metrics: dict[str, Number | None] | None
    problem: str | None
    asked: NotRequired[RecordedOptions]
    contents: NotRequired[dict[str, str | None]]
    grid: NotRequired[_Grid | None]


def _recorded_outcomes(output: Path) -> dict[str, Any]:
    """Return the outcomes that an earlier command left, by name."""
    path = output / FILE_NAME
    try:
        outcomes = read(path, dict[str, dict[str, Any]])
        for outcome in outcomes.values():
            if "asked" in outcome:
                outcome["asked"] = with_new_names(outcome["asked"], RENAMED_OPTIONS)
        require(outcomes, dict[str, _OutcomeFields])
        for name, outcome in outcomes.items():
            if Path(name).name != name:
                raise JsonError(f"{shortened(name)} is not the name of a run")
            if ("asked" in outcome) != ("contents" in outcome):
                raise JsonError(f"{shortened(name)}.{'contents' if 'asked' in outcome else 'asked'} is missing")
    except FileNotFoundError:
        return {}
    except JsonError as error:
        raise TrainingError(f"{path}: {error}; move it, and the runs are evaluated again") from error
    for outcome in outcomes.values():
        if outcome["metrics"] is not None:
            outcome["metrics"] = _with_nan(outcome["metrics"])
    return outcomes


def _results(path: Path) -> dict[str, float]:
    """Return the metrics of a run that has ended."""
    try:
        return _with_nan(read(path, dict[str, Number | None]))
    except FileNotFoundError as error:
        raise TrainingError(f"{path} was removed while the command ran; run the same command again") from error
    except JsonError as error:
        raise TrainingError(f"{path}: {error}; run the same command again") from error


def _with_nan(metrics: Mapping[str, float | None]) -> dict[str, float]:
    """Return metrics with NaN in place of JSON's null."""
    return {name: math.nan if value is None else value for name, value in metrics.items()}


def _write(output: Path, outcomes: Mapping[str, Any]) -> None:
    content = {name: dict(outcome) for name, outcome in outcomes.items()}
    for outcome in content.values():
        if outcome["metrics"] is not None:
            metrics = outcome["metrics"].items()
            outcome["metrics"] = {name: value if math.isfinite(value) else None for name, value in metrics}
    write_atomic(output / FILE_NAME, json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n")


def _outcome(name: str, outcome: Mapping[str, Any]) -> RunOutcome:
    return RunOutcome(name, outcome["options"], outcome["metrics"], outcome["problem"])


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    return {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in options.items()}
