"""Exported artefacts give, without this library, what the model gives."""

import importlib.util
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_bft.models import HSTU
from keras_bft.models import BERT4Rec
from keras_bft.models import SASRec
from keras_bft.models import TopKRecommender

BACKEND = keras.backend.backend()
# Two batch sizes and two lengths.
SHAPES = [(2, 4), (3, 7)]
NEEDS = {
    "onnx": [
        "onnxruntime",
        "tf2onnx" if BACKEND == "tensorflow" else "onnxscript",
    ],
    "openvino": ["openvino"],
}
SERVER = """
import pathlib
import sys
import numpy as np

format, folder = sys.argv[1:]

def load(path):
    if format == "tf_saved_model":
        import tensorflow as tf
        model = tf.saved_model.load(path)
        return lambda x: model.serve(tuple(x) if len(x) > 1 else x[0])
    if format == "onnx":
        import onnxruntime
        session = onnxruntime.InferenceSession(path)
        inputs = [value.name for value in session.get_inputs()]
        return lambda x: session.run(None, dict(zip(inputs, x)))
    if format == "openvino":
        import openvino
        model = openvino.Core().compile_model(
            path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        return lambda x: list(model(x).values())
    import torch
    module = torch.export.load(path).module()
    def run(x):
        x = tuple(torch.as_tensor(array) for array in x)
        with torch.no_grad():
            return module(x if len(x) > 1 else x[0])
    return run

for data in sorted(pathlib.Path(folder).glob("*.npz")):
    run = load(str(max(data.parent.glob(f"{data.stem}.model*"))))
    results, cases = {}, dict(np.load(data))
    for case in "01":
        x = [cases[name] for name in sorted(cases) if name[0] == case]
        outputs = run(x)
        if not isinstance(outputs, (list, tuple)):
            outputs = [outputs]
        for i, output in enumerate(outputs):
            results[f"{case}/{i}"] = np.asarray(output)
    np.savez(data, **results)
assert "keras_bft" not in sys.modules
"""
OPTIONS = {"max_length": 8, "embedding_dim": 8, "num_layers": 1}
MODELS = {
    "sasrec": lambda: SASRec(20, **OPTIONS),
    "bert4rec": lambda: BERT4Rec(20, **OPTIONS),
    "hstu": lambda: HSTU(20, num_time_buckets=16, **OPTIONS),
    "plain-hstu": lambda: HSTU(20, bayesian=False, **OPTIONS),
}
TOP_K = {
    "sasrec-top": lambda: TopKRecommender(MODELS["sasrec"](), k=5),
    "bert4rec-top": lambda: TopKRecommender(MODELS["bert4rec"](), k=5),
    "hstu-top": lambda: TopKRecommender(MODELS["hstu"](), k=5),
}
SUFFIXES = {"tf_saved_model": "", "onnx": ".onnx", "openvino": ".xml"}
CASES = {
    "tensorflow": {
        "tf_saved_model": ["sasrec", "plain-hstu", "bert4rec-top", "hstu-top"],
        "onnx": ["hstu", "sasrec-top"],
        "openvino": ["sasrec", "hstu-top"],
    },
    "jax": {"tf_saved_model": ["sasrec", "bert4rec", "hstu"]},
    "torch": {
        "torch": ["hstu-top"],
        "onnx": ["sasrec-top"],
        "openvino": ["sasrec"],
    },
}[BACKEND]


def make(kind):
    keras.utils.set_random_seed(1)
    return {**MODELS, **TOP_K}[kind]()


