"""Observe is finite and right, dense or block by block."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from keras_bft.ops import NO_OBSERVATION
from tests.ops.kriging_cases import expected_observation
from tests.properties.kriging_forms import EXACT
from tests.properties.kriging_forms import FORMS
from tests.properties.kriging_forms import blockwise
from tests.properties.kriging_forms import dense
from tests.properties.kriging_forms import kriging_arrays
from tests.properties.kriging_forms import sees
from tests.properties.programs import assert_close
from tests.properties.programs import assert_finite
from tests.properties.settings import cases
from tests.properties.strategies import moderate
from tests.properties.strategies import numbers

# Of half precision, the epsilon of bfloat16 twice.
TOLERANCES = {"float32": 1e-4, "float16": 4e-3, "bfloat16": 2e-2}


@cases(25)
@given(st.sampled_from(FORMS), numbers)
def test_finite(form, drawn):
    arrays = kriging_arrays(form, drawn)
    for observe in (blockwise, dense):
        run = observe(form)(**arrays)
        assert_finite(run)
        _, residual_variance, sample_size, *_ = run[0]
        assert np.all(residual_variance >= 0)
        assert np.all((sample_size == 0) | (sample_size > 0.999))
        assert np.all(sample_size <= 1.001 * form.sizes[2])


@cases(15)
@given(st.sampled_from(FORMS), moderate)
def test_dense_and_blockwise_agree(form, drawn):
    arrays = kriging_arrays(form, drawn)
    outputs, gradients = blockwise(form)(**arrays)
    wanted, of_wanted = dense(form)(**arrays)
    tolerance = TOLERANCES[form.dtype]
    assert_close(outputs, wanted[:4], tolerance)
    assert_close(gradients.values(), of_wanted.values(), 3 * tolerance)


@cases(10)
@given(st.sampled_from([f for f in EXACT if not f.per_head]), numbers)
def test_reference(form, drawn):
    arrays = kriging_arrays(form, drawn)
    expected = expected_observation(
        {
            **{x: arrays[x] for x in ("query", "key", "value")},
            "key_log_precision": arrays["mean_log_precision"][..., None],
            "value_log_precision": arrays["value_log_precision"],
            "mask": sees(form, arrays),
            "scale": None,
            "strength": drawn.strength,
        }
    )
    residual_variance = expected["residual_variance"]
    if form.variance == "head":
        residual_variance = residual_variance.mean(axis=-1, keepdims=True)
    seen = expected["prior_precision"] > 0
    log_prior = np.full(seen.shape, NO_OBSERVATION)
    log_prior[seen] = np.log(expected["prior_precision"][seen])
    outputs, _ = blockwise(form)(**arrays)
    assert_close(outputs[:1], [expected["estimate"]], 1e-6)
    assert_close(outputs[1:2], [residual_variance], 1e-4)
    np.testing.assert_allclose(
        outputs[2][..., 0], expected["effective_sample_size"], rtol=1e-3
    )
    np.testing.assert_allclose(outputs[3][..., 0], log_prior, atol=1e-3)
