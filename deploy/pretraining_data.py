"""What `beambert pretraining-data` runs: job 2 on the chosen engine, skipped where its result is there already."""

import argparse
import dataclasses
import hashlib
from collections.abc import Collection
from typing import Any, NamedTuple

from apache_beam.io.filesystems import FileSystems

from deploy import embedded, example_flags
from deploy.memory import require_memory
from deploy.output import (
    absolute,
    begun_work,
    delete_temporary,
    delete_work,
    entries_in,
    refuse_other,
    remedy_for,
    with_defaults,
    work_directory,
)
from deploy.output_lock import claim_output
from deploy.progress import Stage, watch_files
from deploy.repair import make_again, missing_shards, passes_of, restore_vocabulary
from pipelines import corpus_files, dataset
from pipelines.corpus_files import Corpus
from pipelines.corpus_reader import REMEDY, CorpusReader, require_parts
from pipelines.dataset import Dataset, DatasetError
from pipelines.output_directory import CORPUS_MANIFEST, DATASET_ENTRIES, DATASET_MANIFEST, kind_of
from pipelines.passes import deal_passes, note_name, read_note
from pipelines.pretraining_data import build_pretraining_data
from pipelines.pretraining_options import PretrainingDataOptions, require_documents
from pipelines.reporting.report import FILE_NAME as REPORT_FILE_NAME
from pipelines.sources import SourceError
from pipelines.versions import require_same_rules
from pipelines.vocabulary import language_factors
from pipelines.writing import TEMPORARY, delete_matching, read_bytes, write_atomically
from pipelines.written_files import require_written, sizes_of_dataset
from tokenizer.vocabulary import Vocabulary

# How many workers to find work for where a cluster decides on their number.
_CLUSTER_WORKERS = 64
_SHARD_PATTERNS = ("*-of-*.tfrecord*", "*-of-*.parquet*")


def run(args: argparse.Namespace, beam_flags: list[str]) -> int:
    """Runs the command.

    Raises:
        SourceError, DatasetError, VocabularyError: a mistake in the input or the flags.
    """
    corpus = corpus_files.load(absolute(args.input))
    if corpus is None:
        kind = kind_of(entries_in(args.input))
        there = f"holds {kind}, not a corpus" if kind else "is not a corpus, or its build has not finished"
        raise SourceError(
            f"--input {args.input} {there} ({corpus_files.FILE_NAME} is missing); give the --output of beambert corpus"
        )
    # The corpus's own directory is the one that may hold a corpus.
    same = absolute(args.input) == absolute(args.output)
    manifests = (CORPUS_MANIFEST, DATASET_MANIFEST) if same else (DATASET_MANIFEST,)
    with claim_output(args.output, "pretraining-data", manifests, DATASET_ENTRIES):
        manifest = make_pretraining_data(args, corpus, args.input, beam_flags)
    print_summary(manifest, args.output)
    return 0


class ExamplesJob(NamedTuple):
    """Job 2 as the flags ask for it.

    Attributes:
        vocab: the vocabulary.
        options: what to do.
        recorded: what `dataset.json` is to say of options: these and the corpus's.
    """

    vocab: Vocabulary
    options: PretrainingDataOptions
    recorded: dict[str, Any]


