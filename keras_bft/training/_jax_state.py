"""The variables of a model within an epoch."""

import keras


def fill_variables(model: keras.Model) -> None:
    """Gives variables their values within an epoch, where they have none.

    On JAX they are empty then; this fills them, and the trainer reads them
    again afterwards.
    """
    if keras.backend.backend() == "jax":
        model.jax_state_sync()
