"""What runs inside a flex template: makes the one job of a command from the template's parameters, and does not wait.

Where Google's launcher asks for it (`--template_location`), the job is written down and the launcher submits it.
"""

import argparse

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.runners.runner import PipelineResult

from beambert_common import file_errors, terminal
from beambert_common.path_flags import path_arguments
from deploy.dataflow import flags as dataflow_flags
from deploy.dataflow import graph
from deploy.dataflow.template import COMMANDS, parameters_of
from pipelines import dataset
from pipelines.corpus import corpus_manifest
from pipelines.errors import DatasetError, OutputError, SubmitError
from pipelines.runner import pipeline_runner
from pipelines.runner.job_output import absolute
from pipelines.sources import SourceError
from tokenizer.vocabulary import VocabularyError


def to_flags(parameters: list[str], actions: list[argparse.Action]) -> list[str]:
    """A template's parameters, each as `--name=value`, as the flags that the command reads; others as they are.

    Args:
        parameters: as Google's launcher gives them.
        actions: the command's flags.

    Raises:
        SubmitError: a switch is neither true nor false.
    """
    by_name = {action.option_strings[0]: action for action in actions}
    flags: list[str] = []
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        action = by_name.get(name)
        if action is None:
            flags.append(parameter)
        elif action.nargs == 0:
            if value not in ("true", "false"):
                raise SubmitError(f"{name} {value!r} is neither true nor false")
            flags += [name] if value == "true" else []
        elif action.nargs == "+":
            flags += [f"{name}={each}" for each in value.split()]
        elif value:
            flags.append(parameter)
    return flags


def launch(command: str, parameters: list[str]) -> PipelineResult:
    """Makes the job of a command, and submits it or writes it down.

    Args:
        command: "corpus" or "pretraining-data".
        parameters: the template's, and those of Beam's that the launcher adds.

    Raises:
        SubmitError, SourceError, DatasetError, VocabularyError: a mistake in them, or an output that is not empty.
    """
    module = COMMANDS[command]
    parser = argparse.ArgumentParser(allow_abbrev=False)
    module.add_arguments(parser)
    args, beam_flags = parser.parse_known_args(to_flags(parameters, parameters_of(command)))
    dataflow_flags.require_cloud_paths(path_arguments(parser, args))
    options = pipeline_runner.pipeline_options([*beam_flags, *dataflow_flags.FOR_EVERY_JOB])
    FileSystems.set_options(options)
    _require_nothing_there(command, absolute(args.output))
    (job,) = graph.jobs_of(module.configure(args))
    job.prepare()
    pipeline = beam.Pipeline(options=options)
    job.build(pipeline)
    return pipeline.run()


def _require_nothing_there(command: str, output: str) -> None:
    """A template cannot hold a lock, or know what an earlier job was for: it starts with nothing there."""
    name, files = (corpus_manifest.FILE_NAME, "corpus") if command == "corpus" else (dataset.FILE_NAME, "shards")
    if FileSystems.match([f"{output}/{files}/*"])[0].metadata_list or FileSystems.exists(f"{output}/{name}"):
        raise SubmitError(f"output {output} holds files of an earlier job in {files}/; name another, or delete those")


def main(command: str, parameters: list[str]) -> int:
    """Runs `launch`; a mistake of the user's is one line in the launcher's log."""
    try:
        launch(command, parameters)
    except (SubmitError, SourceError, DatasetError, OutputError, VocabularyError, OSError) as error:
        terminal.print_error(f"beambert {command}: error: {file_errors.without_numbers(str(error))}")
        return 1
    return 0
