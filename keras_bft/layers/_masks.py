"""Masks of attention: which keys a query may see."""

from keras import ops

from keras_bft.ops._casting import cast
from keras_bft.typing import Tensor


def first_mask(*masks: Tensor | None) -> Tensor | None:
    """The first mask that is given, as bool."""
    for mask in masks:
        if mask is not None:
            return cast(mask, "bool")
    return None


def visible_keys(
    padding_mask: Tensor | None,
    attention_mask: Tensor | None,
    causal_length: int | Tensor | None,
) -> Tensor | None:
    """Keys that each query may see.

    Args:
        padding_mask: `(B, S)` bool, `True` at real keys.
        attention_mask: `(B, T, S)` bool, `True` where a query may see a key.
        causal_length: Length of the sequence if a query may see itself and
            earlier positions only.

    Returns:
        `(B or 1, T or 1, S)` bool, or `None` if every key may be seen.
    """
    masks = []
    if padding_mask is not None:
        masks.append(padding_mask[:, None, :])
    if attention_mask is not None:
        masks.append(cast(attention_mask, "bool"))
    if causal_length is not None:
        position = ops.arange(causal_length, dtype="int32")
        masks.append((position[:, None] >= position[None, :])[None])
    if not masks:
        return None
    visible = masks[0]
    for mask in masks[1:]:
        visible = ops.logical_and(visible, mask)
    return visible
