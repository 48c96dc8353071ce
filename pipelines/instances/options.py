"""The options of job 2, which builds pretraining examples from a corpus."""

import argparse
import dataclasses
import math
from typing import Annotated, Literal

from msgspec import Meta

from beambert.common.command_line.flags import in_quotes, whole_number
from beambert.common.command_line.options import Flag, check
from beambert.common.typed_json import Fraction
from beambert.pipelines.errors import DatasetError
from beambert.tokenizer.normalization import CHARACTER_RULES

# tensorflow/models has other names for the same features (official/nlp/data/create_pretraining_data.py).
_MODEL_GARDEN_NAMES = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}


def _parse_lengths(text: str) -> tuple[int, ...]:
    lengths = [whole_number(number) for number in text.split(",")]
    if None in lengths:
        raise argparse.ArgumentTypeError(f"{in_quotes(text)} is not a list of whole numbers such as 32,64,128")
    return tuple(length for length in lengths if length is not None)


@dataclasses.dataclass(frozen=True)
class PretrainingDataOptions:
    """Options of job 2. Names and defaults are those of create_pretraining_data.py where it has the option.

    The help of the flags has these descriptions.

    Attributes:
        max_seq_length: Maximum sequence length in tokens, [CLS] and both [SEP] included.
        objective: Pretraining objective besides masked LM: next sentence prediction (nsp), sentence order prediction
            (sop) or none (mlm).
        balance_next_sentence: Make half of the pairs next sentences; without it slightly fewer are, as in
            google-research/bert, where an instance of one sentence always gets a random pair.
        short_seq_prob: Probability of packing a document to a random length below --max_seq_length.
        noise: Fraction of words of 4 or more letters that get a typing error, for robustness; the validation split gets
            none (default: 0).
        dupe_factor: Number of copies of the data, each with its own pairs and masks; one copy is one epoch.
        random_seed: Random seed; the same seed, corpus and options give the same bytes.
        masking: Masking unit: token, whole_word, or span (several consecutive words); dynamic leaves masking to the
            trainer, which masks again in every epoch.
        masked_lm_prob: Masked LM probability: fraction of tokens to predict.
        max_predictions_per_seq: Maximum number of masked tokens per sequence; use about max_seq_length *
            masked_lm_prob.
        mask_rate: Fraction of the tokens to predict that are replaced with [MASK].
        random_rate: Fraction of the tokens to predict that are replaced with a random token.
        keep_rate: Fraction of the tokens to predict that stay unchanged.
        pack: Pack several short instances into one row.
        max_instances_per_row: Maximum number of instances in a packed row.
        length_bins: Row lengths in tokens for bucketing by length, for example 32,64,128; each length gets its own
            shards, and the last is --max_seq_length (default: one length).
        format: Shard format; parquet stores lists without padding, for PyTorch readers; array_record has random access
            by index, for Grain.
        compression: Compression of TFRecord shards.
        feature_names: Feature names of google-research/bert (bert) or TensorFlow Model Garden (model_garden).
        ragged: Omit the padding from TFRecord and ArrayRecord examples.
        do_lower_case, strip_accents, tokenize_chinese_chars: As in `WordRules`; the corpus determines them.
        language_factors: Sampling factor of each language; {} keeps the original proportions.
        character_rules: Unicode version of the tokenizer; workers with another version fail.

    Sentence order prediction is that of Lan et al. 2019; mlm has whole sentences of one document (DOC-SENTENCES, Liu et
    al. 2019). The BERT paper has the three rates in section 3.1 and compares others in appendix C.2. 16 single
    sentences of Wikipedia fill 98 % of 512 positions.

    Raises:
        DatasetError: A value is out of range, or two options are incompatible.
    """

    max_seq_length: Annotated[int, Meta(ge=8, le=65_536), Flag("sampling")] = 128
    objective: Annotated[Literal["nsp", "sop", "mlm"], Flag("sampling")] = "nsp"
    balance_next_sentence: Annotated[bool, Flag("sampling")] = False
    short_seq_prob: Annotated[Fraction, Flag("sampling")] = 0.1
    noise: Annotated[Fraction, Flag("sampling")] = 0.0
    dupe_factor: Annotated[int, Meta(ge=1, le=1000), Flag("sampling")] = 10
    random_seed: Annotated[int, Meta(ge=0, le=2**63 - 1), Flag("sampling")] = 12345
    masking: Annotated[Literal["token", "whole_word", "span", "dynamic"], Flag("masking")] = "token"
    masked_lm_prob: Annotated[Fraction, Flag("masking")] = 0.15
    max_predictions_per_seq: Annotated[int, Meta(ge=1, le=65_536), Flag("masking")] = 20
    mask_rate: Annotated[Fraction, Flag("masking")] = 0.8
    random_rate: Annotated[Fraction, Flag("masking")] = 0.1
    keep_rate: Annotated[Fraction, Flag("masking")] = 0.1
    pack: Annotated[bool, Flag("shards")] = False
    max_instances_per_row: Annotated[int, Meta(ge=2, le=255), Flag("shards")] = 16
    length_bins: Annotated[tuple[int, ...], Flag("shards", type=_parse_lengths, metavar="N,N")] = ()
    format: Annotated[Literal["tfrecord", "parquet", "array_record"], Flag("shards")] = "tfrecord"
    compression: Annotated[Literal["none", "gzip"], Flag("shards")] = "none"
    feature_names: Annotated[Literal["bert", "model_garden"], Flag("shards")] = "bert"
    ragged: Annotated[bool, Flag("shards")] = False
    do_lower_case: bool = True
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True
    language_factors: dict[str, float] = dataclasses.field(default_factory=dict)
    character_rules: str = CHARACTER_RULES

    def __post_init__(self) -> None:
        check(self, DatasetError)
        if self.max_predictions_per_seq > self.max_seq_length:
            raise DatasetError(
                f"invalid --max_predictions_per_seq {self.max_predictions_per_seq}: must be at most --max_seq_length "
                f"{self.max_seq_length}"
            )
        if abs(self.mask_rate + self.random_rate + self.keep_rate - 1.0) > 1e-6:
            rates = f"--mask_rate {self.mask_rate} --random_rate {self.random_rate} --keep_rate {self.keep_rate}"
            raise DatasetError(f"invalid {rates}: the rates must add up to 1 (BERT: 0.8, 0.1 and 0.1)")
        bins = self.length_bins
        if bins and (list(bins) != sorted(set(bins)) or bins[0] < 8 or bins[-1] != self.max_seq_length):
            raise DatasetError(
                f"invalid --length_bins {','.join(map(str, bins))}: must be ascending, at least 8, and end with "
                f"--max_seq_length {self.max_seq_length}"
            )
        if self.balance_next_sentence and self.objective != "nsp":
            raise DatasetError(f"--balance_next_sentence requires --objective nsp, not {self.objective}")
        exclusive = (
            ("--pack", self.pack, "--length_bins", bool(bins)),
            ("--ragged", self.ragged, "--length_bins", bool(bins)),
            ("--compression gzip", self.compression == "gzip", f"--format {self.format}", self.format != "tfrecord"),
        )
        for first, has_first, second, has_second in exclusive:
            if has_first and has_second:
                raise DatasetError(f"{first} and {second} cannot be combined; remove one of them")

    @property
    def instances_per_row(self) -> int:
        """Return the maximum number of instances per example, 1 without packing."""
        return self.max_instances_per_row if self.pack else 1

    @property
    def without_padding(self) -> bool:
        """Return whether records omit padding."""
        return self.ragged or self.format == "parquet"

    @property
    def row_lengths(self) -> tuple[int, ...]:
        """Return the example lengths, ascending: one, or one per bin."""
        return self.length_bins or (self.max_seq_length,)

    def predictions_in(self, length: int) -> int:
        """Return the maximum number of masked tokens of an example of a length, proportional and rounded up."""
        return math.ceil(self.max_predictions_per_seq * length / self.max_seq_length)

    def names_of_features(self) -> dict[str, str]:
        """Return the features of a record as a dictionary from the feature to its name in the file.

        input_ids, input_mask, segment_ids and sequence_ids have the length of the example, masked_lm_* the maximum
        number of masked tokens, next_sentence_* the maximum number of instances. Parquet files have no input_mask and
        no weights, because their lists have no padding.
        """
        names = ["input_ids", "input_mask", "segment_ids"]
        if self.pack:
            names += ["sequence_ids"]
        if self.masking != "dynamic":
            names += ["masked_lm_positions", "masked_lm_ids", "masked_lm_weights"]
        if self.objective != "mlm":
            names += ["next_sentence_labels"]
            if self.pack:
                names += ["next_sentence_positions", "next_sentence_weights"]
        if self.format == "parquet":
            names = [name for name in names if name != "input_mask" and not name.endswith("_weights")]
        other = _MODEL_GARDEN_NAMES if self.feature_names == "model_garden" else {}
        return {name: other.get(name, name) for name in names}


def require_documents(number: int, objective: str) -> None:
    """Check that the training split has enough documents for an objective.

    Args:
        number: documents in the training split.
        objective: a value of `PretrainingDataOptions.objective`.

    Raises:
        DatasetError: the objective is "nsp" and there is no second document for random next sentences.
    """
    if objective == "nsp" and number < 2:
        raise DatasetError(
            f"--objective nsp requires at least 2 training documents for random next sentences, but --input has "
            f"{number}; give more files, choose the --input_format that separates documents (such as sentences), or "
            "use --objective mlm or sop"
        )
