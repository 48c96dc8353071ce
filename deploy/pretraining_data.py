"""`beambert pretraining-data`: job 2 on the chosen engine, skipped where its result is there already."""

import argparse
import dataclasses
import hashlib
from typing import Any

from deploy import embedded, example_flags
from deploy.output import absolute, refuse_other, require_writable
from deploy.progress import watch_files
from pipelines import corpus_files, dataset
from pipelines.corpus_files import Corpus
from pipelines.dataset import Dataset, DatasetError
from pipelines.pretraining_data import build_pretraining_data
from pipelines.report import FILE_NAME as REPORT_FILE_NAME
from pipelines.shards import duplicates_of
from pipelines.sources import SourceError
from pipelines.versions import require_same_rules
from pipelines.vocabulary import language_factors
from pipelines.writing import delete_matching, read_bytes, write_atomically
from tokenizer.vocabulary import Vocabulary

DESCRIPTION = """Turns a corpus into pretraining examples: WordPiece tokens, next sentence pairs, masked words, TFRecord
shards that google-research/bert's trainer reads too. Writes shards/*.tfrecord, vocab.txt,
report.html and dataset.json."""

ACCEPTS_BEAM_FLAGS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `beambert pretraining-data`."""
    group = parser.add_argument_group("what to read and write")
    group.add_argument("--input", required=True, metavar="DIR", help="a corpus, as `beambert corpus` makes it")
    group.add_argument("--output", required=True, metavar="DIR", help="directory for the result; may be the same")
    group.add_argument("--vocab_file", metavar="FILE", help="another vocab.txt than the corpus's own")
    example_flags.add_arguments(parser)


def run(args: argparse.Namespace, beam_flags: list[str]) -> int:
    """Runs the command.

    Raises:
        SourceError, DatasetError, VocabularyError: a mistake in the input or the flags.
    """
    corpus = corpus_files.load(absolute(args.input))
    if corpus is None:
        raise SourceError(
            f"--input {args.input} holds no {corpus_files.FILE_NAME}: not a corpus, or its build has not finished; "
            f"run `beambert corpus --output {args.input}` first"
        )
    manifest = make_pretraining_data(args, corpus, args.input, beam_flags)
    print_summary(manifest, args.output)
    return 0


def make_pretraining_data(
    args: argparse.Namespace, corpus: Corpus, corpus_directory: str, beam_flags: list[str]
) -> Dataset:
    """Runs job 2, or finds that the same was done before.

    Raises:
        DatasetError: the output holds another dataset, or an option is out of range.
        VocabularyError: the vocabulary lacks what BERT needs.
    """
    source, output = absolute(corpus_directory), absolute(args.output)
    vocab_file = absolute(args.vocab_file) if args.vocab_file else f"{source}/{dataset.VOCAB_FILE_NAME}"
    try:
        vocab_bytes = read_bytes(vocab_file)
    except FileNotFoundError as error:
        raise SourceError(f"--vocab_file {vocab_file} does not exist; check the path") from error
    vocab = Vocabulary.from_bytes(vocab_bytes, vocab_file)
    require_same_rules(corpus.options.get("character_rules", "unknown Unicode"), f"the corpus {corpus_directory}")
    if source == output and vocab.sha256 != corpus.vocab["sha256"]:
        raise DatasetError(
            f"--output {args.output} is the corpus, which has another vocab.txt than --vocab_file {args.vocab_file}; "
            "choose another --output"
        )
    options = example_flags.example_options(args, corpus.options["do_lower_case"])
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
    manifest_path = f"{output}/{dataset.FILE_NAME}"
    try:
        existing = Dataset.from_json(read_bytes(manifest_path).decode("utf-8"), manifest_path)
    except FileNotFoundError:
        existing = None
    if existing:
        refuse_other(args.output, "dataset", existing.options, recorded)
        print(f"Shards in {args.output} are up to date.", flush=True)
        return existing

    require_writable(args.output)
    # What a killed build left: the shards may be of other options, and a trainer's glob would find them.
    delete_matching(f"{output}/shards/*.tfrecord*")
    delete_matching(f"{output}/{REPORT_FILE_NAME}")
    with write_atomically(f"{output}/{dataset.VOCAB_FILE_NAME}") as file:
        file.write(vocab.to_bytes())
    total = sum(duplicates_of(part.split, options) for part in corpus.parts)
    print(f"Pretraining data: {len(corpus.parts)} part(s) into {total} shard(s)", flush=True)
    with watch_files("Pretraining data", f"{output}/shards/*.tfrecord", total, "shards"):
        embedded.run(
            lambda pipeline: build_pretraining_data(
                pipeline, corpus, source, options, recorded, {"size": len(vocab), "sha256": file.sha256}, output
            ),
            embedded.pipeline_options(beam_flags),
            args.output,
        )
    try:
        return Dataset.from_json(read_bytes(manifest_path).decode("utf-8"), manifest_path)
    except FileNotFoundError as error:
        raise DatasetError(f"the job ended without {manifest_path}; look at the runner's own log") from error


def print_summary(manifest: Dataset, output: str) -> None:
    """Prints what the dataset holds, where, and what to do next."""
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
        print(f"  warning     {warning}")
    print(f"  manifest    {output}/{dataset.FILE_NAME}")
    print(f"\nNext: beambert pretrain --data {output} --output RUN --model tiny --num_train_steps 1000")
