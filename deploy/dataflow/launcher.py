"""Launcher inside a flex template: build the job of a command from the template's parameters, without waiting for it.

With `--template_location`, which Google's launcher adds, Beam writes the job to a file and the launcher submits it.
"""

import argparse

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.runners.runner import PipelineResult

from beambert.common import file_errors, terminal
from beambert.common.command_line.path_flags import typed_paths
from beambert.common.formatting import join_first
from beambert.deploy.dataflow import flags as dataflow_flags
from beambert.deploy.dataflow import graph
from beambert.deploy.dataflow.template import COMMANDS, parameters_of
from beambert.pipelines.errors import DatasetError, OutputError, SourceError, SubmitError
from beambert.pipelines.io.output_directory import CORPUS_ENTRIES
from beambert.pipelines.runner.beam_flags import pipeline_options
from beambert.pipelines.runner.job_output import absolute, entries_in
from beambert.tokenizer.vocabulary import VocabularyError


def to_flags(parameters: list[str], actions: list[argparse.Action]) -> list[str]:
    """Return a template's parameters (`--name=value`) as flags of the command; other flags are unchanged.

    Args:
        parameters: parameters from Google's launcher.
        actions: actions of the command's parser.

    Raises:
        SubmitError: the value of a switch is neither true nor false.
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
                raise SubmitError(f"invalid {name} {value!r}: must be true or false")
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
        parameters: parameters of the template, and Beam's flags that the launcher adds.

    Raises:
        SubmitError, SourceError, DatasetError, VocabularyError: a flag is invalid, or the output is not empty.
    """
    module = COMMANDS[command]
    parser = argparse.ArgumentParser(allow_abbrev=False)
    module.add_arguments(parser)
    args, beam_flags = parser.parse_known_args(to_flags(parameters, parameters_of(command)))
    dataflow_flags.require_cloud_paths([(flag, path) for flag, path, _ in typed_paths(parser, args)])
    options = pipeline_options([*beam_flags, *dataflow_flags.FOR_EVERY_JOB])
    FileSystems.set_options(options)
    _require_empty_output(command, args.input, absolute(args.output))
    (job,) = graph.jobs_of(module.configure(args))
    job.prepare()
    pipeline = beam.Pipeline(options=options)
    job.build(pipeline)
    return pipeline.run()


def _require_empty_output(command: str, source: str | list[str], output: str) -> None:
    """Raise SubmitError where the output is not empty: a template can neither hold a lock nor resume a job.

    Args:
        command: "corpus" or "pretraining-data".
        source: value of --input. The output of pretraining-data may be the corpus that it reads.
        output: absolute path of the output.
    """
    reads_output = command == "pretraining-data" and isinstance(source, str) and absolute(source) == output
    # An object with an empty name stands for the directory in some tools.
    names = entries_in(output) - (CORPUS_ENTRIES if reads_output else frozenset()) - {""}
    if names:
        raise SubmitError(
            f"output {output} contains {join_first(sorted(name for name in names if '/' not in name))}: use an empty "
            "output, because a template does not resume"
        )


def main(command: str, parameters: list[str]) -> int:
    """Run `launch` and return the exit code; print a user error as one line to the launcher's log."""
    try:
        launch(command, parameters)
    except (SubmitError, SourceError, DatasetError, OutputError, VocabularyError, OSError) as error:
        terminal.print_error(f"beambert {command}: error: {file_errors.without_numbers(str(error))}")
        return 1
    return 0
