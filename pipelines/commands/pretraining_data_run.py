"""Configure and run job 2, `beambert pretraining-data`, on the selected runner, unless the output is up to date."""

import dataclasses
import hashlib
import shlex
from contextlib import suppress
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from beambert.common.formatting import counted
from beambert.common.terminal import print_summary_line, print_warnings
from beambert.common.typed_json import convert
from beambert.common.word_rules import WordRules, rules_of
from beambert.pipelines import dataset
from beambert.pipelines.cleaning.personal_data import require_placeholders
from beambert.pipelines.cleaning.rules import CleaningOptions
from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.corpus.corpus_manifest import REMEDY, Corpus, CorpusReader, require_shards
from beambert.pipelines.dataset import SPLITS, Dataset, sizes_of_dataset
from beambert.pipelines.dataset_report.data_report import FILE_NAME as REPORT_FILE_NAME
from beambert.pipelines.dataset_report.dataset_descriptions import FILE_NAMES as DESCRIPTION_FILE_NAMES
from beambert.pipelines.dataset_report.dataset_descriptions import (
    delete_own_descriptions,
    foreign_descriptions,
    write_missing_descriptions,
)
from beambert.pipelines.errors import DatasetError, SourceError
from beambert.pipelines.examples import array_record_files
from beambert.pipelines.examples.shards import shard_name
from beambert.pipelines.examples.work_items import WorkItem, completion_marker_name, deal_work_items
from beambert.pipelines.finish_dataset import recorded_options
from beambert.pipelines.instances.options import PretrainingDataOptions, require_documents
from beambert.pipelines.io.atomic_files import (
    TEMPORARY,
    delete_matching,
    list_files,
    read_bytes,
    require_written,
    write_atomically,
)
from beambert.pipelines.io.job_progress import Stage, report_progress
from beambert.pipelines.io.output_directory import CORPUS_MANIFEST, DATASET_ENTRIES, DATASET_MANIFEST, kind_of
from beambert.pipelines.io.versions import require_same_rules, versions
from beambert.pipelines.runner import pipeline_runner
from beambert.pipelines.runner.beam_flags import pipeline_options
from beambert.pipelines.runner.job_output import (
    absolute,
    begun_work,
    claim_output,
    delete_work,
    entries_in,
    remedy_for,
    require_same_options,
    resume,
    work_directory,
)
from beambert.pipelines.runner.memory import require_memory
from beambert.pipelines.transforms.examples import CreateExamplesOfCorpus, WriteShardFiles, build_pretraining_data
from beambert.pipelines.vocabulary.vocabulary_options import language_factors
from beambert.tokenizer.vocabulary import Vocabulary, rules_beside

# Number of workers to plan for if a cluster determines it.
_CLUSTER_WORKERS = 64
_RESULTS = ("shards/*-of-*.tfrecord*", "shards/*-of-*.parquet*", "shards/*-of-*.array_record*")


@dataclasses.dataclass(frozen=True)
class PretrainingDataConfig:
    """The configuration of job 2.

    Attributes:
        corpus_directory: Value of --input, the corpus.
        output: Value of --output.
        vocab_file: Vocabulary to use instead of the corpus's own, or None.
        options: Options of the examples, except those that the corpus determines; `dataset.json` records them.
        ignore_memory_estimate: Whether to run even if the estimated memory exceeds the available memory.

    Raises:
        DatasetError: The package of the format is not installed.
    """

    corpus_directory: str
    output: str
    vocab_file: str | None
    options: PretrainingDataOptions
    ignore_memory_estimate: bool = False

    def __post_init__(self) -> None:
        if self.options.format == "array_record":
            array_record_files.require_package()


def run(config: PretrainingDataConfig, beam_flags: list[str]) -> int:
    """Run the command.

    Raises:
        SourceError, DatasetError, VocabularyError: The input or a flag is invalid.
    """
    corpus = _load_corpus(config)
    # The output may contain a corpus only if it is the corpus directory itself.
    same = absolute(config.corpus_directory) == absolute(config.output)
    manifests = (CORPUS_MANIFEST, DATASET_MANIFEST) if same else (DATASET_MANIFEST,)
    with claim_output(config.output, "pretraining-data", manifests, entries_written(config.output)):
        manifest = make_pretraining_data(config, corpus, pipeline_options(beam_flags))
    print_summary(manifest, config.output)
    return 0


def _load_corpus(config: PretrainingDataConfig) -> Corpus:
    directory = config.corpus_directory
    corpus = corpus_manifest.load(absolute(directory))
    if corpus is None:
        kind = kind_of(entries_in(directory))
        problem = f"contains {kind}, not a corpus" if kind else "is not a corpus, or its build has not finished"
        raise SourceError(
            f"--input {directory} {problem} ({corpus_manifest.FILE_NAME} is missing); "
            "give the --output of beambert corpus"
        )
    return corpus


