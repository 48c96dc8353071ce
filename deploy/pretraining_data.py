"""`beambert pretraining-data`: job 2 on the chosen engine, skipped where its result is there already."""

import argparse
import dataclasses
import hashlib
from typing import Any

from deploy import embedded
from deploy.flags import fraction, positive_int
from deploy.output import absolute, refuse_other, require_writable
from deploy.progress import watch_files
from pipelines import corpus_files, dataset
from pipelines.corpus_files import Corpus
from pipelines.dataset import Dataset, DatasetError
from pipelines.pretraining_data import PretrainingDataOptions, build_pretraining_data
from pipelines.sources import SourceError
from pipelines.versions import require_same_rules
from pipelines.vocabulary import language_factors
from pipelines.writing import delete_matching, read_bytes, write_atomically
from tokenizer.vocabulary import Vocabulary

DESCRIPTION = """Turns a corpus into pretraining examples: WordPiece tokens, next sentence pairs, masked words, TFRecord
shards that google-research/bert's trainer reads too. Writes shards/*.tfrecord, vocab.txt and dataset.json."""

ACCEPTS_BEAM_FLAGS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `beambert pretraining-data`."""
    group = parser.add_argument_group("what to read and write")
    group.add_argument("--input", required=True, metavar="DIR", help="a corpus, as `beambert corpus` makes it")
    group.add_argument("--output", required=True, metavar="DIR", help="directory for the result; may be the same")
    group.add_argument("--vocab_file", metavar="FILE", help="another vocab.txt than the corpus's own")
    add_example_arguments(parser)


def add_example_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that say what the examples are like, named as in create_pretraining_data.py."""
    defaults = PretrainingDataOptions()
    group = parser.add_argument_group("the examples")
    group.add_argument(
        "--max_seq_length", type=positive_int, metavar="N", default=defaults.max_seq_length, help="tokens in an example"
    )
    group.add_argument(
        "--max_predictions_per_seq",
        type=positive_int,
        metavar="N",
        default=defaults.max_predictions_per_seq,
        help="most masked tokens in an example; about max_seq_length * masked_lm_prob",
    )
    group.add_argument(
        "--masked_lm_prob",
        type=fraction,
        metavar="SHARE",
        default=defaults.masked_lm_prob,
        help="share of tokens to predict",
    )
    group.add_argument(
        "--short_seq_prob",
        type=fraction,
        metavar="SHARE",
        default=defaults.short_seq_prob,
        help="share of documents packed shorter",
    )
    group.add_argument(
        "--dupe_factor",
        type=positive_int,
        metavar="N",
        default=defaults.dupe_factor,
        help="passes over the corpus, each with fresh pairs and masks; a pass is an epoch of training",
    )
    group.add_argument(
        "--random_seed",
        type=int,
        metavar="N",
        default=defaults.random_seed,
        help="same seed, corpus and options: same bytes",
    )


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


def example_options(args: argparse.Namespace, do_lower_case: bool) -> PretrainingDataOptions:
    """The flags of `add_example_arguments`. Raises DatasetError if one is out of range."""
    names = [field.name for field in dataclasses.fields(PretrainingDataOptions) if field.name in args]
    flags = {name: getattr(args, name) for name in names}
    return PretrainingDataOptions(**{**flags, "do_lower_case": do_lower_case})


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
    options = example_options(args, corpus.options["do_lower_case"])
    exponent = corpus.options["language_sampling_exponent"]
    if exponent != 1.0:
        words = {language: size["words"] for language, size in corpus.counts["languages"].items()}
        options = dataclasses.replace(options, language_factors=language_factors(words, exponent))
    recorded: dict[str, Any] = {
        **dataclasses.asdict(options),
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
    with write_atomically(f"{output}/{dataset.VOCAB_FILE_NAME}") as file:
        file.write(vocab.to_bytes())
    total = sum(options.dupe_factor if part.split == "train" else 1 for part in corpus.parts)
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
    print(
        f"              {counts['instances_not_next'] / counts['instances']:.1%} of pairs are not next sentences, "
        f"{counts['masked_tokens'] / counts['instance_tokens']:.1%} of tokens masked, "
        f"{counts['unknown_tokens'] / counts['tokens']:.2%} [UNK], "
        f"{1 - counts['instance_tokens'] / (counts['instances'] * manifest.max_seq_length):.1%} padding"
    )
    print(f"  manifest    {output}/{dataset.FILE_NAME}")
    print(f"\nNext: beambert pretrain --data {output} --output RUN --model tiny --num_train_steps 1000")