def examples_job(args: argparse.Namespace, corpus: Corpus, corpus_directory: str) -> ExamplesJob:
    """Reads the vocabulary and checks the flags. Raises DatasetError, SourceError or VocabularyError for a mistake."""
    source, output = absolute(corpus_directory), absolute(args.output)
    vocab_file = absolute(args.vocab_file) if args.vocab_file else f"{source}/{dataset.VOCAB_FILE_NAME}"
    try:
        vocab_bytes = read_bytes(vocab_file)
    except FileNotFoundError as error:
        missing = f"--vocab_file {vocab_file} does not exist; check the path"
        raise SourceError(missing if args.vocab_file else f"{vocab_file} is missing; {REMEDY}") from error
    if not args.vocab_file and hashlib.sha256(vocab_bytes).hexdigest() != corpus.vocab["sha256"]:
        raise SourceError(
            f"{vocab_file} differs from {corpus_files.FILE_NAME}; {REMEDY}; if the change is meant, run "
            f"pretraining-data --vocab_file {vocab_file} --output NEW_DIRECTORY"
        )
    vocab = Vocabulary.from_bytes(vocab_bytes, vocab_file)
    require_same_rules(corpus.options.get("character_rules", "unknown Unicode"), f"the corpus {corpus_directory}")
    if source == output and vocab.sha256 != corpus.vocab["sha256"]:
        raise DatasetError(
            f"--output {args.output} is the corpus, which has another vocab.txt than --vocab_file {args.vocab_file}; "
            "choose another --output"
        )
    options = example_flags.example_options(args, corpus.options["do_lower_case"])
    require_documents(corpus.counts["documents"]["train"], options.objective)
    exponent = corpus.options["language_sampling_exponent"]
    if exponent != 1.0:
        words = {language: size["words"] for language, size in corpus.counts["languages"].items()}
        options = dataclasses.replace(options, language_factors=language_factors(words, exponent))
    recorded: dict[str, Any] = {
        **dataclasses.asdict(options),
        # As JSON has it, so that it equals what was read back.
        "length_bins": list(options.length_bins),
        "corpus": corpus.options,
        "corpus_sha256": hashlib.sha256(read_bytes(f"{source}/{corpus_files.FILE_NAME}")).hexdigest(),
        "vocab_sha256": hashlib.sha256(vocab.to_bytes()).hexdigest(),
    }
    return ExamplesJob(vocab, options, recorded)


def make_pretraining_data(
    args: argparse.Namespace, corpus: Corpus, corpus_directory: str, beam_flags: list[str]
) -> Dataset:
    """Runs job 2 in an output directory that is locked: whole, from where it was stopped, or what is missing of it.

    Raises:
        DatasetError: the output holds another dataset, an option is out of range, or memory would not do.
        VocabularyError: the vocabulary lacks what BERT needs.
    """
    source, output = absolute(corpus_directory), absolute(args.output)
    vocab, options, recorded = examples_job(args, corpus, corpus_directory)
    reader = CorpusReader(source, recorded["corpus_sha256"])
    manifest_path = f"{output}/{dataset.FILE_NAME}"
    beam_options = embedded.pipeline_options(beam_flags)
    workers = embedded.num_workers(beam_options)
    passes = deal_passes(corpus.parts, options, workers or _CLUSTER_WORKERS)
    work = work_directory(output, [recorded])
    existing = _load(manifest_path, args.output)
    if existing:
        refuse_other(args.output, "dataset", with_defaults(existing.options, PretrainingDataOptions), recorded)
        restore_vocabulary(existing, vocab, output)
        missing = missing_shards(existing, output)
        if not missing:
            delete_work(output)
            print(f"Shards in {args.output} are up to date.", flush=True)
            return existing
        passes = passes_of(passes, missing, options)

    require_parts(source, corpus.parts)
    if workers:
        require_memory(corpus, workers, args.ignore_memory_estimate)
    if existing:
        print(f"Pretraining data: {len(missing)} of {len(existing.shards)} shard(s) are missing or cut", flush=True)
        make_again(existing, missing, reader, passes, options, beam_options, args.output)
        require_written(output, sizes_of_dataset(existing.shards))
        return existing

    notes = len(FileSystems.match([f"{work}/*.json"])[0].metadata_list)
    if not notes:
        # What a stopped job left is of other options or another corpus, and a trainer's glob would find it.
        for pattern in _SHARD_PATTERNS:
            delete_matching(f"{output}/shards/{pattern}")
        delete_work(output)
    with begun_work(output, "pretraining-data"):
        delete_matching(f"{output}/shards/{TEMPORARY}")
        # Of a stopped job too: the report is of a dataset, which there is not yet.
        delete_matching(f"{output}/{REPORT_FILE_NAME}")
        with write_atomically(f"{output}/{dataset.VOCAB_FILE_NAME}") as file:
            file.write(vocab.to_bytes())
        costs = {
            note_name(each.part, duplicate): float(each.part.bytes) for each in passes for duplicate in each.duplicates
        }
        print(
            f"Pretraining data: {len(corpus.parts)} part(s), {len(costs)} pass(es) over a part"
            + (f", {notes} of them finished by an earlier run" if notes else ""),
            flush=True,
        )
        with watch_files(Stage("Pretraining data", f"{work}/*.json", costs, "passes", _amounts)):
            embedded.run(
                lambda pipeline: build_pretraining_data(
                    pipeline,
                    corpus,
                    reader,
                    passes,
                    options,
                    recorded,
                    {"size": len(vocab), "sha256": file.sha256},
                    output,
                    work,
                ),
                beam_options,
                args.output,
            )
    manifest = _load(manifest_path, args.output)
    if manifest is None:
        raise DatasetError(f"the job ended without {manifest_path}; look at the runner's own log")
    delete_temporary(output)
    delete_work(output)
    require_written(output, {REPORT_FILE_NAME: None, **sizes_of_dataset(manifest.shards)})
    return manifest


