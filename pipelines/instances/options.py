"""The options of job 2, which builds pretraining examples from a corpus."""

import dataclasses
import math

from beambert.pipelines.errors import DatasetError
from beambert.tokenizer.normalization import CHARACTER_RULES

OBJECTIVES = ("nsp", "sop", "mlm")
MASKINGS = ("token", "whole_word", "span", "dynamic")
FORMATS = ("tfrecord", "parquet", "array_record")
COMPRESSIONS = ("none", "gzip")
FEATURE_NAMES = ("bert", "model_garden")
# tensorflow/models has other names for the same features (official/nlp/data/create_pretraining_data.py).
_MODEL_GARDEN_NAMES = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}


@dataclasses.dataclass(frozen=True)
class PretrainingDataOptions:
    """Options of job 2. Names and defaults are those of create_pretraining_data.py where it has the option.

    Attributes:
        do_lower_case: Whether to lower-case text before WordPiece.
        max_seq_length: Maximum length of an example in tokens, including [CLS] and [SEP].
        max_predictions_per_seq: Maximum number of masked tokens per example.
        masked_lm_prob: Fraction of tokens to predict.
        mask_rate: Probability that a token to predict is replaced by [MASK].
        random_rate: Probability that a token to predict is replaced by a random token.
        keep_rate: Probability that a token to predict is kept. The three rates add up to 1 (BERT paper, section 3.1;
            appendix C.2 compares other rates).
        masking: "token" masks single tokens, "whole_word" whole words, "span" runs of words. With "dynamic", the
            trainer masks every time it reads an example.
        objective: "nsp" for next sentence prediction, "sop" for sentence order prediction (Lan et al. 2019), "mlm" for
            masked LM only, on whole sentences of one document (DOC-SENTENCES, Liu et al. 2019).
        balance_next_sentence: Whether to balance random next sentences to half of all pairs.
        short_seq_prob: Fraction of documents with a shorter random target length.
        noise: Fraction of words of 4 letters or more that get a typing error, different in every copy. The validation
            split has no noise.
        dupe_factor: Number of copies of the data, each with its own pairs and masks.
        pack: Whether to pack several short instances into one example.
        max_instances_per_row: Maximum number of instances in a packed example. 16 single sentences of Wikipedia fill
            98 % of 512 positions.
        length_bins: Example lengths, ascending up to max_seq_length. An instance goes to the shortest sufficient
            length; every length has its own files. () for a single length.
        format: "tfrecord", "parquet" or "array_record".
        compression: "gzip" or "none", for whole TFRecord files.
        feature_names: "bert" for the names of google-research/bert, or "model_garden".
        ragged: Whether to omit padding from the records.
        random_seed: Random seed; the same seed, corpus and options give the same bytes.
        language_factors: Sampling factor of each language; {} keeps the original proportions.
        character_rules: Unicode version of the tokenizer; workers with another version fail.
        strip_accents, tokenize_chinese_chars: As in `WordRules`.

    Raises:
        DatasetError: A value is out of range, or two options are incompatible.
    """

    do_lower_case: bool = True
    max_seq_length: int = 128
    max_predictions_per_seq: int = 20
    masked_lm_prob: float = 0.15
    mask_rate: float = 0.8
    random_rate: float = 0.1
    keep_rate: float = 0.1
    masking: str = "token"
    objective: str = "nsp"
    balance_next_sentence: bool = False
    short_seq_prob: float = 0.1
    noise: float = 0.0
    dupe_factor: int = 10
    pack: bool = False
    max_instances_per_row: int = 16
    length_bins: tuple[int, ...] = ()
    format: str = "tfrecord"
    compression: str = "none"
    feature_names: str = "bert"
    ragged: bool = False
    random_seed: int = 12345
    language_factors: dict[str, float] = dataclasses.field(default_factory=dict)
    character_rules: str = CHARACTER_RULES
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True

    def __post_init__(self) -> None:
        limits = {
            "max_seq_length": (8, 65_536),
            "max_predictions_per_seq": (1, self.max_seq_length),
            "masked_lm_prob": (0.0, 1.0),
            "mask_rate": (0.0, 1.0),
            "random_rate": (0.0, 1.0),
            "keep_rate": (0.0, 1.0),
            "short_seq_prob": (0.0, 1.0),
            "noise": (0.0, 1.0),
            "dupe_factor": (1, 1000),
            "max_instances_per_row": (2, 255),
            "random_seed": (0, 2**63 - 1),
        }
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise DatasetError(f"invalid --{name} {value}: must be from {low} to {high}")
        choices = {
            "masking": MASKINGS,
            "objective": OBJECTIVES,
            "format": FORMATS,
            "compression": COMPRESSIONS,
            "feature_names": FEATURE_NAMES,
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise DatasetError(f"invalid --{name} {getattr(self, name)}: must be one of {', '.join(known)}")
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
        objective: one of `OBJECTIVES`.

    Raises:
        DatasetError: the objective is "nsp" and there is no second document for random next sentences.
    """
    if objective == "nsp" and number < 2:
        raise DatasetError(
            f"--objective nsp requires at least 2 training documents for random next sentences, but --input has "
            f"{number}; give more files, choose the --input_format that separates documents (such as sentences), or "
            "use --objective mlm or sop"
        )
