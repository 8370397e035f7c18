"""Fused kernels sum what the blocks do, and what float64 does.

Without a GPU they are run step by step, Pallas and Triton each in its own way.
"""

import functools
import importlib.util
from dataclasses import dataclass

import keras
import numpy as np
import pytest

from keras_bft.layers import BFTAttention
from keras_bft.ops import WeightDropout
from keras_bft.ops import softmax_moments
from keras_bft.ops._gpu import fused_moments
from keras_bft.ops._gpu import operands
from keras_bft.ops._gpu.operands import Tiles
from keras_bft.ops._moment_rows import MomentRows
from tests.compiled import compiled
from tests.gradients import gradient_function
from tests.ops.arrays import normals
from tests.ops.arrays import numpy
from tests.ops.arrays import weighted_sum

BACKEND = keras.backend.backend()
NEEDED = {"jax": "jaxlib.triton", "torch": "triton"}.get(BACKEND)

pytestmark = pytest.mark.skipif(
    NEEDED is None or importlib.util.find_spec(NEEDED) is None,
    reason=f"no kernels on {BACKEND} without {NEEDED}",
)
B, C = 2, 5
ops = keras.ops


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Several tiles of short sequences, and no GPU where there is none."""
    monkeypatch.setattr(operands, "TILE", 16)
    on_gpu = fused_moments.is_on_gpu(ops.zeros(1))
    monkeypatch.setattr(fused_moments, "INTERPRET", not on_gpu)


@dataclass(frozen=True)
class Case:
    """Sizes and options of the sums.

    Attributes:
        lengths: Numbers of queries and keys.
        heads: Numbers of query heads and key heads.
        columns: Numbers of columns and of those of the estimate.
        mask: Kind of mask.
        causal: As in `softmax_moments`.
        shared: Whether the heads share the bias.
        bias: Its standard deviation.
        dropout: Whether weights are dropped.
        options: Other arguments.
    """

    lengths: tuple[int, int]
    heads: tuple[int, int] = (2, 2)
    columns: tuple[int, int] = (7, C)
    mask: str | None = None
    causal: bool = False
    shared: bool = True
    bias: float | None = None
    dropout: bool = False
    statistics: bool = True
    differentiate: bool = True

    def arrays(self):
        rng = np.random.default_rng(0)
        (length, num_keys), (heads, key_heads) = self.lengths, self.heads
        arrays = {
            "query": normals(rng, B, length, heads, C),
            "key": normals(rng, B, num_keys, key_heads, C),
            "columns": normals(rng, B, num_keys, key_heads, self.columns[0]),
        }
        if self.bias is not None:
            shape = (B, num_keys) if self.shared else (B, num_keys, key_heads)
            arrays["bias"] = self.bias * normals(rng, *shape)
        return arrays

    def masks(self):
        """The mask and what dropout keeps."""
        rng = np.random.default_rng(1)
        (length, num_keys), (heads, key_heads) = self.lengths, self.heads
        mask = kept = None
        if self.mask == "padding":
            mask = np.ones((B, 1, num_keys), bool)
            mask[0, 0, :17] = mask[1, 0, -3:] = False
        if self.mask == "pairs":
            mask = rng.random((B, length, num_keys)) < 0.6
            mask[1, 5] = False
        if self.dropout:
            rows = length * heads // key_heads
            kept = rng.random((B, key_heads, rows, num_keys)) < 0.6
        return mask, kept

    def probes(self):
        rng = np.random.default_rng(2)
        shape = (B, self.lengths[0], self.heads[0])
        width, estimated = self.columns
        if not self.statistics:
            width = 0
        return [normals(rng, *shape, n) for n in (estimated, width, 1)]

    def moments(self, arrays, **options):
        mask, kept = self.masks()
        dropped = None
        if kept is not None:
            dropped = WeightDropout(ops.convert_to_tensor(kept), None)
        return softmax_moments(
            **arrays,
            mask=mask,
            causal=self.causal,
            estimated=self.columns[1],
            statistics=self.statistics,
            differentiate=self.differentiate,
            dropped=dropped,
            **options,
        )


def expected(case):
    """Values and gradients from all weights, in NumPy's float64."""
    arrays = {k: x.astype("float64") for k, x in case.arrays().items()}
    groups = case.heads[0] // case.heads[1]
    query = arrays["query"]
    key, columns = (arrays[k].repeat(groups, 2) for k in ("key", "columns"))
    logits = np.einsum("bthc,bshc->bhts", query, key) * C**-0.5
    if case.bias is not None:
        bias = arrays["bias"]
        bias = bias[..., None] if case.shared else bias.repeat(groups, 2)
        logits = logits + bias.transpose(0, 2, 1)[:, :, None]
    seen = np.ones(logits.shape, bool)
    mask, kept = case.masks()
    if mask is not None:
        seen &= mask[:, None]
    if case.causal:
        seen &= np.tri(case.lengths[0], dtype=bool)
    if kept is not None:
        kept = kept.reshape(B, case.heads[1], case.lengths[0], groups, -1)
        seen &= kept.transpose(0, 1, 3, 2, 4).reshape(seen.shape)
    logits = np.where(seen, logits, -1e300)
    weights = seen * np.exp(logits - logits.max(-1, keepdims=True))
    total = weights.sum(-1, keepdims=True)
    weights = weights / np.where(total > 0, total, 1.0)
    sums = np.einsum("bhts,bshm->bthm", weights, columns)
    squares = np.square(weights).sum(-1).transpose(0, 2, 1)[..., None]
    width, estimated = case.columns
    values = [sums[..., :estimated], sums[..., :width], squares]
    if not case.statistics:
        values[1:] = sums[..., :0], squares[..., :0]

    probes = [probe.astype("float64") for probe in case.probes()]
    slope = np.zeros_like(sums)
    slope[..., :estimated] = probes[0]
    of_weights = np.zeros_like(weights)
    if case.statistics and case.differentiate:
        slope += probes[1]
        of_weights += 2 * weights * probes[2].transpose(0, 2, 1, 3)
    of_weights += np.einsum("bthm,bshm->bhts", slope, columns)
    mean = (weights * of_weights).sum(-1, keepdims=True)
    of_logits = weights * (of_weights - mean)

    def by_key_head(x):
        shape = (*x.shape[:2], case.heads[1], groups, *x.shape[3:])
        return x.reshape(shape).sum(3)

    low = of_logits * C**-0.5
    gradients = [
        np.einsum("bhts,bshc->bthc", low, key),
        by_key_head(np.einsum("bhts,bthc->bshc", low, query)),
        by_key_head(np.einsum("bhts,bthm->bshm", weights, slope)),
    ]
    if case.bias is not None:
        of_bias = by_key_head(of_logits.sum(2).transpose(0, 2, 1))
        gradients.append(of_bias.sum(-1) if case.shared else of_bias)
    return values, gradients


