"""Run `beambert extend-vocab`, which counts the words of input files without cleaning or deduplication."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from beambert.adaptation.new_vocabulary import NewVocabulary, choose_words, replaced, with_added_tokens, with_words
from beambert.adaptation.options import ExtendVocabOptions
from beambert.bert_model.checkpoints import native, reader, writer
from beambert.bert_model.checkpoints.embedding_rows import with_vocabulary
from beambert.bert_model.config import BertConfig
from beambert.common.formatting import counted
from beambert.common.tokenizer_files import AddedToken
from beambert.common.word_rules import WordRules
from beambert.pipelines.commands.input_files import check_inputs
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.io.output_directory import lock_destination
from beambert.pipelines.sources.files import match_files
from beambert.pipelines.sources.readers import Input, read_file
from beambert.tokenizer.learner import count_words, most_frequent
from beambert.tokenizer.new_words import NewWord, compare_tokenization
from beambert.tokenizer.vocabulary import Vocabulary, VocabularyError, rules_beside
from beambert.tokenizer.wordpiece import coverage
from beambert.trainers.checkpoints.vocabulary_check import (
    drop_unused_rows,
    read_token_file,
    vocabulary_of,
    word_rules_of,
)
from beambert.trainers.commands.convert import KIND_WORDS, print_source, vocabulary_content
from beambert.trainers.inference import model_loading
from beambert.trainers.monitoring.training_progress import print_status, warn

# Distinct words kept, about 150 bytes each. With more than twice as many, the least frequent ones are dropped.
MAX_WORDS = 2_000_000
_SHOWN_WORDS = 8
NEW_TOKENS_FILE_NAME = "new_tokens.tsv"


@dataclasses.dataclass(frozen=True)
class TextWords:
    """The words of input files.

    Attributes:
        files: number of files.
        counts: occurrences of each word.
        dropped: running words that were dropped to limit the memory.
    """

    files: int
    counts: dict[str, int]
    dropped: int

    @property
    def running(self) -> int:
        """Return the number of running words, without dropped ones."""
        return sum(self.counts.values())


def find_files(patterns: Sequence[str], options: ReadOptions, field_flags: list[str]) -> list[Input]:
    """Return the files that patterns match, sorted by path, after a check of their first bytes.

    Args:
        patterns: values of --input.
        options: options of reading.
        field_flags: the field flags of the command line, each with its value.

    Raises:
        SourceError: a pattern matches no file, a file is not text, or a field flag has no effect.
    """
    files = match_files(list(patterns))
    inputs = [Input(file.path, file.size_in_bytes, file.last_updated_in_seconds, file.path, 1.0) for file in files]
    check_inputs(inputs, options, field_flags)
    return inputs


def count_text_words(inputs: Sequence[Input], options: ReadOptions, rules: WordRules) -> TextWords:
    """Count the words of all documents.

    Args:
        inputs: the files, from `find_files`.
        options: options of reading.
        rules: rules that split text into words.

    Raises:
        SourceError: a file cannot be read, or the files have no words.
    """
    counts: Counter[str] = Counter()
    dropped = 0
    for file in inputs:
        counts.update(count_words(_paragraphs(file.path, options), rules))
        if len(counts) > 2 * MAX_WORDS:
            kept = most_frequent(counts, MAX_WORDS)
            dropped += counts.total() - sum(kept.values())
            counts = Counter(kept)
    if not counts:
        raise SourceError(
            f"--input has no words in {len(inputs):,} files; give files with text, or set the correct --input_format"
        )
    return TextWords(len(inputs), dict(counts), dropped)


def _paragraphs(path: str, options: ReadOptions) -> Iterator[str]:
    for document in read_file(path, options):
        if not document.rejected:
            yield from document.paragraphs


def run(config: ExtendVocabOptions) -> int:
    """Write a model with another vocabulary and print a summary.

    Raises:
        CheckpointError, ConfigError, OutputError, SourceError, VocabularyError: a one-line message.
    """
    destination = Path(config.output)
    writer.check_destination(destination)
    with lock_destination(f"--output {destination}", destination, "another --output"):
        writer.check_destination(destination)
        # --added_tokens may have tokens that the vocabulary lacks.
        model_options = {**config.model_options, "added_tokens": None}
        model_loading.check_model(Path(config.model), may_lack_rows=True, **model_options)
        replacement = _load_replacement(config.replace) if config.replace else None
        inputs = find_files(config.input, config.read, list(config.field_flags)) if config.input else []
        bert_config = BertConfig.load(config.bert_config_file) if config.bert_config_file else None
        with reader.open_checkpoint(Path(config.model), config.task, bert_config) as checkpoint:
            return _extend(config, destination, checkpoint, replacement, inputs)


def _load_replacement(path: str) -> Vocabulary:
    if Path(path).is_dir():
        raise VocabularyError(f"--replace {path} is a directory; give its vocab.txt or tokenizer.json")
    if not Path(path).exists():
        raise VocabularyError(f"--replace {path} does not exist; give a vocab.txt or tokenizer.json")
    return Vocabulary.load(path)


def _extend(
    config: ExtendVocabOptions,
    destination: Path,
    checkpoint: reader.Checkpoint,
    replacement: Vocabulary | None,
    inputs: Sequence[Input],
) -> int:
    """Write the model while --output is locked."""
    whole = vocabulary_of(checkpoint, config.vocab_file, may_lack_rows=True)
    former, added = _with_rows(whole, checkpoint.config.vocab_size)
    if config.added_tokens:
        added += read_token_file(config.added_tokens)
    former_rules = word_rules_of(checkpoint, former, config)
    rules, recorded = former_rules, checkpoint.word_rules
    print_source(checkpoint)
    checkpoint = drop_unused_rows(checkpoint, former, print_status)
    if replacement is not None:
        assert config.replace is not None
        recorded = rules_beside(Path(config.replace))
        rules = config.rules(recorded, replacement.has_capitals())
    if config.do_lower_case is None and recorded.do_lower_case is None:
        print_status(f"Note      {rules.summary}, inferred from the vocabulary; --do_lower_case overrides it")

    words: list[NewWord] = []
    text = count_text_words(inputs, config.read, rules) if inputs else None
    if text:
        _print_text(text, inputs, former)
    if replacement is not None:
        result = replaced(former, replacement, former_rules)
        origin = f"vocabulary of the {checkpoint.kind} model {checkpoint.path.name} replaced"
    else:
        if config.num_tokens is not None:
            assert text is not None
            words = choose_words(text.counts, former, config.num_tokens, config.min_count, config.fill_unused)
            print_status(f"Added     {counted(len(words), 'word')}: {_examples(words)}")
        result = with_words(former, words, config.fill_unused)
        number = len(words) + len({token.content for token in added} - former.ids.keys())
        origin = f"{counted(number, 'word')} added to the {checkpoint.kind} model {checkpoint.path.name}"
    if added:
        result = with_added_tokens(result, former, added, former_rules)
        print_status(f"Whole     {counted(len(added), 'token')}, such as {added[0].content}")
    if lost := [token.content for token in former.added_tokens if token.content not in result.vocabulary.ids]:
        warn(
            f"--replace {config.replace} drops {counted(len(lost), 'added token')} of the model, such as {lost[0]!r}; "
            "keep them with --added_tokens"
        )
    if text:
        _print_effect(text, former, result.vocabulary)
    _print_rows(result, former)

    record = checkpoint.record or native.ModelRecord(task=checkpoint.task)
    # The recorded metrics are of the former vocabulary.
    record = dataclasses.replace(record, origin=origin, metrics={})
    extended = dataclasses.replace(with_vocabulary(checkpoint, result.vocabulary.tokens, result.sources), record=record)
    left_out = writer.write(
        extended,
        destination,
        config.to,
        vocabulary_content(result.vocabulary, config.to),
        rules,
        further_files={NEW_TOKENS_FILE_NAME: _new_tokens(result, former, text.counts if text else {})},
        added_tokens=result.vocabulary.added_by_id,
    )
    print_status(f"Wrote     {KIND_WORDS[config.to]} {destination}: {len(extended.tensors) - len(left_out)} tensors")
    if config.to == "tf1" and rules != WordRules(not result.vocabulary.has_capitals()):
        warn(
            f"a TF1 checkpoint does not record the word rules ({rules.summary}); give {rules.flags} to every command "
            "that reads it"
        )
    return 0


def _with_rows(vocabulary: Vocabulary, rows: int) -> tuple[Vocabulary, list[AddedToken]]:
    """Return the part of a vocabulary that has embedding rows, and the added tokens without."""
    added = vocabulary.added_by_id
    with_rows = tuple(token for number, token in added.items() if number < rows)
    lacking = [token for number, token in added.items() if number >= rows]
    return dataclasses.replace(vocabulary, tokens=vocabulary.tokens[:rows], added_tokens=with_rows), lacking


def _print_text(text: TextWords, inputs: Sequence[Input], former: Vocabulary) -> None:
    dropped = f", {text.dropped:,} rare ones dropped" if text.dropped else ""
    print_status(
        f"Text      {counted(len(inputs), 'file')}, {text.running:,} words, {len(text.counts):,} distinct{dropped}"
    )
    print_status(f"Before    {coverage(text.counts, former.ids)}")


def _print_effect(text: TextWords, former: Vocabulary, vocabulary: Vocabulary) -> None:
    """Print the coverage by the new vocabulary, and how the tokens of other words change."""
    print_status(f"After     {coverage(text.counts, vocabulary.ids)}")
    changes = compare_tokenization(text.counts, former.ids, vocabulary.ids)
    for name, changed in changes.items():
        if changed:
            word, old, new = changed[0]
            example = f"{word}: {' '.join(old)} -> {' '.join(new)}"
            print_status(f"Changed   {counted(len(changed), 'other word')}, {name}, such as {example}")


def _print_rows(result: NewVocabulary, former: Vocabulary) -> None:
    kept = sum(token in former.ids for token in result.vocabulary.tokens)
    drawn = sum(not source for source in result.sources)
    size = len(result.sources)
    print_status(f"Rows      {size:,}: {kept:,} kept, {size - kept - drawn:,} means of former tokens, {drawn:,} drawn")


def _examples(words: Sequence[NewWord]) -> str:
    shown = ", ".join(f"{word.word} ({' '.join(word.former_tokens)})" for word in words[:_SHOWN_WORDS])
    return f"{shown}{', ...' if len(words) > _SHOWN_WORDS else ''}"


def _new_tokens(result: NewVocabulary, former: Vocabulary, counts: Mapping[str, int]) -> bytes:
    """Return a table of the tokens that are not in the former vocabulary."""
    lines = ["id\ttoken\tcount\tformer_tokens"]
    for number, (token, source) in enumerate(zip(result.vocabulary.tokens, result.sources, strict=True)):
        if token not in former.ids:
            pieces = " ".join(former.tokens[identity] for identity in source)
            lines.append(f"{number}\t{token}\t{counts.get(token, '')}\t{pieces}")
    return "".join(f"{line}\n" for line in lines).encode("utf-8")
