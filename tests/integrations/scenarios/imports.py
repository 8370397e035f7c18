"""The order of imports and settings, and what is said where it is wrong.

Each check has a process of its own, a copy of this one, which has imported
TensorFlow and Keras but not used `tf.keras` yet.
"""

import os
import sys
import traceback

import keras
import tensorflow as tf

from tests.integrations.scenarios.checks import expect_error


def set_variable():
    os.environ["TF_USE_LEGACY_KERAS"] = "1"


def import_adapter():
    import keras_bft.integrations.tfrs  # noqa: F401


def expect_it_works():
    import tensorflow_recommenders as tfrs

    from keras_bft.integrations.tfrs import Keras3Layer

    model = tfrs.Model()
    model.tower = Keras3Layer(keras.layers.Dense(2))
    assert model.tower(tf.ones((1, 3))).shape == (1, 2)
    assert len(model.tower.trainable_variables) == 2


def in_a_process_of_its_own(check):
    """Returns a check that runs in a copy of this process."""

    def forked():
        process = os.fork()
        if process:
            _, status = os.waitpid(process, 0)
            assert status == 0, f"Exit status {status}, see the output"
            return
        try:
            check()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    return forked


@in_a_process_of_its_own
def check_the_variable_is_missing_and_then_set():
    for value in (None, "0"):
        if value:
            os.environ["TF_USE_LEGACY_KERAS"] = value
        message = expect_error(
            ImportError,
            'os.environ["TF_USE_LEGACY_KERAS"] = "1"',
            import_adapter,
        )
        assert message.endswith(f"Received: TF_USE_LEGACY_KERAS={value!r}")
    # That did not use `tf.keras`, so it is not too late.
    set_variable()
    expect_it_works()


@in_a_process_of_its_own
def check_tf_keras_was_used_before_the_variable_was_set():
    assert issubclass(tf.keras.layers.Dense, keras.layers.Dense)
    set_variable()
    expect_error(ImportError, "was set too late", import_adapter)


@in_a_process_of_its_own
def check_keras_hub_was_imported_before_the_variable_was_set():
    import keras_hub  # noqa: F401

    set_variable()
    message = expect_error(ImportError, "set too late", import_adapter)
    assert "`import keras_hub` is such a use" in message


@in_a_process_of_its_own
def check_keras_hub_may_be_imported_after_the_variable_was_set():
    set_variable()
    import keras_hub  # noqa: F401

    expect_it_works()


@in_a_process_of_its_own
def check_tfrs_may_be_imported_first():
    set_variable()
    assert tf.keras.layers.Layer.__module__.startswith("tf_keras")
    import tensorflow_recommenders  # noqa: F401

    expect_it_works()


@in_a_process_of_its_own
def check_the_library_may_be_imported_before_the_variable_is_set():
    import keras_bft  # noqa: F401

    set_variable()
    expect_it_works()


@in_a_process_of_its_own
def check_a_missing_package_is_named():
    set_variable()
    sys.modules["tf_keras"] = None
    expect_error(ImportError, "keras-bft[tfrs]", import_adapter)
