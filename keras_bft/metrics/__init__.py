"""How good generated answers are."""

from keras_bft.metrics.answers import AnswerScores as AnswerScores
from keras_bft.metrics.answers import exact_match as exact_match
from keras_bft.metrics.answers import normalize_answer as normalize_answer
from keras_bft.metrics.answers import score_answers as score_answers
from keras_bft.metrics.answers import token_f1 as token_f1
