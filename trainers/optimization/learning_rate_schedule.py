"""Define the learning-rate schedules by name, and the step at which the decay of `wsd` starts.

`learning_rate_at` in `optimizers.py` has the formulas. This file imports neither Keras nor TensorFlow.
"""

import math
from dataclasses import dataclass

from beambert.trainers.errors import TrainingError

LR_SCHEDULES = ("linear", "cosine", "constant", "wsd")


@dataclass(frozen=True)
class LearningRateSchedule:
    """The shape of the learning rate after warm-up; the default is that of the released BERT.

    Attributes:
        name: one of `LR_SCHEDULES`.
        decay_power: power of the decay of `linear`.
        decay_fraction: fraction of all steps in the decay of `wsd`, above 0 to 1.
        min_fraction: fraction of the peak at the end of `cosine`, from 0 to 1.
    """

    name: str = "linear"
    decay_power: float = 1.0
    decay_fraction: float = 0.2
    min_fraction: float = 0.0

    def __post_init__(self) -> None:
        """Check that no option of another schedule is set.

        Raises:
            TrainingError: an option has no effect with this schedule.
        """
        default = {"decay_power": 1.0, "decay_fraction": 0.2, "min_fraction": 0.0}
        for option, schedule in (("decay_power", "linear"), ("decay_fraction", "wsd"), ("min_fraction", "cosine")):
            value = getattr(self, option)
            if value != default[option] and self.name != schedule:
                raise TrainingError(
                    f"invalid --lr_{option} {value:g} with --lr_schedule {self.name}: it requires --lr_schedule "
                    f"{schedule}"
                )

    def decay_start(self, num_train_steps: int) -> int | None:
        """Return the first step of the decay of `wsd`; None for the other schedules.

        Args:
            num_train_steps: number of training steps.
        """
        if self.name != "wsd":
            return None
        return num_train_steps - max(1, round(self.decay_fraction * num_train_steps))

    def rate_at(self, step: int, peak: float, num_train_steps: int, num_warmup_steps: int) -> float:
        """Return `learning_rate_at` without Keras, for reports."""
        done = min(step, num_train_steps)
        if done < num_warmup_steps:
            return peak * done / num_warmup_steps
        start = self.decay_start(num_train_steps)
        if start is not None:
            return peak * (1.0 - math.sqrt(max(done - start, 0) / (num_train_steps - start)))
        if self.name == "constant":
            return peak
        if self.name == "cosine":
            progress = (done - num_warmup_steps) / max(num_train_steps - num_warmup_steps, 1)
            return peak * (self.min_fraction + (1.0 - self.min_fraction) * 0.5 * (1.0 + math.cos(math.pi * progress)))
        return float(peak * (1.0 - done / num_train_steps) ** self.decay_power)

    def check_steps(self, num_train_steps: int, num_warmup_steps: int) -> None:
        """Check that the decay of `wsd` starts after warm-up.

        Raises:
            TrainingError: warm-up and decay overlap.
        """
        start = self.decay_start(num_train_steps)
        if start is not None and start < num_warmup_steps:
            raise TrainingError(
                f"invalid --lr_decay_fraction {self.decay_fraction:g}: the decay would start at step {start} of "
                f"{num_train_steps}, before the end of warm-up at step {num_warmup_steps}; give a lower fraction or "
                "less warm-up"
            )
