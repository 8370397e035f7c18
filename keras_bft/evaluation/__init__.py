"""Ranking, confidence, generated answers, strata and paired comparison."""

from keras_bft.evaluation.bootstrap import BootstrapInterval
from keras_bft.evaluation.bootstrap import paired_bootstrap
from keras_bft.evaluation.callback import RankingCallback
from keras_bft.evaluation.comparison import ComparisonRow
from keras_bft.evaluation.comparison import ComparisonTable
from keras_bft.evaluation.comparison_table import comparison_table
from keras_bft.evaluation.generate_answers import generate_answers
from keras_bft.evaluation.proper_scores import brier_score
from keras_bft.evaluation.proper_scores import negative_log_likelihood
from keras_bft.evaluation.rank_targets import rank_targets
from keras_bft.evaluation.ranking import Ranking
from keras_bft.evaluation.reliability import ReliabilityCurve
from keras_bft.evaluation.reliability import expected_calibration_error
from keras_bft.evaluation.reliability import reliability_curve
from keras_bft.evaluation.risk_coverage import RiskCoverageCurve
from keras_bft.evaluation.risk_coverage import abstention_threshold
from keras_bft.evaluation.risk_coverage import risk_coverage
from keras_bft.evaluation.strata import Strata
from keras_bft.evaluation.strata import quartile_strata
from keras_bft.evaluation.temperature import fit_temperature

__all__ = [
    "BootstrapInterval",
    "ComparisonRow",
    "ComparisonTable",
    "Ranking",
    "RankingCallback",
    "ReliabilityCurve",
    "RiskCoverageCurve",
    "Strata",
    "abstention_threshold",
    "brier_score",
    "comparison_table",
    "expected_calibration_error",
    "fit_temperature",
    "generate_answers",
    "negative_log_likelihood",
    "paired_bootstrap",
    "quartile_strata",
    "rank_targets",
    "reliability_curve",
    "risk_coverage",
]
