"""Count the words of input files, without cleaning or deduplication."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence

from beambert.common.word_rules import WordRules
from beambert.pipelines.commands.input_files import check_inputs
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.sources.files import match_files
from beambert.pipelines.sources.readers import Input, read_file
from beambert.tokenizer.learner import count_words, most_frequent

# Distinct words kept, about 150 bytes each. With more than twice as many, the least frequent ones are dropped.
MAX_WORDS = 2_000_000


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
