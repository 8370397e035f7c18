"""Seeds of the parts of a layer or model, from one seed."""

# On PyTorch Keras adds the number of a draw to the seed. With near seeds a part
# would draw what another drew a few steps before; with equal ones, sampled
# negatives would depend on what dropout drops.
_APART = 2**20

# PyTorch keeps a seed as int32.
_LARGEST = 2**31 - 1


def part_seed(seed: int | None, index: int) -> int | None:
    """Seed of a part, the same each time and far from those of other parts.

    Args:
        seed: Seed of the whole, or `None`.
        index: Number of the part, below 2,000. A part may count its own parts
            from its seed on.

    Returns:
        The seed, or `None` if there is none.
    """
    return None if seed is None else (seed + index * _APART) % _LARGEST
