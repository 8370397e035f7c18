"""A saved index where neither Keras, nor TFRS, nor this library is installed.

python serving.py FOLDER
"""

import sys

ABSENT = ("keras", "tf_keras", "keras_bft", "tensorflow_recommenders")
sys.modules.update(dict.fromkeys(ABSENT))

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

folder = sys.argv[1]
expected = np.load(f"{folder}/index.npz")
index = tf.saved_model.load(f"{folder}/index")
histories = tf.constant(expected["histories"])
for rows in (slice(None), slice(1)):
    scores, ids = index(histories[rows])
    np.testing.assert_allclose(scores, expected["scores"][rows], rtol=1e-5)
    np.testing.assert_array_equal(
        ids.numpy().astype(str), expected["ids"][rows]
    )
_, left = index.query_with_exclusions(
    histories, tf.constant(expected["excluded"]), k=2
)
np.testing.assert_array_equal(left.numpy().astype(str), expected["left"])
assert not [name for name in ABSENT if sys.modules[name] is not None]
print("served", len(histories))
