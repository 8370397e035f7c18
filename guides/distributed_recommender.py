"""
Title: Recommenders on several devices
Author: the keras_bft developers
Date created: 2026/11/30
Description: Train SASRec data-parallel, with a split item table, on two hosts.
Backend: JAX
"""

"""
## What is split

A sequential recommender is small but for its item table. So there are two
things to divide among devices: the batch, and the table.

- `keras.distribution.DataParallel` gives every device a part of the batch and
  all of the weights.
- `keras.distribution.ModelParallel` also splits the weights that a layout map
  names. `get_layout_map` of the recommenders names the item table.

Neither changes the model, its loss or its `.keras` file. In Keras 3.15 this is
for JAX: the sources of the TensorFlow backend mark theirs as a prototype that
is not to be used, and the torch backend has none.

Here eight virtual devices of the CPU stand in for eight accelerators. Leave
`XLA_FLAGS` and `JAX_PLATFORMS` out where there are real ones. All of this must
be set before Keras is imported.
"""

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

FLAGS = os.environ.get("XLA_FLAGS", "")
os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"{FLAGS} --xla_force_host_platform_device_count=8"

import keras
import numpy as np

from keras_bft.data import SequenceDataset
from keras_bft.losses import SampledSoftmax
from keras_bft.models import SASRec

print(keras.distribution.list_devices())

"""
## Data, and one device

Users who walk through the catalogue in small steps. The batch size is that of
all devices together: it must be a multiple of the number of those that divide
the batch.
"""

NUM_ITEMS, MAX_LENGTH, BATCH_SIZE = 2000, 10, 64

rng = np.random.default_rng(0)
starts = rng.integers(0, NUM_ITEMS, (256, 1))
steps = rng.integers(0, 3, (256, MAX_LENGTH)).cumsum(axis=1)
sequences = (starts + steps) % NUM_ITEMS + 1
dataset = SequenceDataset(
    sequences, max_length=MAX_LENGTH, batch_size=BATCH_SIZE, shuffle=False
)


def train(distribution):
    """Trains a model under a distribution, which has to be set before."""
    keras.distribution.set_distribution(distribution)
    keras.utils.set_random_seed(0)
    model = SASRec(
        NUM_ITEMS,
        max_length=MAX_LENGTH,
        embedding_dim=16,
        num_layers=1,
        dropout=0.0,
        seed=0,
    )
    model.compile(keras.optimizers.Adam(0.01), SampledSoftmax(500))
    losses = model.fit(dataset, epochs=2, verbose=0).history["loss"]
    return model, losses


single, expected = train(None)
print("one device:", expected)

"""
## Data parallel

Each of the eight devices computes the gradient of an eighth of the batch; JAX
adds them up. The losses are the same but for rounding.
"""

model, losses = train(keras.distribution.DataParallel())
print("data parallel:", losses)
np.testing.assert_allclose(losses, expected, rtol=1e-5)

"""
## A split item table

A mesh arranges the devices: here two parts of the batch by four parts of the
table. The table is split by channels, so every device holds four of the sixteen
channels of all items, and the optimizer's slots are split as the table is. The
number of items is free; `embedding_dim` must be a multiple of the size of the
axis, or the model says so.
"""

mesh = keras.distribution.DeviceMesh(
    (2, 4), ("batch", "model"), keras.distribution.list_devices()
)
model, losses = train(
    keras.distribution.ModelParallel(
        layout_map=SASRec.get_layout_map(mesh), batch_dim_name="batch"
    )
)
print("split table:", losses)
np.testing.assert_allclose(losses, expected, rtol=1e-5)

table = model.item_embedding.embeddings
print(table.shape, "in parts of", table.value.addressable_shards[0].data.shape)

"""
`recommend` and `score` bring the table to the host, one copy of it, and answer
as the model on one device does.
"""

histories = [[3, 4, 6], [100, 101, 101, 103]]
items, scores = model.recommend(histories, k=5)
print(items)
keras.distribution.set_distribution(None)
np.testing.assert_allclose(
    scores, single.recommend(histories, k=5)[1], rtol=1e-3
)

