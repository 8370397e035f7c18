"""A function of rows, a number of them at a time."""

from collections.abc import Callable

from keras import ops

from keras_bft.typing import Tensor

Arrays = dict[str, Tensor]


def in_steps(
    function: Callable[[Arrays], tuple[Arrays, Arrays]],
    rows: Arrays,
    step: int | None,
) -> tuple[Arrays, Arrays]:
    """Calls a function with a number of rows at a time.

    A loop, so that what a step holds is free before the next one.

    Args:
        function: From arrays of rows, `(., ., step, .)`, to arrays of rows,
            which are joined, and others, which are added.
        rows: Arrays of the same number of rows in axis 2.
        step: Largest number of rows. `None`, or where the number of rows is
            unknown or not greater, is all at once.

    Returns:
        The joined and the added arrays.
    """
    count = next(iter(rows.values())).shape[2]
    if step is None or not isinstance(count, int) or count <= step:
        return function(rows)
    steps = -(-count // step)
    step = -(-count // steps)
    rows = {name: _split(array, steps, step) for name, array in rows.items()}

    def at(index: int | Tensor) -> tuple[Arrays, Arrays]:
        return function({name: array[index] for name, array in rows.items()})

    joined, added = at(0)
    joined = {
        name: ops.concatenate(
            [array[None], *[ops.zeros_like(array)[None]] * (steps - 1)]
        )
        for name, array in joined.items()
    }

    def body(
        index: Tensor, totals: tuple[Arrays, Arrays]
    ) -> tuple[Arrays, Arrays]:
        joined, added = totals
        new_rows, new = at(index)
        joined = {
            name: ops.slice_update(
                array,
                (index, *[0] * (len(array.shape) - 1)),
                new_rows[name][None],
            )
            for name, array in joined.items()
        }
        return joined, {name: added[name] + new[name] for name in added}

    joined, added = ops.fori_loop(1, steps, body, (joined, added))
    return {
        name: _joined(array, count) for name, array in joined.items()
    }, added


def _split(array: Tensor, steps: int, step: int) -> Tensor:
    """`(., ., rows, .)` as `(steps, ., ., step, .)`, with zeros at the end."""
    missing = steps * step - array.shape[2]
    if missing:
        array = ops.pad(array, [[0, 0], [0, 0], [0, missing], [0, 0]])
    first, second, _, last = ops.shape(array)
    array = ops.reshape(array, (first, second, steps, step, last))
    return ops.transpose(array, (2, 0, 1, 3, 4))


def _joined(array: Tensor, count: int) -> Tensor:
    """Undoes `_split`."""
    array = ops.transpose(array, (1, 2, 0, 3, 4))
    first, second, steps, step, last = ops.shape(array)
    array = ops.reshape(array, (first, second, steps * step, last))
    return array[:, :, :count]
