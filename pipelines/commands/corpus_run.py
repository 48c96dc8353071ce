"""Run job 1, `beambert corpus`, on the selected runner, unless the output is up to date."""

import dataclasses
import shlex

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from beambert.common.formatting import counted
from beambert.common.terminal import print_summary_line
from beambert.common.typed_json import convert
from beambert.common.word_rules import without_released_rules
from beambert.pipelines import dataset
from beambert.pipelines.commands import vocabulary_flags
from beambert.pipelines.commands.corpus_config import CorpusConfig
from beambert.pipelines.commands.input_check import check_inputs
from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.corpus.corpus_manifest import Corpus, corpus_shard_name, sizes_of_corpus
from beambert.pipelines.corpus.corpus_warnings import alphabet_warnings, loss_warnings, source_warnings
from beambert.pipelines.corpus.options import CorpusOptions
from beambert.pipelines.dataset import SPLITS
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.instances.options import require_documents
from beambert.pipelines.io.atomic_files import list_files, require_written
from beambert.pipelines.io.job_progress import Stage, report_progress
from beambert.pipelines.io.output_directory import CORPUS_ENTRIES, CORPUS_MANIFEST, DATASET_MANIFEST
from beambert.pipelines.runner import pipeline_runner
from beambert.pipelines.runner.beam_flags import pipeline_options
from beambert.pipelines.runner.job_output import (
    absolute,
    begun_work,
    claim_output,
    delete_finished_work,
    remedy_for,
    require_same_options,
    resume,
    work_directory,
)
from beambert.pipelines.sources.file_splits import split_inputs
from beambert.pipelines.sources.readers import is_one_document
from beambert.pipelines.transforms.corpus_jobs import build_corpus

# Time of grouping, sorting and writing as a fraction of the time of reading (60 MB of Wikipedia, 2026-11-21).
_COST_OF_WRITING = 0.25
# Options that apply after the text is read and counted: a job that changes only these resumes from that point.
_VOCABULARY_OPTIONS = ("vocab_size", "vocab_file", "num_unused", "alphabet_limit", "min_count", "compare_vocab")


def run(config: CorpusConfig, beam_flags: list[str]) -> int:
    """Run the command.

    Raises:
        SourceError, DatasetError, VocabularyError: The input or a flag is invalid.
    """
    with claim_output(config.output, "corpus", (CORPUS_MANIFEST, DATASET_MANIFEST), CORPUS_ENTRIES):
        corpus = make_corpus(config, pipeline_options(beam_flags))
    print_summary(corpus, config.output)
    vocabulary_flags.print_warnings(warnings_of(corpus))
    print(f"\nNext: beambert pretraining-data --input {shlex.quote(config.output)} --output DIR")
    return 0


def make_corpus(config: CorpusConfig, beam_options: PipelineOptions, objective: str = "") -> Corpus:
    """Run job 1 in a locked output directory, or return the existing corpus if it is up to date.

    Args:
        config: Input files and options.
        beam_options: Beam's options, with the runner.
        objective: Pretraining objective of the examples, or "" if unknown.

    Raises:
        DatasetError: The output contains another corpus, or the objective needs more documents.
        SourceError, VocabularyError: The input or a flag is invalid.
    """
    inputs, options = config.inputs, config.options
    if len(inputs) == 1 and objective == "nsp" and is_one_document(inputs[0].path, options.read):
        # Fail before the file is read, which may take hours.
        require_documents(1, objective)
    output = absolute(config.output)
    existing = corpus_manifest.load(output, remedy_for(config.output))
    if existing:
        # With the defaults of options that are not recorded.
        recorded = dataclasses.asdict(convert(existing.options, CorpusOptions))
        require_same_options(config.output, "corpus", recorded, dataclasses.asdict(options))
        if existing.files != config.files:
            raise DatasetError(
                f"--output {config.output} contains a corpus of other input files, or the files have changed; "
                "choose another --output, or delete that directory"
            )
        require_written(
            output, sizes_of_corpus(existing.shards), f"delete {config.output} and run the same command again"
        )
        delete_finished_work(output, "corpus")
        print(f"Corpus in {config.output} is up to date.", flush=True)
        return existing
    if FileSystems.exists(f"{output}/{dataset.FILE_NAME}"):
        raise DatasetError(
            f"--output {config.output} contains a dataset of another corpus; "
            "choose another --output, or delete that directory"
        )
    check_inputs(inputs, options.read, config.field_flags)
    splits = split_inputs(inputs, options.read)
    early = without_released_rules(dataclasses.asdict(options))
    early = {name: value for name, value in early.items() if name not in _VOCABULARY_OPTIONS}
    # Only the local runner, which shuffles in memory, resumes from completion markers.
    embedded_engine = pipeline_runner.is_embedded(beam_options)
    work = (
        work_directory(output, [early, bool(options.vocab_size), inputs, config.evaluation]) if embedded_engine else ""
    )
    done = resume(output, work, ("corpus/*-of-*.parquet*", "rejected/*-of-*.jsonl*"))
    shards = [
        f"{corpus_shard_name(split, number, options)}.parquet"
        for split in SPLITS
        for number in range(options.num_partitions_of(split))
    ]
    stage = Stage("Corpus", sum(split.bytes for split in splits), "documents", _COST_OF_WRITING, shards)
    print(
        f"Corpus: {counted(len(inputs), 'input file')}, {counted(len(splits), 'file split')}, "
        f"{counted(options.num_partitions, 'partition')}" + (", resuming an earlier run" if done else ""),
        flush=True,
    )
    if config.cased_because:
        print(f"Text is cased because of {config.cased_because}; --do_lower_case true overrides this", flush=True)
    with begun_work(output, "corpus"), report_progress(stage, pattern="" if work else f"{output}/corpus/*.parquet"):
        pipeline_runner.run(
            lambda pipeline: build_corpus(pipeline, splits, config.files, options, output, work),
            beam_options,
            config.output,
        )
    corpus = corpus_manifest.load(output)
    if corpus is None:
        raise DatasetError(
            f"{output}/{corpus_manifest.FILE_NAME} was removed while the command ran; run the same command again"
        )
    require_written(output, sizes_of_corpus(corpus.shards))
    return corpus


def warnings_of(corpus: Corpus) -> list[str]:
    """Return the warnings about a corpus without examples, one line each."""
    alphabet = alphabet_warnings(corpus.vocab, corpus.options["alphabet_limit"])
    return [*loss_warnings(corpus.counts, "rejected/"), *alphabet, *source_warnings(corpus.counts)]


def print_summary(corpus: Corpus, output: str) -> None:
    """Print contents and paths of the corpus."""
    documents, rejected = corpus.counts["documents"], corpus.counts["documents_rejected"]
    reported = corpus.counts["documents_reported"]
    print_summary_line("corpus", f"{output}/corpus/")
    print_summary_line(
        "",
        f"{documents['train']:,} training documents, {documents['validation']:,} validation documents, "
        f"{sum(corpus.counts['sentences'].values()):,} sentences",
    )
    if list_files(f"{absolute(output)}/rejected/*.jsonl"):
        print_summary_line("rejected", f"{output}/rejected/  documents by rule: {_by_rule(rejected)}")
    if reported:
        print_summary_line("reported", f"{output}/rejected/  documents kept, by rule: {_by_rule(reported)}")
    vocabulary_flags.print_summary(corpus.vocab, f"{output}/vocab.txt", corpus.options["compare_vocab"])


def _by_rule(documents: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {rule}" for rule, count in documents.items()) or "none"