def entries_written(output: str) -> frozenset[str]:
    """Return the entries that job 2 writes in --output; descriptions of another program are kept."""
    return DATASET_ENTRIES.difference(foreign_descriptions(absolute(output)))


class ExamplesJob(NamedTuple):
    """The inputs of job 2.

    Attributes:
        vocab: The vocabulary.
        options: Options of the examples.
        recorded: The field "options" of `dataset.json`: these options and those of the corpus.
    """

    vocab: Vocabulary
    options: PretrainingDataOptions
    recorded: dict[str, Any]


def examples_job(config: PretrainingDataConfig, corpus: Corpus) -> ExamplesJob:
    """Read the vocabulary and check the options against the corpus.

    Raises:
        DatasetError, SourceError, VocabularyError: An option or a file is invalid.
    """
    source, output = absolute(config.corpus_directory), absolute(config.output)
    vocab_file = absolute(config.vocab_file) if config.vocab_file else f"{source}/{dataset.VOCAB_FILE_NAME}"
    try:
        vocab_bytes = read_bytes(vocab_file)
    except FileNotFoundError as error:
        missing = f"--vocab_file {vocab_file} does not exist; check the path"
        raise SourceError(missing if config.vocab_file else f"{vocab_file} is missing; {REMEDY}") from error
    if not config.vocab_file and hashlib.sha256(vocab_bytes).hexdigest() != corpus.vocab["sha256"]:
        raise SourceError(
            f"{vocab_file} differs from {corpus_manifest.FILE_NAME}; {REMEDY}; if the change is intended, run "
            f"pretraining-data --vocab_file {vocab_file} --output NEW_DIRECTORY"
        )
    vocab = Vocabulary.from_bytes(vocab_bytes, vocab_file)
    require_placeholders(vocab, convert(corpus.options["cleaning"], CleaningOptions).placeholders)
    require_same_rules(corpus.options["character_rules"], f"the corpus {config.corpus_directory}")
    if source == output and vocab.sha256 != corpus.vocab["sha256"]:
        raise DatasetError(
            f"--output {config.output} is the corpus directory, whose vocab.txt differs from --vocab_file "
            f"{config.vocab_file}; choose another --output"
        )
    rules = rules_of(corpus.options)
    if config.vocab_file:
        _require_rules_of_vocabulary(config.vocab_file, rules)
    options = dataclasses.replace(config.options, **dataclasses.asdict(rules))
    require_documents(corpus.counts["documents"]["train"], options.objective)
    exponent = corpus.options["language_sampling_exponent"]
    if exponent != 1.0:
        words = {language: size["words"] for language, size in corpus.counts["languages"].items()}
        options = dataclasses.replace(options, language_factors=language_factors(words, exponent))
    manifest_sha256 = hashlib.sha256(read_bytes(f"{source}/{corpus_manifest.FILE_NAME}")).hexdigest()
    return ExamplesJob(vocab, options, recorded_options(options, vocab, corpus, manifest_sha256))


def _require_rules_of_vocabulary(vocab_file: str, rules: WordRules) -> None:
    """Raise DatasetError if a vocabulary belongs to a model or a dataset with other word rules than the corpus."""
    found = rules_beside(vocab_file)
    recorded = WordRules(**dataclasses.asdict(found))
    if found.do_lower_case is not None and recorded != rules:
        raise DatasetError(
            f"--vocab_file {vocab_file} is recorded with other word rules ({recorded.summary}) than the corpus "
            f"({rules.summary}); build the corpus again with --vocab_file {vocab_file}"
        )