def _load(path: str, output: str) -> Dataset | None:
    remedy = remedy_for(output)
    try:
        manifest = Dataset.from_json(read_bytes(path), path, remedy)
    except FileNotFoundError:
        return None
    except IsADirectoryError as error:
        raise DatasetError(f"{path} is a directory; {remedy}") from error
    # What is printed of it, and every manifest of this command has.
    if "train" not in manifest.counts:
        raise DatasetError(f"{path}: counts.train is missing; {remedy}")
    return manifest


def _amounts(note: str) -> dict[str, float]:
    """What a finished pass has written, for its progress."""
    finished = read_note(note)
    shards = finished.shards if finished else []
    return {"MB/s": sum(shard.bytes for shard in shards) / 1e6, "examples/s": sum(shard.examples for shard in shards)}


def print_summary(manifest: Dataset, output: str, printed: Collection[str] = ()) -> None:
    """Print what the dataset holds, where, and what to do next.

    Args:
        manifest: of the dataset.
        output: its directory.
        printed: warnings that were printed before.
    """
    train, validation = (manifest.num_examples(split) for split in ("train", "validation"))
    counts = manifest.counts["train"]
    print(
        f"  shards      {output}/shards/  {len(manifest.shards)} files, {train:,} training examples "
        f"in {manifest.options['dupe_factor']} duplicate(s), {validation:,} held out"
    )
    objective, masking = manifest.options["objective"], manifest.options["masking"]
    shares = []
    if objective != "mlm":
        meaning = "swapped" if objective == "sop" else "not next sentences"
        shares.append(f"{counts['instances_labelled_1'] / counts['instances']:.1%} of pairs are {meaning}")
    if masking != "dynamic":
        shares.append(f"{counts['masked_tokens'] / counts['instance_tokens']:.1%} of tokens masked")
    shares.append(f"{counts['unknown_tokens'] / counts['tokens']:.2%} [UNK]")
    shares.append(f"{1 - counts['instance_tokens'] / counts['positions']:.1%} padding")
    print(f"              {', '.join(shares)}")
    print(f"  report      {output}/{REPORT_FILE_NAME}")
    for warning in manifest.counts.get("warnings", []):
        if warning not in printed:
            print(f"  warning     {warning}")
    print(f"  manifest    {output}/{dataset.FILE_NAME}")
    if "://" in output:
        print(f"\nNext: copy {output} to the machine that trains, or train beside it with beambert submit tpu")
    else:
        print(f"\nNext: beambert pretrain --data {output} --output RUN --model tiny --num_train_steps 1000")
