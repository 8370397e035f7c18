"""Ready-made models."""

from keras_bft.models.bert4rec import BERT4Rec
from keras_bft.models.hstu import HSTU
from keras_bft.models.sasrec import SASRec
from keras_bft.models.sequential_recommender import SequentialRecommender

__all__ = ["HSTU", "BERT4Rec", "SASRec", "SequentialRecommender"]
