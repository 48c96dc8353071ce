"""Define the configuration of `beambert pretrain`. This file imports neither Keras nor TensorFlow."""

import dataclasses
from dataclasses import dataclass

from beambert.bert_model.config import BertConfig
from beambert.common.typed_json import NonNegative, Positive
from beambert.trainers.config.run_config import RunConfig

DEFAULT_TRAIN_STEPS = 100_000
LEAST_WARMUP_STEPS = 1000
MOST_WARMUP_STEPS = 10_000


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(RunConfig):
    """The configuration of a pretraining run; the defaults are those of the released run_pretraining.py."""

    data: tuple[str, ...]
    max_train_time: NonNegative | None = None
    best_metric: str = "masked_lm_loss"
    recipe: str | None = None
    schedule: str | None = None
    batch_ramp: str | None = None
    mask_rate_schedule: str | None = None
    max_eval_steps: Positive = 100
    verify: bool = False
    on_corrupt_record: str = "stop"
    no_next_sentence: bool = False
    causal_attention: bool = False

    def resolved(self, model: BertConfig, causal_attention: bool) -> "PretrainConfig":
        """Return the configuration with all defaults that depend on the model or on the number of steps.

        Args:
            model: configuration of the model.
            causal_attention: whether the initial weights belong to a model with causal attention.

        Raises:
            TrainingError: warm-up and the decay of the learning rate overlap.
        """
        assert self.num_train_steps is not None
        warmup, rate = self.num_warmup_steps, self.learning_rate
        if warmup is None:
            warmup = default_warmup_steps(self.num_train_steps)
        self.learning_rate_schedule.check_steps(self.num_train_steps, warmup)
        return dataclasses.replace(
            self,
            learning_rate=default_learning_rate(model) if rate is None else rate,
            num_warmup_steps=warmup,
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
    return min(max(num_train_steps // 10, LEAST_WARMUP_STEPS), num_train_steps // 2, MOST_WARMUP_STEPS)
