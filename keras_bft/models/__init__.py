"""Ready-made models."""

import importlib
from typing import Any

from keras_bft._extras import import_extra
from keras_bft.models.bert4rec import BERT4Rec
from keras_bft.models.confidence import Confidence
from keras_bft.models.convert import convert
from keras_bft.models.hstu import HSTU
from keras_bft.models.sasrec import SASRec
from keras_bft.models.sequential_recommender import SequentialRecommender
from keras_bft.models.top_k_recommender import TopKRecommender
from keras_bft.models.user_state import UserState

# Built on keras-hub, which is imported when one of them is asked for.
_LLAMA = {
    "BFTLlamaBackbone": "backbone",
    "BFTLlamaCausalLM": "causal_lm",
    "BFTLlamaCausalLMPreprocessor": "preprocessor",
    "BFTLlamaTokenizer": "tokenizer",
}

__all__ = [
    "HSTU",
    "BERT4Rec",
    "BFTLlamaBackbone",
    "BFTLlamaCausalLM",
    "BFTLlamaCausalLMPreprocessor",
    "BFTLlamaTokenizer",
    "Confidence",
    "SASRec",
    "SequentialRecommender",
    "TopKRecommender",
    "UserState",
    "convert",
]


def __getattr__(name: str) -> Any:
    if name not in _LLAMA:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import_extra("keras_hub", "llm")
    module = importlib.import_module(f"{__name__}.llama.{_LLAMA[name]}")
    return getattr(module, name)
