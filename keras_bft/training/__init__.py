"""Trainings that can be interrupted, and the folders that they write."""

from keras_bft.training.resumable_training import ResumableTraining
from keras_bft.training.run_folder import claim_folder
from keras_bft.training.run_folder import fingerprint
from keras_bft.training.run_folder import read_history
from keras_bft.training.run_folder import replacing
from keras_bft.training.run_folder import write_history
from keras_bft.training.strength_schedule import StrengthSchedule

__all__ = [
    "ResumableTraining",
    "StrengthSchedule",
    "claim_folder",
    "fingerprint",
    "read_history",
    "replacing",
    "write_history",
]
