"""What a training needs: resuming, schedules, rates, folders of runs."""

from keras_bft.training.precision_learning_rate import precision_variables
from keras_bft.training.precision_learning_rate import (
    with_precision_learning_rate,
)
from keras_bft.training.precision_monitor import PrecisionMonitor
from keras_bft.training.resumable_training import ResumableTraining
from keras_bft.training.run_folder import claim_folder
from keras_bft.training.run_folder import fingerprint
from keras_bft.training.run_folder import read_history
from keras_bft.training.run_folder import replacing
from keras_bft.training.run_folder import write_history
from keras_bft.training.scaled_schedule import ScaledSchedule
from keras_bft.training.strength_schedule import StrengthSchedule
from keras_bft.training.terminate_on_non_finite import TerminateOnNonFinite
from keras_bft.training.tokens_per_second import TokensPerSecond

__all__ = [
    "PrecisionMonitor",
    "ResumableTraining",
    "ScaledSchedule",
    "StrengthSchedule",
    "TerminateOnNonFinite",
    "TokensPerSecond",
    "claim_folder",
    "fingerprint",
    "precision_variables",
    "read_history",
    "replacing",
    "with_precision_learning_rate",
    "write_history",
]
