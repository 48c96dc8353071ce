"""Run a task once, or several times in sequence: `--seeds`, and the grid of `beambert tune`.

Each of several runs has a subdirectory of --output. `runs.json` records the completed and the diverged runs and their
options, so that the same command resumes. Runs with other options are never deleted: the command raises an error
instead.
"""

import dataclasses
import json
import math
import os
import shlex
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict

from beambert.bert_model.checkpoints import native
from beambert.common.local_files import write_atomic
from beambert.common.typed_json import JsonError, Number, read, require, shorten
from beambert.pipelines.io.output_directory import RUNS_MANIFEST, entries_of, require_own
from beambert.trainers.backends.startup import choose_backend, freed_graphs, start_backend
from beambert.trainers.checkpoints.checkpoint_manager import lower_is_better
from beambert.trainers.errors import DivergenceError, StorageError, TrainingError
from beambert.trainers.finetuning.options import FinetuneOptions
from beambert.trainers.finetuning.plan import FEATURES_NAME, open_plan, require_data_directory
from beambert.trainers.finetuning.run_comparison import (
    contents_of,
    differences,
    differences_now,
    option_differences,
    rounding_differences,
)
from beambert.trainers.monitoring.training_progress import print_status, warn
from beambert.trainers.run_report.run_warnings import RESULTS_NAME, score_warnings_in
from beambert.trainers.run_report.sweep_report import (
    RunOutcome,
    shown,
    summary,
    summary_line,
    warnings_of_runs,
    write_runs_report,
)
from beambert.trainers.training import run_manifest
from beambert.trainers.training.run_files import run_lock
from beambert.trainers.training.run_manifest import RecordedOptions
from beambert.trainers.training_plan import open_output


def run_once(config: FinetuneOptions) -> int:
    """Train, evaluate and predict with one seed, as configured.

    Returns:
        0 when complete; 130 or 143 when stopped by Ctrl-C or SIGTERM, after saving a checkpoint.

    Raises:
        CheckpointError, ConfigError, OutputError, TaskDataError, TrainingError, VocabularyError: the run is not
            possible; the message is one line for the user.
    """
    begin = time.monotonic()
    # Encoded rows are cached before the run starts; their files are named by content and never replaced.
    with open_output(config, "finetune", [FEATURES_NAME]) as opened, open_plan(opened, begin) as plan:
        start_backend(opened.backend, opened.cpu_devices, opened.deterministic_ops, opened.processes)
        from beambert.trainers.finetuning.finetuning_run import FinetuningRun
        from beambert.trainers.training_run import start

        return start(FinetuningRun, plan)


class OutcomeFields(TypedDict):
    """A run in `runs.json`."""

    options: dict[str, str]
    metrics: dict[str, Number | None] | None
    problem: str | None
    asked: RecordedOptions
    contents: dict[str, str | None]


def run_seeds(config: FinetuneOptions) -> int:
    """Run `beambert finetune --seeds N` with `run_several`."""
    seeds = range(config.seed, config.seed + config.seeds)
    return run_several(config, {f"seed-{seed}": {"seed": seed} for seed in seeds})


def run_several(config: FinetuneOptions, runs: Mapping[str, Mapping[str, Any]]) -> int:
    """Fine-tune several times, and write a table of the results.

    Args:
        config: options of `finetune`.
        runs: options that differ, by directory name.

    Returns:
        0 when all runs are complete; 130 or 143 when stopped by a signal, after saving a checkpoint.

    Raises:
        TrainingError: --output contains another kind of run or runs with other options, or all runs failed.
        OutputError: another process writes to --output.
        Other errors of `run_once`, where they affect every run.
    """
    if config.strategy == "multi_worker" or "TF_CONFIG" in os.environ or config.processes is not None:
        raise TrainingError("several runs in one command require a single machine: start each run with its own command")
    output = Path(config.output)
    _require_own(output, runs)
    with run_lock(output, config):
        return _run_all(config, output, runs)


def _require_own(output: Path, runs: Mapping[str, Mapping[str, Any]]) -> None:
    # The directory of each run is checked separately, before the first run starts.
    entries = entries_of(output) - {FEATURES_NAME, *runs}
    require_own(f"--output {output}", entries, _command_of(runs), (RUNS_MANIFEST,))


