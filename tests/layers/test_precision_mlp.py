import numpy as np
import pytest

from keras_bft.layers import PrecisionMLP
from tests.layers.layer_checks import check_compiled
from tests.layers.layer_checks import check_config
from tests.layers.layer_checks import check_output_spec
from tests.layers.layer_checks import check_policies
from tests.layers.layer_checks import check_saving
from tests.layers.layer_checks import normal
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import randomize

EMBEDDED = normal(np.random.default_rng(0), 2, 3, 6)


def test_config():
    check_config(
        PrecisionMLP,
        hidden_dim=5,
        initial_log_precision=1.5,
        activation="tanh",
    )


def test_saving(tmp_path):
    check_saving(lambda: PrecisionMLP(4), [EMBEDDED], tmp_path)


def test_output_spec_is_float32_under_every_policy():
    check_output_spec(lambda: PrecisionMLP(4), [EMBEDDED], state_outputs=0)


def test_policies():
    check_policies(lambda **kwargs: PrecisionMLP(4, **kwargs), [EMBEDDED])


def test_compiled():
    check_compiled(lambda: PrecisionMLP(4), [EMBEDDED])


def test_every_token_starts_at_the_initial_log_precision():
    log_precision = numpy(PrecisionMLP(4, initial_log_precision=0.75)(EMBEDDED))
    np.testing.assert_array_equal(log_precision, np.full((2, 3, 1), 0.75))


def test_equals_a_two_layer_network():
    layer = PrecisionMLP(4, activation="tanh")
    layer.build(EMBEDDED.shape)
    randomize(layer)
    kernel, bias, last_kernel, last_bias = (
        w.astype("float64") for w in layer.get_weights()
    )
    hidden = np.tanh(EMBEDDED.astype("float64") @ kernel + bias)
    np.testing.assert_allclose(
        numpy(layer(EMBEDDED)),
        hidden @ last_kernel + last_bias,
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("hidden_dim", [0, 1.5, None])
def test_wrong_hidden_dim_raises(hidden_dim):
    with pytest.raises(ValueError, match="Received: hidden_dim="):
        PrecisionMLP(hidden_dim)
