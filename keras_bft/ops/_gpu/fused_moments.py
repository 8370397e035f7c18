"""The sums of `softmax_moments` by fused GPU kernels, and their gradient."""

import importlib
from types import ModuleType
from typing import Any

import keras
from keras import ops

from keras_bft._extras import import_extra
from keras_bft.ops._casting import cast
from keras_bft.ops._casting import float32
from keras_bft.ops._gpu.operands import Operands
from keras_bft.ops._gpu.operands import Slopes
from keras_bft.ops._gpu.operands import tiles
from keras_bft.ops._moment_rows import MASKED
from keras_bft.ops._moment_rows import MomentRows
from keras_bft.ops._moment_rows import pad
from keras_bft.ops._own_gradient import is_written_for_a_server
from keras_bft.ops._own_gradient import with_own_gradient
from keras_bft.ops._row_steps import Arrays
from keras_bft.typing import Tensor

# Whether kernels run without a GPU, step by step, for tests of their values.
# Triton needs `TRITON_INTERPRET=1` besides, before the kernels are imported.
INTERPRET = False

DTYPES = ("bfloat16", "float16", "float32")

# Widest keys and columns together, as padded: the tiles of more leave no room.
WIDEST = 512


def supports(rows: MomentRows, arrays: Arrays) -> bool:
    """Whether a kernel computes these sums.

    It does on a GPU, with JAX or PyTorch, at known lengths. Inverted dropout,
    which sums with two sets of weights, is left to `MomentPlan`, which gives
    the same values anywhere.

    Args:
        rows: As `MomentPlan` takes it.
        arrays: As `MomentPlan.moments` takes it.
    """
    query, key, columns = (arrays[x] for x in ("query", "key", "columns"))
    if not (INTERPRET or is_on_gpu(query)) or rows.scale is not None:
        return False
    for x in (query, key, columns):
        if keras.backend.standardize_dtype(x.dtype) not in DTYPES:
            return False
        # An export leaves lengths open: they are then no ints.
        if not all(isinstance(size, int) for size in x.shape[1:]):
            return False
    tile = tiles(key, columns)
    fits = tile.channels + tile.first + tile.rest <= WIDEST
    return fits and not is_written_for_a_server()


def fused_moments(rows: MomentRows, arrays: Arrays) -> Tensor:
    """`MomentPlan.moments`, in one pass over the keys of each tile of rows.

    ```
    l_tj = q_t . k_j + b_j      m = max_j l_tj over the keys seen so far
    u = sum_j exp(l_tj - m)     v = sum_j exp(l_tj - m)^2
    y = sum_j exp(l_tj - m) x_j
    ```

    `u` and `y` are multiplied by `exp(m - m')` where the maximum becomes `m'`,
    and `v` by its square. The sums are `y / u` and `v / u^2`. The gradient
    computes `w_tj = exp(l_tj - m - log u)` again, with the slopes `g_t` of the
    sums and `c_t` of the squared weights:

    ```
    dl_tj = w_tj (g_t . x_j + 2 c_t w_tj - d_t)
    d_t = sum_j w_tj (g_t . x_j + 2 c_t w_tj)
    ```

    One kernel sums it over the keys, for queries, another over the rows, for
    keys, columns and biases.

    Args:
        rows: As `MomentPlan` takes it.
        arrays: As `MomentPlan.moments` takes it, and `supports` says yes to.

    Returns:
        As `MomentPlan.moments`.
    """
    names = list(arrays)
    kernels = _kernels()
    full = rows.statistics and rows.differentiate

    @with_own_gradient
    def moments(*inputs: Tensor) -> tuple[Tensor, Any]:
        arrays = dict(zip(names, inputs, strict=True))
        width = arrays["columns"].shape[-1]
        summed = width if rows.statistics else rows.estimated
        seen = kernels.forward(_operands(rows, arrays, summed), INTERPRET)
        result = seen.sums
        if rows.statistics:
            squares = cast(seen.squares[..., None], result.dtype)
            result = ops.concatenate([result, squares], axis=-1)

        def gradient(*args: Tensor, upstream: Tensor | None = None) -> Any:
            # PyTorch gives the inputs too, and this by name.
            upstream = args[0] if upstream is None else upstream
            sloped = width if full else rows.estimated
            slope = upstream[..., :sloped]
            twice = ops.zeros_like(seen.squares)
            if full:
                twice = 2.0 * float32(upstream[..., width])
            dot = float32(slope) * float32(seen.sums[..., :sloped])
            mean = ops.sum(dot, axis=-1) + twice * seen.squares
            found = kernels.backward(
                _operands(rows, arrays, sloped),
                Slopes(seen.log_total, slope, twice, mean),
                INTERPRET,
            )
            slopes = {
                "query": found.query,
                "key": found.key,
                "columns": pad(found.columns, 3, width - sloped),
                "bias": found.bias[..., None],
            }
            if "bias" in arrays and arrays["bias"].shape[1] == 1:
                slopes["bias"] = ops.sum(slopes["bias"], axis=1, keepdims=True)
            return tuple(slopes.get(name) for name in names)

        return result, gradient

    return moments(*arrays.values())


def _operands(rows: MomentRows, arrays: Arrays, width: int) -> Operands:
    """Arrays as the kernels take them: keys not seen have a bias."""
    key = arrays["key"]
    if "bias" in arrays:
        bias = arrays["bias"][..., 0]
    else:
        bias = ops.zeros((1, 1, key.shape[2]), "float32")
    if "visible_keys" in arrays:
        bias = ops.where(arrays["visible_keys"][..., 0], bias, MASKED)
    return Operands(
        arrays["query"],
        key,
        arrays["columns"][..., :width],
        bias,
        arrays.get("visible"),
        rows.groups if rows.causal else 0,
    )


def is_on_gpu(x: Tensor) -> bool:
    """Whether a kernel may run where the tensor is."""
    backend = keras.backend.backend()
    if backend == "torch":
        return x.is_cuda
    if backend == "jax":
        return import_extra("jax", "jax").default_backend() == "gpu"
    return False


def _kernels() -> ModuleType:
    """The module of the backend's kernels, imported when first needed."""
    if keras.backend.backend() == "torch":
        import_extra("triton", "triton")
        name = "triton_moments"
    else:
        name = "pallas_moments"
    return importlib.import_module(f"keras_bft.ops._gpu.{name}")
