"""The Python examples of the README run as they stand."""

import re
from pathlib import Path

import keras
import numpy as np
import transformers

from keras_bft.models import BFTLlamaTokenizer
from tests.models.llama.tokenizer_folders import write_sentencepiece

README = Path(__file__).parents[1] / "README.md"


def block(part):
    """The one example that holds a piece of text."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    [found] = [code for code in blocks if part in code]
    return found


def test_the_functional_model_trains():
    names = {}
    exec(block("keras.Input((None,)"), names)
    model = names["model"]
    model.compile("adam", "binary_crossentropy")
    ids = np.array([[1, 2, 0], [3, 0, 0]])
    before = model.get_weights()
    model.fit(ids, np.array([[1.0], [0.0]]), verbose=0)
    changed = [
        np.any(old != new)
        for old, new in zip(before, model.get_weights(), strict=True)
    ]
    assert sum(changed) > len(changed) / 2
    assert model.predict(ids, verbose=0).shape == (2, 1)


def test_the_recommender_trains_and_recommends(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    items = rng.integers(1, 20, size=(60, 8))
    rows = [
        f"u{user},item-{item},{time}"
        for user, history in enumerate(items)
        for time, item in enumerate(history)
    ]
    (tmp_path / "clicks.csv").write_text(
        "\n".join(["user,item,time", *rows]) + "\n"
    )
    monkeypatch.chdir(tmp_path)
    code = block("read_interactions").replace("=20", "=1, verbose=0")
    names = {}
    exec(code, names)
    assert capsys.readouterr().out.count("item-") == 10
    interactions = names["interactions"]
    names |= {
        "categories": rng.integers(1, 4, (interactions.num_items + 1, 2)),
        "numbers": rng.normal(size=(interactions.num_items + 1, 3)),
        "new_categories": rng.integers(1, 4, (5, 2)),
        "new_numbers": rng.normal(size=(5, 3)),
    }
    if keras.backend.backend() == "tensorflow":
        exec(block("TopKRecommender"), names)
        assert (tmp_path / "recommender" / "saved_model.pb").exists()
    exec(block("add_items"), names)
    model = names["model"]
    assert model.num_items == interactions.num_items + 5
    newest = np.array([[model.num_items, 1]])
    items, scores = model.recommend(newest, k=model.num_items - 2)
    assert np.isfinite(scores).all() and model.num_items - 1 in items


def test_the_language_model_generates_and_scores(tmp_path, monkeypatch, capsys):
    folder = write_sentencepiece(tmp_path / "TinyLlama-1.1B")
    tokenizer = BFTLlamaTokenizer.from_folder(folder)
    config = transformers.LlamaConfig(
        vocab_size=tokenizer.vocabulary_size(),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    monkeypatch.chdir(tmp_path)
    names = {"texts": ["the model reads a text", "the text"]}
    exec(block("lm.generate"), names)
    assert capsys.readouterr().out.startswith("The capital of France is")
    exec(block("lm.calibrate"), names)
    assert capsys.readouterr().out == "(2, 1024) (2, 1024) (2, 2, 1024)\n"
    assert np.isfinite(names["scores"].log_likelihood).sum() > 4