def _run_all(config: FinetuneOptions, output: Path, runs: Mapping[str, Mapping[str, Any]]) -> int:
    """Run `run_several` with the lock of --output held."""
    _require_own(output, runs)
    command = _command_of(runs)
    config.check_task()
    require_data_directory(config)
    if config.best_metric is not None:
        lower_is_better(config.best_metric)
    cache = config.cache_dir or str(output / FEATURES_NAME)
    backend = choose_backend(config.backend)
    config = dataclasses.replace(config, seeds=1, do_train=True, do_eval=True, cache_dir=cache, backend=backend)
    outcomes = recorded_outcomes(output)
    if outcomes and _are_seeds(outcomes) != _are_seeds(runs):
        other = _command_of(outcomes)
        raise TrainingError(f"--output {output} contains runs of {other}, not of {command}: use another --output")
    contents = contents_of(config, required=not outcomes)
    own = {name: dataclasses.replace(config, **options, output=str(output / name)) for name, options in runs.items()}
    # Errors of any run are raised before the first run starts.
    done = {name for name in runs if _is_done(output / name, outcomes.get(name), own[name], contents)}
    # Failed runs that are not recorded, so that the same command tries them again.
    failed: dict[str, Any] = {}
    for number, (name, options) in enumerate(runs.items(), 1):
        if name in done:
            print_status(f"Run {number} of {len(runs)}: {name} (complete)")
            continue
        print_status(f"Run {number} of {len(runs)}: {name}")
        outcome: dict[str, Any] = {
            "asked": own[name].to_json(),
            "contents": contents,
            "options": _texts(options),
        }
        try:
            with freed_graphs():
                code = run_once(own[name])
        except StorageError:
            raise
        except TrainingError as error:
            # A diverging learning rate is a result of the grid; another error of the first run affects all runs.
            diverged = isinstance(error, DivergenceError)
            if number == 1 and not outcomes and not diverged:
                raise
            warn(f"{name} failed: {error}")
            outcome = {**outcome, "metrics": None, "problem": str(error)}
            if not diverged:
                failed[name] = outcome
                continue
            outcomes[name] = outcome
        else:
            if code:
                return code
            metrics = results_of(output / name / RESULTS_NAME)
            outcomes[name] = {**outcome, "metrics": metrics, "problem": None}
        write_outcomes(output, outcomes)
    outcomes |= failed
    return _report(config, output, [_outcome(name, outcomes[name]) for name in runs])


def _command_of(runs: Iterable[str]) -> str:
    return "finetune --seeds" if _are_seeds(runs) else "tune"


def _are_seeds(runs: Iterable[str]) -> bool:
    """Return whether the names of runs are those of `run_seeds`."""
    return all(name.startswith("seed-") for name in runs)


def _report(config: FinetuneOptions, output: Path, done: list[RunOutcome]) -> int:
    """Print and write the table of all runs; return the exit code."""
    done = [
        outcome if outcome.metrics is None else outcome._replace(warnings=(*score_warnings_in(output / outcome.name),))
        for outcome in done
    ]
    if all(outcome.metrics is None for outcome in done):
        raise TrainingError(f"all runs of {output} failed; the first one: {done[0].problem}")
    metric = _metric(config.best_metric, output, done)
    results = summary(done, metric)
    if results is None:
        raise TrainingError(f"no run of {output} has a finite {metric}: try a lower learning rate")
    for outcome in done:
        value = (outcome.metrics or {}).get(metric)
        print_status(f"{outcome.name:<40} {'failed' if value is None else shown(metric, value)}")
    print_status(summary_line(done, metric))
    for line in warnings_of_runs(done):
        warn(line)
    best = output / done[results.best].name
    report = write_runs_report(output, f"Fine-tuning {config.task}: {len(done)} runs", done, metric)
    if not best.is_dir():
        raise TrainingError(f"{best}, the best run, was removed while the command ran: run the same command again")
    if native.model_checkpoint(best) is None:
        warn(f"the checkpoints of {best}, the best run by {metric}, were removed; train it again with another --output")
    print_status(f"Best         {best}")
    print_status(f"Report       {report}")
    return 0