def make_inputs(model, rows, length):
    rng = np.random.default_rng(rows)
    items = rng.integers(1, 21, (rows, length)).astype("int32")
    items[0, -2:] = 0
    items[1, :2] = 0
    if not model.reads_timestamps:
        return [items]
    times = np.sort(rng.integers(0, 10**6, (rows, length)), axis=1)
    return [items, times.astype("int32")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("format", CASES)
def test_a_server_computes_what_the_model_does(format, tmp_path):
    for package in NEEDS.get(format, []):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}")
    if format == "openvino" and sys.version_info >= (3, 13):
        pytest.skip("OpenVINO runs `del` in `exec`, which Python 3.13 refuses")
    wanted = {}
    for kind in CASES[format]:
        model = make(kind)
        path = tmp_path / f"{kind}.model{SUFFIXES.get(format, '.pt2')}"
        model.export(str(path), format=format, verbose=False)
        cases = {}
        for case, shape in enumerate(SHAPES):
            inputs = make_inputs(model, *shape)
            cases |= {f"{case}/{i}": x for i, x in enumerate(inputs)}
            output = model(tuple(inputs) if len(inputs) > 1 else inputs[0])
            wanted[kind, case] = [
                keras.ops.convert_to_numpy(x)
                for x in (output if isinstance(output, tuple) else (output,))
            ]
        np.savez(tmp_path / f"{kind}.npz", **cases)
    result = subprocess.run(
        [sys.executable, "-P", "-c", SERVER, format, tmp_path],
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    for (kind, case), values in wanted.items():
        with np.load(tmp_path / f"{kind}.npz") as served:
            for i, value in enumerate(values):
                np.testing.assert_allclose(
                    served[f"{case}/{i}"], value, atol=1e-5, err_msg=kind
                )


@pytest.mark.skipif(BACKEND != "tensorflow", reason="Keras writes it there")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["sasrec-top", "plain-hstu"])
def test_litert_computes_what_the_model_does(kind, tmp_path):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    model = make(kind)
    path = str(tmp_path / "model.tflite")
    for shape in SHAPES:
        signature = [keras.InputSpec(shape=shape, dtype="int32", name="items")]
        model.export(
            path, format="litert", verbose=False, input_signature=signature
        )
        runtime = interpreter.Interpreter(path)
        runtime.allocate_tensors()
        [items] = make_inputs(model, *shape)
        [given] = runtime.get_input_details()
        runtime.set_tensor(given["index"], items)
        runtime.invoke()
        outputs = model(items)
        if not isinstance(outputs, tuple):
            outputs = (outputs,)
        served = {
            (detail["dtype"], tuple(detail["shape"])): runtime.get_tensor(
                detail["index"]
            )
            for detail in runtime.get_output_details()
        }
        assert len(served) == len(outputs)
        for output in outputs:
            value = keras.ops.convert_to_numpy(output)
            np.testing.assert_allclose(
                served[value.dtype.type, value.shape], value, atol=1e-5
            )
    with pytest.raises(ValueError, match="`input_signature` must be given"):
        model.export(path, format="litert")


@pytest.mark.parametrize("kind", list(TOP_K))
def test_top_k_is_what_the_model_recommends(kind):
    model = make(kind)
    x = make_inputs(model, 3, 7)
    ids, scores = model(tuple(x) if len(x) > 1 else x[0])
    histories = [row[row > 0] for row in x[0]]
    times = None
    if model.reads_timestamps:
        times = [t[row > 0] for t, row in zip(x[1], x[0], strict=True)]
    wanted, best = model.recommender.recommend(histories, 5, timestamps=times)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(ids), wanted)
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(scores), best, atol=1e-5
    )


def test_what_is_left_is_id_zero_and_what_was_seen_may_return():
    keras.utils.set_random_seed(1)
    model = SASRec(4, **OPTIONS)
    items = np.array([[1, 2, 3]], "int32")
    ids, scores = TopKRecommender(model, k=3)(items)
    assert keras.ops.convert_to_numpy(ids).tolist() == [[4, 0, 0]]
    assert np.isneginf(keras.ops.convert_to_numpy(scores)[0, 1:]).all()
    ids, _ = TopKRecommender(model, k=4, filter_seen=False)(items)
    assert sorted(keras.ops.convert_to_numpy(ids)[0]) == [1, 2, 3, 4]


def test_a_recommender_comes_back_from_its_file(tmp_path):
    model = make("sasrec-top")
    x = make_inputs(model, 3, 7)[0]
    model(x)
    model.save(tmp_path / "top.keras")
    again = keras.saving.load_model(tmp_path / "top.keras")
    for one, other in zip(model(x), again(x), strict=True):
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(one),
            keras.ops.convert_to_numpy(other),
            atol=1e-6,
        )


def test_formats_that_do_not_work_say_so(tmp_path):
    refused = {"jax": ["onnx", "openvino"], "torch": ["tf_saved_model"]}
    for format in refused.get(BACKEND, []):
        with pytest.raises(NotImplementedError, match="KERAS_BACKEND=tensor"):
            make("sasrec").export(tmp_path / "model", format=format)
    refused = {"jax": "tf_saved_model", "torch": "openvino"}
    if BACKEND in refused:
        with pytest.raises(NotImplementedError, match="top.k"):
            make("sasrec-top").export(
                tmp_path / "model", format=refused[BACKEND]
            )


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="Received: recommender=3"):
        TopKRecommender(3)
    with pytest.raises(ValueError, match="Received: k=21"):
        TopKRecommender(SASRec(20, **OPTIONS), k=21)
