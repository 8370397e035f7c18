"""Interactions: reading, filtering, splitting, batching and making them up."""

from keras_bft.data.interactions import Interactions as Interactions
from keras_bft.data.leave_one_out import LeaveOneOut as LeaveOneOut
from keras_bft.data.leave_one_out import leave_one_out as leave_one_out
from keras_bft.data.masked_item_dataset import (
    MaskedItemDataset as MaskedItemDataset,
)
from keras_bft.data.padding import pad_sequences as pad_sequences
from keras_bft.data.readers import read_interactions as read_interactions
from keras_bft.data.sequence_dataset import SequenceDataset as SequenceDataset
from keras_bft.data.synthetic import (
    SyntheticInteractions as SyntheticInteractions,
)
from keras_bft.data.synthetic import (
    synthetic_interactions as synthetic_interactions,
)
