"""Losses over item catalogues for sequential recommenders.

A loss of this package scores hidden states against the item table itself, so
that it can decide which scores to compute. Pass one as `loss` to
`model.compile()` of a model of `keras_bft.models`, or call its
`from_states()`.
"""

from keras_bft.losses.bce import BCE as BCE
from keras_bft.losses.full_softmax import FullSoftmax as FullSoftmax
from keras_bft.losses.gbce import GBCE as GBCE
from keras_bft.losses.item_loss import ItemLoss as ItemLoss
from keras_bft.losses.sampled_softmax import SampledSoftmax as SampledSoftmax
