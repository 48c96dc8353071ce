"""Define the learning-rate schedules: names, options and formulas. This file imports neither Keras nor TensorFlow."""

import math
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from beambert.trainers.errors import TrainingError

Tensor = Any

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

    def rate_at(
        self, step: Tensor, peak: float, num_train_steps: int, num_warmup_steps: int, ops: ModuleType | None = None
    ) -> Tensor:
        """Return the learning rate of a step: linear warm-up from 0, then the schedule.

        With step t, N training steps, W warm-up steps and peak r, the rate after warm-up is:

        linear    r (1 - t / N)^p. As in the released code, the decay starts at step 0, so that the rate drops at step W
                  from about r to r (1 - W / N)^p.
        cosine    r (m + (1 - m) (1 + cos(pi (t - W) / (N - W))) / 2), Loshchilov and Hutter 2017, without restarts.
        constant  r.
        wsd       r, then r (1 - sqrt((t - S) / (N - S))) from the start S of the decay: the 1-sqrt cooldown of Haegele
                  et al. 2024 ("Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations", section 3).

        Step 0 of a run with warm-up has rate 0.

        Args:
            step: number of completed steps; with `keras.ops` a float32 scalar tensor.
            peak: peak learning rate.
            num_train_steps: number of training steps; at later steps, the rate is that of this step.
            num_warmup_steps: number of warm-up steps; 0 for none.
            ops: the functions: `keras.ops` in a compiled step; None for those of numpy.
        """
        if ops is None:
            import numpy

            ops = numpy
        done = ops.minimum(step, num_train_steps)
        start = self.decay_start(num_train_steps)
        if start is not None:
            progress = ops.maximum(done - start, 0.0) / (num_train_steps - start)
            decayed = peak * (1.0 - ops.sqrt(progress))
        elif self.name == "constant":
            decayed = peak * ops.ones_like(done)
        elif self.name == "cosine":
            progress = ops.maximum(done - num_warmup_steps, 0.0) / max(num_train_steps - num_warmup_steps, 1)
            least = self.min_fraction
            decayed = peak * (least + (1.0 - least) * 0.5 * (1.0 + ops.cos(math.pi * progress)))
        else:
            # `tf.compat.v1.train.polynomial_decay` to 0 without cycles.
            decayed = peak * ops.power(1.0 - done / num_train_steps, self.decay_power)
        if num_warmup_steps == 0:
            return decayed
        return ops.where(done < num_warmup_steps, peak * done / num_warmup_steps, decayed)

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
