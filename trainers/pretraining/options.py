"""The options of `beambert pretrain`.

Names and defaults are those of the released run_pretraining.py where it has them. This file imports neither Keras nor
TensorFlow.
"""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Literal

from beambert.bert_model.config import BertConfig
from beambert.common.command_line.flags import duration
from beambert.common.command_line.options import BatchSize, Flag, NonNegativeInt, PositiveFloat, PositiveInt
from beambert.common.command_line.path_flags import ANY_OUTPUT_DIRECTORY, ANY_PATH, MODEL_NAME_OR_PATH
from beambert.trainers.options import OnResume, RunOptions

DEFAULT_MODEL = "tiny"
DEFAULT_TRAIN_STEPS = 100_000
_LEAST_WARMUP_STEPS = 1000
_MOST_WARMUP_STEPS = 10_000


@dataclass(frozen=True, kw_only=True)
class PretrainOptions(RunOptions):
    """The options of a pretraining run.

    Attributes:
        output: Directory for checkpoints, logs and results; a run with the same data, model and seed resumes from its
            last checkpoint.
        data: Dataset directories from `beambert build` or `beambert pretraining-data`; with several, one per sequence
            length, --schedule sets when each is used.
        schedule: Phases of training as LENGTHxFRACTION, the fraction of the steps at each sequence length, such as
            128x0.9,512x0.1 (the BERT paper's); 512x0.1@64 also sets the batch size of a phase (default: a single
            phase).
        model: Model configuration: tiny, mini, small, medium, base, large, a compact model such as L-6_H-256, or the
            path of a bert_config.json (default: the configuration in --output, else of --init_checkpoint, else tiny).
        init_checkpoint: Initial weights: a run or converted model, a checkpoint, zip archive or SavedModel of the
            released BERT, or a model of Hugging Face or KerasHub (default: random weights).
        no_next_sentence: Train without the next-sentence loss ("No NSP" in the BERT paper, section 5.1).
        causal_attention: Use causal attention, as in "LTR" of the BERT paper (section 5.1); the objective is still
            masked-LM.
        recipe: Set of flags: paper-base, paper-large, one-day, tiny-cpu; listed below, and by --recipe without a name.
        do_train: Train; without --do_train and --do_eval, the command does both.
        do_eval: Evaluate the last checkpoint on the validation split of --data.
        num_train_steps: Number of training steps (default: 100000; the BERT paper's: 1000000).
        max_train_time: Time for the whole command instead of --num_train_steps, such as 2h or 90m; the number of steps
            is computed from the speed measured at the start, recorded, and kept when the run resumes (default: none).
        num_warmup_steps: Steps of linear learning-rate warm-up, after which --lr_schedule applies (default:
            num_train_steps / 10, from 1000 to 10000 and at most num_train_steps / 2).
        learning_rate: Peak learning rate (default: 1e-4 for base and large, as in the BERT paper; 2e-4 for medium and
            small, 5e-4 for mini, 1e-3 for tiny).
        train_batch_size: Global training batch size in sequences (default: 32; the BERT paper's: 256).
        batch_ramp: Smaller batch sizes at the start as SIZE:STEP; 32:1000,64:2000 uses 32 sequences until step 1000, 64
            until step 2000, then --train_batch_size (default: none).
        mask_rate_schedule: Fractions of tokens to mask as RATE:STEP, for data with dynamic masks; 0.3:10000,0.15 masks
            30% until step 10000, then 15%; 0.3-0.15 decreases over all steps (default: the rate of the data).
        seed: Random seed of the initial weights, the data order and dropout; the same seed on the same machine gives
            the same weights.
        best_metric: Evaluation metric that selects the best checkpoint.
        max_eval_steps: Maximum number of batches of --eval_batch_size sequences per evaluation.
        verify: Verify the SHA-256 of every shard against dataset.json before training.
        on_corrupt_record: Action at a corrupt record: stop and name its shard and offset, or skip and count it.

    Raises:
        TrainingError: a value is out of range, or options contradict each other. No files are read.
    """

    output: Annotated[str, Flag("output", required=True, type=ANY_OUTPUT_DIRECTORY, metavar="DIR"), OnResume.NO_EFFECT]
    data: Annotated[
        tuple[str, ...], Flag("data", nargs="+", required=True, type=ANY_PATH, metavar="DIR"), OnResume.FREE
    ]
    schedule: Annotated[str | None, Flag("data", metavar="PHASES"), OnResume.LATER_STEPS] = None
    model: Annotated[str | None, Flag("model", type=MODEL_NAME_OR_PATH, metavar="NAME|FILE.json"), OnResume.FREE] = None
    init_checkpoint: Annotated[str | None, Flag("model", type=ANY_PATH, metavar="PATH"), OnResume.FREE] = None
    no_next_sentence: Annotated[bool, Flag("model"), OnResume.FORBIDDEN] = False
    causal_attention: Annotated[bool, Flag("model"), OnResume.FORBIDDEN] = False
    recipe: Annotated[str | None, Flag("training", nargs="?", metavar="NAME"), OnResume.NO_EFFECT] = None
    do_train: Annotated[bool, Flag("training"), OnResume.NO_EFFECT] = False
    do_eval: Annotated[bool, Flag("training"), OnResume.NO_EFFECT] = False
    num_train_steps: Annotated[PositiveInt | None, Flag("training"), OnResume.LATER_STEPS] = None
    # Another value is an error in `beambert.trainers.pretraining.plan`.
    max_train_time: Annotated[PositiveFloat | None, Flag("training", type=duration, metavar="TIME"), OnResume.FREE] = (
        None
    )
    num_warmup_steps: Annotated[NonNegativeInt | None, Flag("training"), OnResume.LATER_STEPS] = None
    learning_rate: Annotated[PositiveFloat | None, Flag("training", metavar="RATE"), OnResume.LATER_STEPS] = None
    train_batch_size: Annotated[BatchSize, Flag("training"), OnResume.LATER_STEPS] = 32
    batch_ramp: Annotated[str | None, Flag("training", metavar="SIZES"), OnResume.LATER_STEPS] = None
    mask_rate_schedule: Annotated[str | None, Flag("training", metavar="RATES"), OnResume.LATER_STEPS] = None
    seed: Annotated[NonNegativeInt, Flag("training"), OnResume.FORBIDDEN] = 12345
    best_metric: Annotated[str, Flag("evaluation", metavar="NAME"), OnResume.FREE] = "masked_lm_loss"
    max_eval_steps: Annotated[PositiveInt, Flag("evaluation"), OnResume.FREE] = 100
    verify: Annotated[bool, Flag("input handling"), OnResume.NO_EFFECT] = False
    on_corrupt_record: Annotated[Literal["stop", "skip"], Flag("input handling"), OnResume.LATER_STEPS] = "stop"

    def resolved(self, model: BertConfig, causal_attention: bool) -> "PretrainOptions":
        """Return the options with all defaults that depend on the model or on the number of steps.

        Args:
            model: configuration of the model.
            causal_attention: whether the initial weights belong to a model with causal attention.

        Raises:
            TrainingError: warm-up and the decay of the learning rate overlap.
        """
        assert self.num_train_steps is not None
        warmup, rate = self.num_warmup_steps, self.learning_rate
        return dataclasses.replace(
            self,
            learning_rate=default_learning_rate(model) if rate is None else rate,
            num_warmup_steps=default_warmup_steps(self.num_train_steps) if warmup is None else warmup,
            causal_attention=self.causal_attention or causal_attention,
        )


def default_learning_rate(config: BertConfig) -> float:
    """Return the default peak learning rate: the paper's 1e-4 for base and larger models, higher for smaller ones.

    The rates of the smaller models were the best of short runs on 20 MB of Wikipedia text, with warm-up over a tenth of
    the steps. With two to three times these rates, no model learned more than the frequency of tokens.
    """
    for hidden_size, rate in ((768, 1e-4), (512, 2e-4), (256, 5e-4)):
        if config.hidden_size >= hidden_size:
            return rate
    return 1e-3


def default_warmup_steps(num_train_steps: int) -> int:
    """Return a tenth of the steps, at least 1,000, and at most the paper's 10,000 and half of all steps.

    BERT's Adam has no bias correction, so that its first steps are several times too large. With a shorter warm-up, a
    small model predicts only token frequencies for the rest of a short run.
    """
    return min(max(num_train_steps // 10, _LEAST_WARMUP_STEPS), num_train_steps // 2, _MOST_WARMUP_STEPS)