CASES = {
    "one": Case((1, 1), (1, 1), causal=True, bias=1.0),
    "padding": Case((19, 19), (2, 1), mask="padding", causal=True, bias=30.0),
    "pairs": Case(
        (19, 18),
        (1, 1),
        columns=(36, 34),
        mask="pairs",
        bias=3.0,
        differentiate=False,
    ),
    "dropout": Case(
        (9, 9), (4, 2), causal=True, bias=1.0, shared=False, dropout=True
    ),
    "estimate": Case((18, 17), (1, 1), mask="padding", statistics=False),
}


@pytest.mark.parametrize("name", CASES)
def test_kernels_equal_blocks_and_float64(name):
    case = CASES[name]
    arrays, probes = case.arrays(), case.probes()

    def scalar(kernel):
        def function(*values):
            named = dict(zip(arrays, values, strict=True))
            moments = case.moments(named, kernel=kernel)
            pairs = zip(moments, probes, strict=True)
            return sum(
                weighted_sum(x, probe) for x, probe in pairs if x.shape[-1]
            )

        return function

    values, wanted = expected(case)
    value, gradients = gradient_function(scalar(True))(*arrays.values())
    pairs = zip(values, probes, strict=True)
    exact = sum(np.sum(x * probe) for x, probe in pairs if x.shape[-1])
    np.testing.assert_allclose(value, exact, rtol=1e-5, atol=1e-4)
    blocks = wanted
    if case.heads[0] > case.heads[1]:
        blocks = gradient_function(scalar(False))(*arrays.values())[1]
    for key, x, y, z in zip(arrays, gradients, blocks, wanted, strict=True):
        scale = max(1.0, np.max(np.abs(z)))
        for other in (y, z):
            np.testing.assert_allclose(
                x / scale, other / scale, atol=1e-5, err_msg=key
            )
    assert name == "one" or np.any(wanted[0])


