"""Tokenization for Beam's `MLTransform`."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.ml.transforms.base import MLTransformProvider

from beambert.common.word_rules import WordRules
from beambert.pipelines.errors import SourceError
from beambert.pipelines.io.atomic_files import read_bytes
from beambert.pipelines.runner.job_output import absolute
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary

FEATURES = ("input_ids", "input_mask", "segment_ids")


class BertTokenize(MLTransformProvider):
    """Add the model inputs of a text or text pair to rows: input_ids, input_mask and segment_ids.

    Each is int32 [max_seq_length]. Rows are dictionaries. The artifact of `MLTransform` has the path and the SHA-256 of
    the vocabulary, not the vocabulary itself.

    >>> from apache_beam.ml.transforms.base import MLTransform
    >>> from pathlib import Path
    >>> _ = Path("vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\ncat\\n", encoding="utf-8")
    >>> tokenize = BertTokenize(["text"], "vocab.txt", max_seq_length=6)
    >>> with beam.Pipeline() as pipeline:
    ...     rows = pipeline | beam.Create([{"text": "A cat!"}])
    ...     found = rows | MLTransform(write_artifact_location="artifacts").with_transform(tokenize)
    ...     _ = found | beam.Map(lambda row: print(row["input_ids"].tolist()))
    [2, 5, 6, 1, 3, 0]

    Args:
        columns: name of the column with the text, or of two columns with a text and its pair.
        vocabulary: path of the vocabulary, on any Beam filesystem.
        do_lower_case, strip_accents, tokenize_chinese_chars: rules as for `beambert.tokenizer.Tokenizer`.
        max_seq_length: number of positions; longer texts are truncated.

    Raises:
        SourceError: there are not one or two columns.
        FileNotFoundError: the vocabulary does not exist.
    """

    def __init__(
        self,
        columns: Sequence[str],
        vocabulary: str,
        *,
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        max_seq_length: int = 128,
    ) -> None:
        if isinstance(columns, str) or len(columns) not in (1, 2):
            raise SourceError(f"invalid columns {columns!r}: BertTokenize takes a list of one or two columns")
        self.columns, self.vocabulary = list(columns), absolute(vocabulary)
        self.rules = WordRules(do_lower_case, strip_accents, tokenize_chinese_chars)
        self.max_seq_length = max_seq_length
        self.vocabulary_sha256 = hashlib.sha256(read_bytes(self.vocabulary)).hexdigest()

    def get_ptransform_for_processing(self, **_: Any) -> beam.PTransform:
        """Return the transform of rows."""
        return beam.ParDo(_Encode(self))


class _Encode(beam.DoFn):
    def __init__(self, options: BertTokenize) -> None:
        self._options = options

    def setup(self) -> None:
        """Load the vocabulary, once per worker thread."""
        path = self._options.vocabulary
        content = read_bytes(path)
        if hashlib.sha256(content).hexdigest() != self._options.vocabulary_sha256:
            raise SourceError(
                f"{path} has changed since the artifact was written; restore it, or write the artifact again"
            )
        self._tokenizer = Tokenizer(Vocabulary.from_bytes(content, path), **asdict(self._options.rules))

    def process(self, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the row with the model inputs."""
        missing = [name for name in self._options.columns if not isinstance(row.get(name), str)]
        if missing:
            raise SourceError(f"a row has no text in column {missing[0]}; its columns are {', '.join(map(str, row))}")
        text, pair = (*(row[name] for name in self._options.columns), None)[:2]
        encoded = self._tokenizer.encode(text, pair, self._options.max_seq_length)
        arrays = (np.array(values, np.int32) for values in encoded)
        yield {**row, **dict(zip(FEATURES, arrays, strict=True))}
