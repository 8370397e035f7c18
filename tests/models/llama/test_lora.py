"""LoRA with the filter's weights, in files too."""

import h5py
import keras
import keras_hub
import numpy as np
import pytest

from tests.layers.layer_checks import numpy
from tests.models.llama.small_models import logits_of
from tests.models.llama.small_models import make_filter
from tests.models.llama.small_models import make_ids
from tests.models.llama.small_models import make_lm

IDS = make_ids(2, 6)


def perturb(variables):
    random = np.random.default_rng(0)
    for variable in variables:
        noise = random.normal(scale=0.3, size=variable.shape)
        variable.assign(numpy(variable.value) + noise)


def tuned(names=None):
    lm = make_filter()
    before = logits_of(lm, IDS)
    lm.backbone.enable_lora(2, names)
    np.testing.assert_array_equal(logits_of(lm, IDS), before)
    perturb(lm.backbone.trainable_variables)
    return lm


def test_the_filter_stays_trainable():
    lm = make_filter()
    learned = {v.path for v in lm.backbone.added_variables() if v.trainable}
    assert any(path.startswith("prior/") for path in learned)
    assert any(path.endswith("log_process_noise") for path in learned)
    # Without `trainable_strength` it isn't learned, with LoRA neither.
    assert not any(path.endswith("/strength") for path in learned)
    lm.backbone.enable_lora(2)
    paths = {v.path for v in lm.backbone.trainable_variables}
    assert paths - learned == {
        f"decoder_layer_{layer}/attention/{name}/lora_kernel_{part}"
        for layer in range(lm.backbone.num_layers)
        for name in ("query", "value")
        for part in "ab"
    }
    assert learned < paths

    learning = make_filter(trainable_strength=True).backbone
    learning.enable_lora(2, ["up"])
    names = {v.path.split("/")[-1] for v in learning.trainable_variables}
    assert "strength" in names


@pytest.mark.parametrize("names", [None, ["up", "output"]])
def test_a_file_holds_the_filter_too(tmp_path, names):
    lm = tuned(names)
    want = logits_of(lm, IDS)
    path = tmp_path / "changes.lora.h5"
    lm.backbone.save_lora_weights(path)
    again = make_filter()
    assert np.abs(logits_of(again, IDS) - want).max() > 0.1
    again.backbone.load_lora_weights(path)
    np.testing.assert_allclose(logits_of(again, IDS), want, atol=1e-5)
    again.backbone.load_lora_weights(path)
    np.testing.assert_allclose(logits_of(again, IDS), want, atol=1e-5)


def test_the_filter_reads_what_the_projections_multiply_by():
    lm = tuned()
    want = logits_of(lm, IDS)
    for layer in lm.backbone.transformer_layers:
        for name in ("query", "value"):
            dense = getattr(layer.attention, f"{name}_dense")
            merged = numpy(dense.kernel)
            dense.lora_kernel_b.assign(0.0 * dense.lora_kernel_b)
            dense._kernel.assign(merged)
    np.testing.assert_allclose(logits_of(lm, IDS), want, atol=1e-4)


def test_a_file_of_keras_hub_leaves_the_filter(tmp_path):
    lm = tuned()
    path = str(tmp_path / "changes.lora.h5")
    keras_hub.models.Backbone.save_lora_weights(lm.backbone, path)
    again = make_filter()
    before = [numpy(v.value) for v in again.backbone.added_variables()]
    again.backbone.load_lora_weights(path)
    for value, variable in zip(
        before, again.backbone.added_variables(), strict=True
    ):
        np.testing.assert_array_equal(value, numpy(variable.value))
    ours, theirs = (
        model.backbone.transformer_layers[0].attention.query_dense
        for model in (again, lm)
    )
    np.testing.assert_array_equal(
        numpy(ours.lora_kernel_b.value), numpy(theirs.lora_kernel_b.value)
    )


def test_other_layers_and_other_filters_are_refused(tmp_path):
    path = tmp_path / "changes.lora.h5"
    tuned().backbone.save_lora_weights(path)
    other = tuned(["up"])
    with pytest.raises(ValueError, match=r"target_layer_names=\['up'\]"):
        other.backbone.load_lora_weights(path)
    plain = make_lm(bayesian=False)
    with pytest.raises(ValueError, match="differs in.*log_process_noise"):
        plain.backbone.load_lora_weights(path)
    with h5py.File(path, "a") as file:
        del file["filter/prior/log_precision/bias"]
    with pytest.raises(ValueError, match=r"\['prior/log_precision/bias'\]"):
        make_filter().backbone.load_lora_weights(path)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`")
def test_lora_on_an_int8_model_comes_back(tmp_path):
    models = [make_filter() for _ in range(2)]
    for lm in models:
        lm.quantize("int8")
    first, second = models
    plain = logits_of(second, IDS)
    first.backbone.enable_lora(2)
    perturb(first.backbone.trainable_variables)
    want = logits_of(first, IDS)
    assert np.abs(want - plain).max() > 0.1
    first.backbone.save_lora_weights(tmp_path / "changes.lora.h5")
    second.backbone.load_lora_weights(tmp_path / "changes.lora.h5")
    np.testing.assert_allclose(logits_of(second, IDS), want, atol=1e-5)
    # A file of the whole model has the LoRA weights in its int8 kernels.
    first.save(tmp_path / "model.keras")
    whole = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    error = np.sqrt(np.mean(np.square(logits_of(whole, IDS) - want)))
    assert error < 0.1 * want.std()
