"""Ranking, generated answers, strata and paired comparison."""

from keras_bft.evaluation.bootstrap import BootstrapInterval
from keras_bft.evaluation.bootstrap import paired_bootstrap
from keras_bft.evaluation.callback import RankingCallback
from keras_bft.evaluation.comparison import ComparisonRow
from keras_bft.evaluation.comparison import ComparisonTable
from keras_bft.evaluation.comparison_table import comparison_table
from keras_bft.evaluation.generate_answers import generate_answers
from keras_bft.evaluation.rank_targets import rank_targets
from keras_bft.evaluation.ranking import Ranking
from keras_bft.evaluation.strata import Strata
from keras_bft.evaluation.strata import quartile_strata

__all__ = [
    "BootstrapInterval",
    "ComparisonRow",
    "ComparisonTable",
    "Ranking",
    "RankingCallback",
    "Strata",
    "comparison_table",
    "generate_answers",
    "paired_bootstrap",
    "quartile_strata",
    "rank_targets",
]