def make_pretraining_data(config: PretrainingDataConfig, corpus: Corpus, beam_options: PipelineOptions) -> Dataset:
    """Run job 2 in a locked output directory: from the start, resumed, or as a repair of missing shards.

    Raises:
        DatasetError: The output contains another dataset, an option is out of range, or the memory is too small.
        VocabularyError: The vocabulary lacks a token that BERT needs.
    """
    source, output = absolute(config.corpus_directory), absolute(config.output)
    vocab, options, recorded = examples_job(config, corpus)
    reader = CorpusReader(source, recorded["corpus_sha256"])
    manifest_path = f"{output}/{dataset.FILE_NAME}"
    workers = pipeline_runner.num_workers(beam_options)
    work_items = deal_work_items(corpus.shards, options, workers or _CLUSTER_WORKERS)
    work = work_directory(output, [recorded], options.format)
    existing = _load(manifest_path, config.output)
    if existing:
        # With the defaults of options that are not recorded.
        before = dataclasses.asdict(convert(existing.options, PretrainingDataOptions))
        require_same_options(
            config.output, "dataset", {**existing.options, **before}, {**recorded, **dataclasses.asdict(options)}
        )
        _restore_vocabulary(existing, vocab, output)
        write_missing_descriptions(existing, output)
        missing = _missing_shards(existing, output)
        if not missing:
            delete_work(output)
            print(f"Shards in {config.output} are up to date.", flush=True)
            return existing
        work_items = _items_with_missing_shards(work_items, missing, options)

    require_shards(source, corpus.shards)
    if workers:
        require_memory(corpus, workers, config.ignore_memory_estimate)
    if existing:
        print(
            f"Pretraining data: rebuilding {len(missing):,} missing or truncated of "
            f"{counted(len(existing.shards), 'shard')}",
            flush=True,
        )
        _rebuild_missing_shards(existing, missing, reader, work_items, options, beam_options, config.output)
        require_written(output, sizes_of_dataset(existing.shards))
        return existing

    num_finished = resume(output, work, _RESULTS)
    with begun_work(output, "pretraining-data"):
        delete_matching(f"{output}/shards/{TEMPORARY}")
        # A report of a stopped job, too, describes a dataset that does not exist yet.
        delete_matching(f"{output}/{REPORT_FILE_NAME}")
        delete_own_descriptions(output)
        for name in foreign_descriptions(output):
            print(f"{output}/{name} is kept: beambert did not write it", flush=True)
        with write_atomically(f"{output}/{dataset.VOCAB_FILE_NAME}") as file:
            file.write(vocab.to_bytes())
        copies = {
            completion_marker_name(item.corpus_shard.place, copy): item.corpus_shard.bytes
            for item in work_items
            for copy in item.copies
        }
        stage = Stage("Pretraining data", sum(copies.values()), "examples", shards=list(copies))
        print(
            f"Pretraining data: {counted(len(corpus.shards), 'corpus shard')}, "
            f"{counted(len(copies), 'shard copy', 'shard copies')}"
            + (f", resuming an earlier run ({num_finished:,} complete)" if num_finished else ""),
            flush=True,
        )
        with report_progress(stage, pattern="" if workers else f"{work}/*.json"):
            pipeline_runner.run(
                lambda pipeline: build_pretraining_data(pipeline, reader, work_items, options, output, work),
                beam_options,
                config.output,
            )
        manifest = _load(manifest_path, config.output)
        if manifest is None:
            raise DatasetError(f"the job ended, but {manifest_path} is missing; see the log of the runner")
    descriptions = dict.fromkeys((REPORT_FILE_NAME, *DESCRIPTION_FILE_NAMES))
    require_written(output, {**descriptions, **sizes_of_dataset(manifest.shards)})
    return manifest


def _load(path: str, output: str) -> Dataset | None:
    remedy = remedy_for(output)
    try:
        manifest = Dataset.from_json(read_bytes(path), path, remedy)
    except FileNotFoundError:
        return None
    # The summary prints these counts, and every manifest of this command has them.
    if "train" not in manifest.counts:
        raise DatasetError(f"{path}: counts.train is missing; {remedy}")
    return manifest


def print_summary(manifest: Dataset, output: str) -> None:
    """Print the content and path of the dataset and the next step.

    Args:
        manifest: Manifest of the dataset.
        output: Directory of the dataset, as printed.
    """
    train, validation = (manifest.num_examples(split) for split in SPLITS)
    counts = manifest.counts["train"]
    print_summary_line("shards", f"{output}/shards/  {counted(len(manifest.shards), 'shard')}")
    print_summary_line(
        "",
        f"{train:,} training examples (--dupe_factor {manifest.options['dupe_factor']}), "
        f"{validation:,} validation examples",
    )
    objective, masking = manifest.options["objective"], manifest.options["masking"]
    shares = []
    if objective != "mlm":
        meaning = "in swapped order" if objective == "sop" else "random next sentences"
        shares.append(f"{counts['instances_labeled_1'] / counts['instances']:.1%} of pairs are {meaning}")
    if masking != "dynamic":
        shares.append(f"{counts['masked_tokens'] / counts['instance_tokens']:.1%} of tokens masked")
    shares.append(f"{counts['unknown_tokens'] / counts['tokens']:.2%} [UNK]")
    shares.append(f"{1 - counts['instance_tokens'] / counts['positions']:.1%} padding")
    print_summary_line("", ", ".join(shares))
    print_summary_line("", f"{counts['tokens']:,} training tokens (the released BERT: about 3,300 million words)")
    if FileSystems.exists(f"{absolute(output)}/{REPORT_FILE_NAME}"):
        print_summary_line("report", f"{output}/{REPORT_FILE_NAME}")
    print_summary_line("description", f"{output}/{', '.join(sorted(DESCRIPTION_FILE_NAMES))}")
    print_summary_line("manifest", f"{output}/{dataset.FILE_NAME}")
    print_warnings(manifest.counts.get("warnings", []))
    if manifest.file_format != "tfrecord":
        print(f"\nNext: load the shards as in {output}/README.md (beambert pretrain reads --format tfrecord)")
    elif "://" in output and not output.startswith("gs://"):
        print(f"\nNext: copy {output} to the training machine")
    else:
        data = shlex.quote(output)
        print(f"\nNext: beambert pretrain --data {data} --output RUN --model tiny --num_train_steps 1000")


