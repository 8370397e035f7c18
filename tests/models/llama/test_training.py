"""Training the decoder: on texts, on ids, with prompts and packed rows."""

import keras
import numpy as np
import pytest

from keras_bft.data import TokenDataset
from keras_bft.models import BFTLlamaCausalLM
from keras_bft.models import BFTLlamaCausalLMPreprocessor
from keras_bft.models import BFTLlamaTokenizer
from keras_bft.models.llama.packing import pack_examples
from tests.layers.layer_checks import numpy
from tests.models.llama.small_models import B
from tests.models.llama.small_models import T
from tests.models.llama.small_models import logits_of
from tests.models.llama.small_models import make_filter
from tests.models.llama.small_models import make_ids
from tests.models.llama.small_models import make_lm
from tests.models.llama.small_models import transformers_llama
from tests.models.llama.tokenizer_folders import write_byte_level


def examples(lm, rate=0.1):
    """A batch of ids with an empty row, and a model that is ready for it."""
    lm.compile(keras.optimizers.SGD(rate), weighted_metrics=[])
    ids = make_ids(B, T + 1)
    mask = np.ones((B, T), "int32")
    mask[1], mask[2, :4] = 0, 0
    x = {"token_ids": ids[:, :-1], "padding_mask": mask}
    return x, ids[:, 1:], mask.astype("float32")


def weights_of(lm):
    return {
        variable.path: numpy(variable.value) for variable in lm.backbone.weights
    }


def fit(lm, x, y, sample_weight, **options):
    history = lm.fit(
        x,
        y,
        sample_weight=sample_weight,
        batch_size=B,
        verbose=0,
        shuffle=False,
        **options,
    )
    return history.history["loss"]


def test_training_moves_every_weight():
    lm = make_filter(trainable_strength=True)
    before = weights_of(lm)
    losses = fit(lm, *examples(lm), epochs=8)
    assert losses[-1] < 0.8 * losses[0]
    still = set()
    for path, value in weights_of(lm).items():
        # A row of padding alone has no gradient, and no NaN.
        assert np.isfinite(value).all()
        if np.abs(value - before[path]).max() == 0:
            still.add(path)
    # Nothing reads the precision that the last layer predicts.
    assert still == {"decoder_layer_1/feed_forward/log_process_noise"}
    strengths = [value for path, value in before.items() if "/strength" in path]
    assert strengths == [1.0, 1.0]


def test_at_strength_zero_it_trains_as_the_standard_model():
    logits = []
    for options in ({}, {"bayesian": False}):
        lm = make_lm(**options)
        start = logits_of(lm, make_ids(B, T))
        losses = fit(lm, *examples(lm), epochs=5)
        logits.append(logits_of(lm, make_ids(B, T)))
        assert np.abs(logits[-1] - start).max() > 0.1
        logits.append(np.array(losses))
    np.testing.assert_allclose(logits[0], logits[2], atol=1e-4)
    np.testing.assert_allclose(logits[1], logits[3], atol=1e-5)


def test_batches_of_ids_train_beside_a_preprocessor(text_lm):
    random = np.random.default_rng(0)
    rows = [random.integers(5, 500, size) for size in (5, 9, 9, 12, 5, 7)]
    dataset = TokenDataset(rows, tokens_per_batch=24, shuffle=False)
    start = text_lm.get_weights()
    before = text_lm.evaluate(dataset, verbose=0)
    # The model averages over batches, whose sizes and empty places differ.
    padded = np.zeros((len(rows), T), "int32")
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    scores = text_lm.score(padded, padded > 0).log_likelihood
    want = -np.nansum(scores)
    sizes = [dataset[i][1].size for i in range(len(dataset))]
    means = [
        -sum(np.nansum(scores[row]) for row in dataset._batches[i][1]) / size
        for i, size in enumerate(sizes)
    ]
    counts = [len(dataset[i][1]) for i in range(len(dataset))]
    assert sum(m * s for m, s in zip(means, sizes, strict=True)) == (
        pytest.approx(want)
    )
    assert before == pytest.approx(np.average(means, weights=counts), rel=1e-4)
    history = text_lm.fit(
        dataset, validation_data=dataset, epochs=3, shuffle=False, verbose=0
    ).history
    text_lm.set_weights(start)
    assert history["loss"][0] < before * 1.05
    assert history["val_loss"][-1] < 0.9 * before


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer") / "folder"
    return BFTLlamaTokenizer.from_folder(write_byte_level(folder))


@pytest.fixture(scope="module")
def text_lm(tokenizer):
    preprocessor = BFTLlamaCausalLMPreprocessor(
        tokenizer, sequence_length=T, add_end_token=True, truncate=True
    )
    lm = BFTLlamaCausalLM.from_preset(
        transformers_llama("text")[1],
        strength=1.0,
        preprocessor=preprocessor,
    )
    lm.compile(keras.optimizers.SGD(0.5), weighted_metrics=[])
    return lm


def test_fit_takes_texts(text_lm):
    texts = ["the model reads", "a text", "it says what follows"]
    history = text_lm.fit(
        texts, batch_size=B, epochs=8, shuffle=False, verbose=0
    )
    losses = history.history["loss"]
    assert losses[-1] < 0.7 * losses[0]


def test_prompts_are_no_targets(text_lm):
    pairs = {
        "prompts": ["the model", "a", "it says"],
        "responses": [" reads", " text", " what follows"],
    }
    x, y, weight = text_lm.preprocessor(pairs)
    x = {name: numpy(value).astype("int32") for name, value in x.items()}
    y, weight = numpy(y).astype("int32"), numpy(weight)
    masked = (weight == 0) & (x["padding_mask"] == 1)
    assert masked.sum() > B and weight.sum() > B
    start, results = text_lm.get_weights(), []
    text_lm.preprocessor, preprocessor = None, text_lm.preprocessor
    for targets in (y, np.where(masked, (y + 7) % 600, y)):
        text_lm.set_weights(start)
        fit(text_lm, x, targets, weight)
        results.append(weights_of(text_lm))
    text_lm.set_weights(start)
    moved = weights_of(text_lm)
    text_lm.preprocessor = preprocessor
    for path, value in results[0].items():
        np.testing.assert_array_equal(results[1][path], value)
    path = "token_embedding/reverse_embeddings"
    assert np.abs(results[0][path] - moved[path]).max() > 1e-3


def test_packed_examples_cost_what_they_cost_apart():
    lm = make_filter()
    lm.compile(keras.optimizers.SGD(0.1), weighted_metrics=[])
    texts = [make_ids(size, seed=size) for size in (3, 4, 5)]
    costs = []
    for groups in ([texts] * B, [[text] for text in texts]):
        rows = [pack_examples(group, None, T, pad_id=0) for group in groups]
        rows = {
            name: np.concatenate([row[name] for row in rows])
            for name in rows[0]
        }
        assert rows["token_ids"].shape == (B, T)
        x = {
            "token_ids": rows["token_ids"],
            "padding_mask": rows["segment_ids"],
        }
        # A mean over all places, whatever their weight.
        mean = lm.evaluate(
            x,
            rows["targets"],
            sample_weight=rows["sample_weight"],
            batch_size=B,
            verbose=0,
        )
        costs.append(mean * B * T)
        scores = lm.score(**x).log_likelihood
        np.testing.assert_allclose(-np.nansum(scores), costs[-1], rtol=1e-5)
    np.testing.assert_allclose(costs[0], B * costs[1], rtol=1e-5)