def _is_done(
    directory: Path, outcome: Mapping[str, Any] | None, config: FinetuneOptions, contents: Mapping[str, str | None]
) -> bool:
    """Return whether a run is complete; otherwise it is started or resumed.

    Args:
        directory: output directory of a run.
        outcome: its record in runs.json, or None.
        config: its options.
        contents: digests of `contents_of`.

    Raises:
        TrainingError: the directory contains other files, or a run with other options.
    """
    options = config.to_json()
    record = run_manifest.load(directory)
    if record is None and _has_entries(directory):
        raise TrainingError(f"{directory} exists and is not a run of this command: move it, or use another --output")
    if outcome is not None:
        differ = differences(outcome["asked"], outcome["contents"], options, contents)
        if not differ and record is not None:
            differ = option_differences(record.options, options)
    else:
        # A stopped run.
        differ = [] if record is None else differences_now(record.options, config, contents)
    if differ:
        raise TrainingError(
            f"{directory} contains a run with other options: {', '.join(differ)}; use another --output, or the "
            "same options"
        )
    if outcome is None:
        return False
    if record is None and outcome["metrics"] is not None:
        warn(f"{directory} was removed after it was complete; it is trained again")
        return False
    rounded = rounding_differences(outcome["asked"], options)
    if rounded:
        print_status(f"{directory.name} was trained with other numerics and is not bit-identical: {', '.join(rounded)}")
    if options["do_predict"] and not outcome["asked"].get("do_predict") and outcome["metrics"] is not None:
        warn(
            f"{directory.name} ran without --do_predict and has no predictions; write them with beambert finetune "
            f"{config.task} --do_predict --output {shlex.quote(str(directory))}"
        )
    return True


def _has_entries(directory: Path) -> bool:
    """Return whether a path has contents other than the lock of a killed run."""
    return bool(entries_of(directory)) if directory.is_dir() else directory.exists() or directory.is_symlink()


def _metric(best_metric: str | None, output: Path, done: list[RunOutcome]) -> str:
    """Return the metric that ranks the runs: that of the flag, else of the first successful run."""
    if best_metric is not None:
        return best_metric
    name = next(outcome.name for outcome in done if outcome.metrics is not None)
    record = run_manifest.load(output / name)
    if record is None:
        raise TrainingError(f"{output / name} was removed while the command ran: run the same command again")
    return record.options["best_metric"]


def _outcome(name: str, outcome: Mapping[str, Any]) -> RunOutcome:
    return RunOutcome(name, outcome["options"], outcome["metrics"], outcome["problem"])


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    return {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in options.items()}


def recorded_outcomes(output: Path) -> dict[str, Any]:
    """Return the outcomes that earlier commands recorded, as `OutcomeFields` by run name; NaN replaces null metrics.

    Args:
        output: directory of the runs.

    Raises:
        TrainingError: the file is corrupt.
    """
    path = output / RUNS_MANIFEST
    try:
        outcomes = read(path, dict[str, dict[str, Any]])
        require(outcomes, dict[str, OutcomeFields])
        for name in outcomes:
            if Path(name).name != name:
                raise JsonError(f"{shorten(name)} is not a valid run name")
    except FileNotFoundError:
        return {}
    except JsonError as error:
        raise TrainingError(f"{path}: {error}; move the file away to evaluate the runs again") from error
    for outcome in outcomes.values():
        if outcome["metrics"] is not None:
            outcome["metrics"] = _with_nan(outcome["metrics"])
    return outcomes


def results_of(path: Path) -> dict[str, float]:
    """Return the metrics of a complete run, with NaN in place of null.

    Args:
        path: its eval_results.json.

    Raises:
        TrainingError: the file is missing or corrupt.
    """
    try:
        return _with_nan(read(path, dict[str, Number | None]))
    except FileNotFoundError as error:
        raise TrainingError(f"{path} was removed while the command ran: run the same command again") from error
    except JsonError as error:
        raise TrainingError(f"{path}: {error}; run the same command again") from error


def _with_nan(metrics: Mapping[str, float | None]) -> dict[str, float]:
    """Return metrics with NaN in place of JSON's null."""
    return {name: math.nan if value is None else value for name, value in metrics.items()}


def write_outcomes(output: Path, outcomes: Mapping[str, Any]) -> None:
    """Write the outcomes of runs, as `recorded_outcomes` returns them."""
    content = {name: dict(outcome) for name, outcome in outcomes.items()}
    for outcome in content.values():
        if outcome["metrics"] is not None:
            metrics = outcome["metrics"].items()
            outcome["metrics"] = {name: value if math.isfinite(value) else None for name, value in metrics}
    write_atomic(output / RUNS_MANIFEST, json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n")