def _restore_vocabulary(manifest: Dataset, vocab: Vocabulary, output: str) -> None:
    """Write vocab.txt again if it differs from the manifest."""
    path = f"{output}/{dataset.VOCAB_FILE_NAME}"
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        content = b""
    if hashlib.sha256(content).hexdigest() != manifest.vocab_sha256:
        with write_atomically(path) as file:
            file.write(vocab.to_bytes())


def _missing_shards(manifest: Dataset, output: str) -> frozenset[str]:
    """Return the names of the shards that are missing or differ in size, from one listing of the directory."""
    sizes = {file.path.rsplit("/", 1)[-1]: file.size_in_bytes for file in list_files(f"{output}/shards/*")}
    return frozenset(shard.name for shard in manifest.shards if sizes.get(shard.name.split("/")[-1]) != shard.bytes)


def _items_with_missing_shards(
    work_items: list[WorkItem], names: frozenset[str], options: PretrainingDataOptions
) -> list[WorkItem]:
    """Return the work items, reduced to the copies that write a shard of `names`."""
    items = []
    for corpus_shard, copies in work_items:
        missing_copies = tuple(
            copy
            for copy in copies
            if any(shard_name(corpus_shard.place, copy, length, options) in names for length in options.row_lengths)
        )
        if missing_copies:
            items.append(WorkItem(corpus_shard, missing_copies))
    return items


def _rebuild_missing_shards(
    manifest: Dataset,
    missing: frozenset[str],
    reader: CorpusReader,
    work_items: list[WorkItem],
    options: PretrainingDataOptions,
    beam_options: PipelineOptions,
    output: str,
) -> None:
    """Rebuild missing shards and move them into place; all other files stay unchanged.

    Args:
        manifest: Manifest of the dataset.
        missing: Names from `_missing_shards`.
        reader: Reader of the corpus.
        work_items: Work items from `_items_with_missing_shards`.
        options: Options of the dataset.
        beam_options: Beam's options, with the runner.
        output: The dataset directory.

    Raises:
        DatasetError: A rebuilt shard differs from the manifest.
    """
    folder = absolute(output)
    # Into another directory, so that no file is replaced by a different one.
    rebuilt = work_directory(folder, ["repair"])
    vocabulary = f"{folder}/{dataset.VOCAB_FILE_NAME}"

    def build(pipeline: beam.Pipeline) -> None:
        examples = pipeline | CreateExamplesOfCorpus(reader, vocabulary, options, work_items)
        _ = examples | WriteShardFiles(rebuilt, vocabulary)

    # Always from the start: a stopped repair leaves no completion markers.
    delete_work(folder)
    with suppress(BeamIOError, OSError):
        FileSystems.mkdirs(f"{folder}/shards")
    try:
        pipeline_runner.run(build, beam_options, output)
        for shard in manifest.shards:
            if shard.name in missing:
                path = f"{rebuilt}/{shard.name}"
                if hashlib.sha256(read_bytes(path)).hexdigest() != shard.sha256:
                    raise DatasetError(_difference(shard.name, manifest, folder))
                FileSystems.rename([path], [f"{folder}/{shard.name}"])
    finally:
        delete_work(folder)


def _difference(name: str, manifest: Dataset, folder: str) -> str:
    """Return the error about a rebuilt shard that differs from the manifest, with the cause if it is a version."""
    here = versions(manifest.file_format)
    differences = [
        f"{n} {v} recorded, {here.get(n)} installed" for n, v in manifest.versions.items() if here.get(n) != v
    ]
    return (
        f"{name} was rebuilt, but its checksum differs from {folder}/{dataset.FILE_NAME} "
        f"({', '.join(differences) or 'with the same versions'}); delete that directory and build it again"
    )