def test_half_precision_is_near():
    # Without a GPU Triton has no products of bfloat16.
    dtype = "float16" if BACKEND == "torch" else "bfloat16"
    case = CASES["dropout"]
    arrays, probes = case.arrays(), case.probes()
    seen = []

    def scalar(*values):
        named = dict(zip(arrays, values, strict=True))
        named = {k: ops.cast(x, dtype) for k, x in named.items()}
        moments = case.moments(named, kernel=True)
        seen[:] = [keras.backend.standardize_dtype(x.dtype) for x in moments]
        pairs = zip(moments, probes, strict=True)
        return sum(
            weighted_sum(ops.cast(x, "float32"), probe) for x, probe in pairs
        )

    values, wanted = expected(case)
    value, gradients = gradient_function(scalar)(*arrays.values())
    assert seen == [dtype] * 3
    exact = [np.sum(x * p) for x, p in zip(values, probes, strict=True)]
    np.testing.assert_allclose(value, sum(exact), atol=0.5)
    for x, y in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(x, y, atol=3e-2 * np.max(np.abs(y)))


def test_a_query_that_sees_nothing_sums_to_zero():
    case = CASES["pairs"]
    moments = compiled(functools.partial(case.moments, kernel=True))
    for x in moments(case.arrays()):
        np.testing.assert_array_equal(numpy(x)[1, 5], 0.0)


def test_a_layer_with_kernels_gives_what_blocks_give():
    state = normals(np.random.default_rng(0), 2, 9, 8)
    outputs = []
    for attention in ("kernel", "blockwise"):
        keras.utils.set_random_seed(0)
        layer = BFTAttention(1, causal=True, attention=attention)
        layer = BFTAttention.from_config(layer.get_config())
        assert layer.attention == attention
        layer.build(state.shape)
        outputs.append(compiled(layer, layer)(state, np.zeros_like(state)))
    for x, y in zip(*outputs, strict=True):
        np.testing.assert_allclose(numpy(x), numpy(y), atol=1e-5)


def test_what_has_no_kernel(monkeypatch):
    plain = MomentRows(1, True, True, C, True, scale=None)
    inverted = plain._replace(scale=2.0)

    def supports(rows=plain, width=C, dtype="float32"):
        names = ("query", "key", "columns")
        arrays = {k: ops.zeros((1, 1, 9, width), dtype) for k in names}
        return fused_moments.supports(rows, arrays)

    assert supports()
    assert not supports(rows=inverted)
    assert not supports(width=300)
    assert not supports(dtype="int32")
    monkeypatch.setattr(fused_moments, "INTERPRET", False)
    monkeypatch.setattr(fused_moments, "is_on_gpu", lambda _: False)
    assert not supports()


@pytest.mark.parametrize(
    ("channels", "width", "dtype", "wanted"),
    [
        (64, 64, "bfloat16", Tiles(64, 64, 0, 64, 64)),
        (50, 66, "float32", Tiles(64, 64, 16, 32, 32)),
        (64, 129, "float32", Tiles(64, 128, 16, 32, 32)),
        (3, 17, "float32", Tiles(16, 32, 0, 64, 64)),
        (256, 256, "float32", Tiles(256, 256, 0, 16, 16)),
    ],
)
def test_tiles(channels, width, dtype, wanted, monkeypatch):
    monkeypatch.setattr(operands, "TILE", 64)
    key, columns = (ops.zeros((1, n), dtype) for n in (channels, width))
    assert operands.tiles(key, columns) == wanted


@pytest.mark.skipif(BACKEND != "jax", reason="compiles Pallas kernels")
def test_pallas_kernels_pass_through_triton(monkeypatch):
    """What Pallas makes of them for a GPU, which need not be there."""
    import jax

    monkeypatch.setattr(fused_moments, "INTERPRET", False)
    monkeypatch.setattr(fused_moments, "is_on_gpu", lambda _: True)
    case = CASES["pairs"]
    arrays = case.arrays()

    def function(*values):
        named = dict(zip(arrays, values, strict=True))
        return ops.sum(case.moments(named, kernel=True).estimate)

    gradient = jax.jit(jax.grad(function, argnums=(0, 1, 2, 3)))
    lowered = gradient.trace(*arrays.values()).lower(
        lowering_platforms=("cuda",)
    )
    assert lowered.as_text().count("custom_call @__gpu$xla.gpu.triton") == 3
