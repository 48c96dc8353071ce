"""What runs inside a flex template: makes the one job of a command from the template's parameters, and does not wait.

Where Google's launcher asks for it (`--template_location`), the job is written down and the launcher submits it.
"""

import argparse

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.runners.runner import PipelineResult

from beambert_common import file_errors, terminal
from beambert_common.command_line.path_flags import path_arguments
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
    """Return a template's parameters (`--name=value`) as flags of the command; others are unchanged.

    Args:
        parameters: as Google's launcher passes them.
        actions: the actions of the command's parser.

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
            flags += [f"{name}={word}" for word in value.split()]
        elif value:
            flags.append(parameter)
    return flags


def launch(command: str, parameters: list[str]) -> PipelineResult:
    """Build the job of a command, and submit it or write its description.

    Args:
        command: "corpus" or "pretraining-data".
        parameters: those of the template, and the flags of Beam that the launcher adds.

    Raises:
        SubmitError, SourceError, DatasetError, VocabularyError: invalid flags, or an output that is not empty.
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
    """Refuse an output that is not empty, as a template can neither hold a lock nor resume a job."""
    name, files = (corpus_manifest.FILE_NAME, "corpus") if command == "corpus" else (dataset.FILE_NAME, "shards")
    if FileSystems.match([f"{output}/{files}/*"])[0].metadata_list or FileSystems.exists(f"{output}/{name}"):
        raise SubmitError(f"output {output} holds files of an earlier job in {files}/; name another, or delete those")


def main(command: str, parameters: list[str]) -> int:
    """Run `launch`; a user error becomes one line in the launcher's log."""
    try:
        launch(command, parameters)
    except (SubmitError, SourceError, DatasetError, OutputError, VocabularyError, OSError) as error:
        terminal.print_error(f"beambert {command}: error: {file_errors.without_numbers(str(error))}")
        return 1
    return 0