"""
## Several hosts

Start one process a host, all with the same program. Before anything is computed
each calls `keras.distribution.initialize`, with the address of the first
process, the number of processes and its own number, as arguments or in

    KERAS_DISTRIBUTION_JOB_ADDRESSES=10.0.0.1:12345
    KERAS_DISTRIBUTION_NUM_PROCESSES=2
    KERAS_DISTRIBUTION_PROCESS_ID=0

`keras.distribution.list_devices` then lists those of all hosts. What to mind:

- **Data.** Keras shards a `tf.data.Dataset` by itself. For a `PyDataset`, such
  as `SequenceDataset`, it raises an error unless `auto_shard_dataset=False`:
  each process then feeds its own part of each batch. Batches must be as many
  and of the same shapes in all processes, so give all of them the same number
  of sequences and the same `bucket_lengths`.
- **Seeds.** Call `keras.utils.set_random_seed` with the same seed everywhere,
  so that all start from the same weights.
- **Together.** `fit` and `recommend` are computations of all devices: call
  them in every process. So is saving under a distribution: a process that calls
  `save_weights` alone hangs. Either let every process save, each to a file of
  its own, as here, or let the one that saves leave the distribution before,
  with `keras.distribution.set_distribution(None)`.
- **The table.** Keep the axis `"model"` within a host, as the order of
  `list_devices` does with a mesh of shape (parts of the batch, parts of the
  table). With a table that is split across hosts `fit` runs, but `recommend`
  and saving raise an error, for no host can read all of it.

Two processes with four devices each stand in for two hosts here.
"""

WORKER = """
import sys

import keras
import numpy as np

keras.distribution.initialize()

from keras_bft.data import SequenceDataset
from keras_bft.losses import SampledSoftmax
from keras_bft.models import SASRec

process, folder = int(sys.argv[1]), sys.argv[2]
sequences = np.load(f"{folder}/sequences.npy")
dataset = SequenceDataset(
    sequences[process::2],
    max_length=10,
    batch_size=32,
    bucket_lengths=[10],
    shuffle=False,
)
mesh = keras.distribution.DeviceMesh(
    (2, 4), ("batch", "model"), keras.distribution.list_devices()
)
keras.distribution.set_distribution(
    keras.distribution.ModelParallel(
        layout_map=SASRec.get_layout_map(mesh),
        batch_dim_name="batch",
        auto_shard_dataset=False,
    )
)
keras.utils.set_random_seed(0)
model = SASRec(
    2000, max_length=10, embedding_dim=16, num_layers=1, dropout=0.0, seed=0
)
model.compile(keras.optimizers.Adam(0.01), SampledSoftmax(500))
losses = model.fit(dataset, epochs=2, verbose=0).history["loss"]
model.save(f"{folder}/{process}.keras")
np.save(f"{folder}/losses-{process}.npy", losses)"""

with tempfile.TemporaryDirectory() as folder:
    np.save(f"{folder}/sequences.npy", sequences)
    program = Path(folder, "worker.py")
    program.write_text(WORKER)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, program, str(process), folder],
            env=os.environ
            | {
                "XLA_FLAGS": f"{FLAGS} "
                "--xla_force_host_platform_device_count=4",
                "KERAS_DISTRIBUTION_JOB_ADDRESSES": f"localhost:{port}",
                "KERAS_DISTRIBUTION_NUM_PROCESSES": "2",
                "KERAS_DISTRIBUTION_PROCESS_ID": str(process),
            },
        )
        for process in range(2)
    ]
    assert [process.wait() for process in processes] == [0, 0]
    for process in range(2):
        losses = np.load(f"{folder}/losses-{process}.npy").tolist()
        print(f"process {process} of two:", losses)
        np.testing.assert_allclose(losses, expected, rtol=1e-5)
    loaded = keras.saving.load_model(f"{folder}/0.keras")

"""
The file is an ordinary one: it loads on one device, and on any backend.
"""

np.testing.assert_allclose(
    loaded.recommend(histories, k=5)[1], scores, rtol=1e-3
)
print(loaded.recommend(histories, k=5)[0])
