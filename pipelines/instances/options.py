"""The options of job 2, `PretrainingDataOptions`, and the properties of examples that follow from them."""

import dataclasses
import math

from pipelines.errors import DatasetError
from tokenizer.normalization import CHARACTER_RULES

OBJECTIVES = ("nsp", "sop", "mlm")
MASKINGS = ("token", "whole_word", "span", "dynamic")
FORMATS = ("tfrecord", "parquet")
COMPRESSIONS = ("none", "gzip")
FEATURE_NAMES = ("bert", "model_garden")
# tensorflow/models gives the same features other names (official/nlp/data/create_pretraining_data.py).
_MODEL_GARDEN_NAMES = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}


@dataclasses.dataclass(frozen=True)
class PretrainingDataOptions:
    """The options of job 2; names and defaults are those of create_pretraining_data.py where it has them.

    Attributes:
        do_lower_case: lower-case and strip accents before WordPiece.
        max_seq_length: tokens in a row, [CLS] and both [SEP] included.
        max_predictions_per_seq: room for masked tokens in a row.
        masked_lm_prob: share of tokens to predict.
        mask_rate, random_rate, keep_rate: what becomes of a token to predict: [MASK], a random token, itself; together
            1 (paper, section 3.1; appendix C.2 tries others).
        masking: what is drawn: "token" single tokens, "whole_word" words with all their tokens, "span" runs of words;
            "dynamic" nothing, the trainer draws again whenever it reads.
        objective: "nsp" next sentence prediction, "sop" sentence order prediction (Lan et al. 2019), "mlm" neither:
            whole sentences of one document up to the length (DOC-SENTENCES of Liu et al. 2019).
        balance_next_sentence: draw fewer random next sentences where documents have many forced ones, so that half of
            all pairs are not next.
        short_seq_prob: share of documents packed to a shorter random length.
        noise: share of the words of 4 letters or more that get a typing error, drawn again for every copy; not in
            the validation split.
        dupe_factor: copies of the data, each with fresh pairs and masks.
        pack: put several short instances into a row.
        max_instances_per_row: most instances in a packed row; 16 of Wikipedia's sentences one by one fill 98 % of 512.
        length_bins: lengths of rows, ascending, the last max_seq_length; an instance goes to the shortest that holds
            it, each in files of its own. () for one length.
        format: "tfrecord" or "parquet".
        compression: "gzip" or "none"; of TFRecord files as a whole.
        feature_names: "bert" as the released code, or "model_garden".
        ragged: leave the padding out of the records.
        random_seed: the same seed, corpus and options give the same bytes.
        language_factors: how often documents of each language are packed; {} for as often as they occur.
        character_rules: the tokenizer's version of Unicode; a worker with another Python refuses to take part.

    Raises:
        DatasetError: a value is out of range, or two options exclude each other.
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
                raise DatasetError(f"--{name} {value} is out of range; choose one from {low} to {high}")
        choices = {
            "masking": MASKINGS,
            "objective": OBJECTIVES,
            "format": FORMATS,
            "compression": COMPRESSIONS,
            "feature_names": FEATURE_NAMES,
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise DatasetError(f"--{name} {getattr(self, name)} is not known; choose from {', '.join(known)}")
        if abs(self.mask_rate + self.random_rate + self.keep_rate - 1.0) > 1e-6:
            rates = f"--mask_rate {self.mask_rate} --random_rate {self.random_rate} --keep_rate {self.keep_rate}"
            raise DatasetError(f"{rates} do not add up to 1; the paper has 0.8, 0.1 and 0.1")
        bins = self.length_bins
        if bins and (list(bins) != sorted(set(bins)) or bins[0] < 8 or bins[-1] != self.max_seq_length):
            raise DatasetError(
                f"--length_bins {','.join(map(str, bins))} must ascend from 8 or more to --max_seq_length "
                f"{self.max_seq_length}"
            )
        if self.balance_next_sentence and self.objective != "nsp":
            raise DatasetError(f"--balance_next_sentence has nothing to balance with --objective {self.objective}")
        exclusive = (
            ("--pack", self.pack, "--length_bins", bool(bins)),
            ("--ragged", self.ragged, "--length_bins", bool(bins)),
            ("--compression gzip", self.compression == "gzip", "--format parquet", self.format == "parquet"),
        )
        for first, has_first, second, has_second in exclusive:
            if has_first and has_second:
                raise DatasetError(f"{first} and {second} exclude each other; leave one of them out")

    @property
    def instances_per_row(self) -> int:
        """Return the room for instances in a row, 1 where rows are not packed."""
        return self.max_instances_per_row if self.pack else 1

    @property
    def without_padding(self) -> bool:
        """Return whether the lists of a record end where its content does."""
        return self.ragged or self.format == "parquet"

    @property
    def row_lengths(self) -> tuple[int, ...]:
        """Return the lengths of rows, ascending: one, or one a bin."""
        return self.length_bins or (self.max_seq_length,)

    def predictions_in(self, length: int) -> int:
        """Return a row's room for masked tokens: max_predictions_per_seq in proportion to its length, rounded up."""
        return math.ceil(self.max_predictions_per_seq * length / self.max_seq_length)

    def names_of_features(self) -> dict[str, str]:
        """Return the features of a record, and the name of each in the file.

        Lengths: input_ids, input_mask, segment_ids, sequence_ids that of the row; masked_lm_* room for masked tokens;
        next_sentence_* room for instances. Parquet has no input_mask and no weights: its lists end where the content
        does.
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
    """Check that there are enough training documents for an objective.

    Args:
        number: of documents in the training split.
        objective: one of `OBJECTIVES`.

    Raises:
        DatasetError: next sentence prediction has no second document to draw a random sentence from.
    """
    if objective == "nsp" and number < 2:
        raise DatasetError(
            f"--input holds {number} document(s) to train on, and --objective nsp draws random next sentences from a "
            "second one; give more files, name the --input_format that tells where documents end (such as sentences), "
            "or use --objective mlm or sop"
        )
