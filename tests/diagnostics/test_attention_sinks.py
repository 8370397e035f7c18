import numpy as np
import pytest

from keras_bft.diagnostics import attention_sinks
from keras_bft.diagnostics import by_context_length
from keras_bft.diagnostics import trace
from keras_bft.models import BFTLlamaBackbone
from keras_bft.models import SASRec
from tests.models.llama.small_models import inputs_of
from tests.models.llama.small_models import make_filter
from tests.models.llama.small_models import make_ids
from tests.models.llama.small_models import make_lm

IDS = make_ids(3, 12)
# Left, right and no padding.
MASK = np.ones((3, 12), "int32")
MASK[0, :4], MASK[1, 9:] = 0, 0
KINDS = {
    "filter": lambda: make_filter(),
    "standard": lambda: make_lm(bayesian=False),
    "gated": lambda: make_lm(bayesian=False, gated_attention=True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_share_of_the_first_token(kind):
    lm = KINDS[kind]()
    inputs = inputs_of(IDS, MASK)
    traced = trace(lm, inputs)
    sinks = attention_sinks(lm, inputs)
    assert len(sinks) == lm.backbone.num_layers
    for path, share in sinks.items():
        name = "kriging" if kind == "filter" else "attention"
        weights = traced[f"{path}/{name}_weights"]
        parts = [
            weights[0, :, 5:, 4],
            weights[1, :, 1:9, 0],
            weights[2, :, 1:, 0],
        ]
        want = np.concatenate(parts, axis=1).mean(axis=1)
        np.testing.assert_allclose(share, want, rtol=1e-5)
        assert share.shape == (4,) and (share > 0).all() and (share < 1).all()
    # The mask given stands for that of the inputs.
    short = np.zeros_like(MASK)
    short[:, :2] = 1
    for share in attention_sinks(lm, inputs_of(IDS), short).values():
        assert (share > 0).all()


def test_curves_by_the_number_of_visible_tokens():
    lm = make_filter()
    inputs = inputs_of(IDS, MASK)
    traced = trace(lm, inputs)
    curves = by_context_length(lm, inputs)
    kinds = {name.rpartition("/")[2] for name in curves}
    assert kinds == {"gain", "effective_sample_size"}
    assert len(curves) == 2 * lm.backbone.num_layers
    for name, curve in curves.items():
        assert curve.visible.tolist() == [1, 2, 4, 8]
        # Rows with 8, 9 and 12 tokens.
        assert curve.number.tolist() == [3, 6, 12, 1 + 2 + 5]
        values = traced[name].reshape(3, 12, -1).mean(-1)
        first = values[[0, 1, 2], [4, 0, 0]]
        assert curve.mean[0] == pytest.approx(first.mean(), rel=1e-5)
        assert curve.stddev[0] == pytest.approx(first.std(), abs=1e-5)
        if name.endswith("effective_sample_size"):
            assert curve.mean[0] == pytest.approx(1.0)
            assert (np.diff(curve.mean) > 0).all()
    gates = by_context_length(KINDS["gated"](), inputs)
    assert all((curve.mean == 1.0).all() for curve in gates.values())


def test_what_there_is_nothing_of():
    with pytest.raises(ValueError, match="at least two tokens.*1, 0, 1"):
        attention_sinks(
            SASRec(9, 4, 8, num_layers=1, bayesian=False),
            np.array([[3, 0], [0, 0], [2, 0]]),
            [[1, 0], [0, 0], [1, 0]],
        )
    with pytest.raises(ValueError, match=r"shape \(1, 2\).*\(1, 3\)"):
        attention_sinks(
            SASRec(9, 4, 8, num_layers=1, bayesian=False),
            np.array([[3, 2]]),
            np.ones((1, 3)),
        )
    plain = BFTLlamaBackbone(20, 1, 2, 8, 8, bayesian=False)
    with pytest.raises(ValueError, match="must have one of"):
        by_context_length(plain, inputs_of(IDS % 20))
    with pytest.raises(ValueError, match="must have an attention layer"):
        attention_sinks(plain.final_norm, np.ones((1, 2, 8), "float32"))
