"""Losses over item catalogues, and of labels that are not to be trusted.

An `ItemLoss` scores hidden states against the item table itself, so
that it can decide which scores to compute. Pass one as `loss` to
`model.compile()` of a model of `keras_bft.models`, or call its
`from_states()`. `remove_accidental_hits` is for losses on the items of a batch.
"""

from keras_bft.losses.accidental_hits import (
    remove_accidental_hits as remove_accidental_hits,
)
from keras_bft.losses.bce import BCE as BCE
from keras_bft.losses.focal import (
    SparseCategoricalFocalCrossentropy as SparseCategoricalFocalCrossentropy,
)
from keras_bft.losses.full_softmax import FullSoftmax as FullSoftmax
from keras_bft.losses.gbce import GBCE as GBCE
from keras_bft.losses.item_loss import ItemLoss as ItemLoss
from keras_bft.losses.sampled_softmax import SampledSoftmax as SampledSoftmax
