"""A learning-rate schedule times a number."""

from typing import Any

import keras

from keras_bft.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_bft")
class ScaledSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Multiplies a schedule of the learning rate.

    Args:
        schedule: A `keras.optimizers.schedules.LearningRateSchedule`.
        multiplier: What it is multiplied by.

    Example:

    >>> decay = keras.optimizers.schedules.CosineDecay(0.1, 10)
    >>> scaled = keras_bft.training.ScaledSchedule(decay, 5.0)
    >>> round(float(scaled(0)), 4)
    0.5
    """

    def __init__(
        self,
        schedule: keras.optimizers.schedules.LearningRateSchedule,
        multiplier: float,
    ) -> None:
        super().__init__()
        self.schedule = schedule
        self.multiplier = multiplier

    def __call__(self, step: Tensor) -> Tensor:
        """Returns the learning rate of a step."""
        return self.multiplier * self.schedule(step)

    def get_config(self) -> dict[str, Any]:
        return {
            "schedule": keras.optimizers.schedules.serialize(self.schedule),
            "multiplier": self.multiplier,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> "ScaledSchedule":
        schedule = keras.optimizers.schedules.deserialize(
            config["schedule"], custom_objects
        )
        return cls(schedule, config["multiplier"])
