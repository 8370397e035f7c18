"""A recommender on several devices gives what it gives on one."""

import json
import os

import keras
import numpy as np
import pytest

from keras_bft.models import SASRec
from tests import eight_devices

CODE = """
import json
import keras
import numpy as np
from keras import distribution

from keras_bft.losses import FullSoftmax
from keras_bft.losses import SampledSoftmax
from keras_bft.models import HSTU
from keras_bft.models import SASRec

rng = np.random.default_rng(0)
items = rng.integers(1, 22, (8, 7))
features = {
    "categorical": rng.integers(1, 3, (22, 1)),
    "dense": rng.normal(size=(22, 2)),
    "id_dropout": 0.0,
}

def trained(parallel, kind, loss, **options):
    distribution.set_distribution(parallel)
    keras.utils.set_random_seed(0)
    model = kind(21, max_length=6, embedding_dim=8, num_layers=1, dropout=0.0,
                 seed=1, **options)
    model.compile(keras.optimizers.Adam(0.02), loss)
    history = model.fit(items[:, :-1], items[:, 1:], epochs=3, batch_size=8,
                        shuffle=False, verbose=0).history["loss"]
    ids, scores = model.recommend([[3, 5, 8, 2], [7, 1, 2, 3]], k=4)
    counts, split = set(), {}
    for weight in model.weights + model.optimizer.variables:
        value = weight.value
        counts.add(len(value.sharding.device_set))
        if not value.sharding.is_fully_replicated:
            (shape,) = {s.data.shape for s in value.addressable_shards}
            # Without the name of the optimizer, which counts them.
            split[weight.path.split("/", 1)[1]] = shape
    return {"losses": history, "ids": ids.tolist(), "scores": scores.tolist(),
            "counts": list(counts), "split": split}

def model_parallel(*shape):
    mesh = distribution.DeviceMesh(
        shape, ("batch", "model"), distribution.list_devices())
    return distribution.ModelParallel(
        layout_map=SASRec.get_layout_map(mesh), batch_dim_name="batch")

data = distribution.DataParallel()
wide, narrow = model_parallel(2, 4), model_parallel(4, 2)
cases = {
    "sampled": ((None, data, wide), SASRec, SampledSoftmax(8), {}),
    "features": (
        (None, wide), SASRec, FullSoftmax(), {"item_features": features}),
    "hstu": ((None, narrow), HSTU, FullSoftmax(), {}),
}
found = {
    case: [trained(parallel, kind, loss, name="rec", **options)
           for parallel in parallels]
    for case, (parallels, kind, loss, options) in cases.items()
}
distribution.set_distribution(wide)
try:
    SASRec(21, 6, 10)
except ValueError as error:
    found["error"] = str(error)
print(json.dumps(found))
"""


@eight_devices.only_jax
def test_devices_together_give_the_losses_and_items_of_one():
    result = eight_devices.run(CODE, os.environ.get("XLA_FLAGS", ""))
    assert "mix of local" not in result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    error = found.pop("error")
    assert "multiple of 4" in error and "'model'" in error
    assert "Received: embedding_dim=10" in error
    for case, channels in (("sampled", 2), ("features", 2), ("hstu", 4)):
        one, *data, model = found[case]
        assert one["losses"][-1] < one["losses"][0] - 0.1
        assert one["counts"] == [1] and one["split"] == {}
        for several in (*data, model):
            assert several["counts"] == [8]
            assert several["losses"] == pytest.approx(one["losses"], abs=1e-5)
            assert several["ids"] == one["ids"]
            np.testing.assert_allclose(
                several["scores"], one["scores"], atol=1e-4
            )
        table = "item_embedding/embeddings"
        if case == "features":
            table = "item_embedding/id_embedding/embeddings"
        slot = "rec_" + table.replace("/", "_")
        shard = [22, channels]
        assert model["split"] == {
            table: shard,
            f"{slot}_momentum": shard,
            f"{slot}_velocity": shard,
        }
    assert found["sampled"][1]["split"] == {}


def test_a_mesh_needs_its_axes():
    with pytest.raises(ValueError, match="Received: device_mesh='cpu'"):
        SASRec.get_layout_map("cpu")
    mesh = keras.distribution.DeviceMesh((1, 1), ("data", "model"), ["cpu:0"])
    with pytest.raises(ValueError, match="no axis 'batch'"):
        SASRec.get_layout_map(mesh)
    layouts = SASRec.get_layout_map(mesh, data_parallel_dim_name="data")
    for table in ("embeddings", "id_embedding/embeddings"):
        layout = layouts[f"sas_rec/item_embedding/{table}"]
        assert tuple(layout.axes) == (None, "model")
    for other in (
        "sas_rec/position_embedding/embeddings",
        "sas_rec/item_embedding/category_embeddings",
        "sas_rec/prior/log_precision",
    ):
        assert layouts[other] is None
