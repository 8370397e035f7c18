"""Weights from a checkpoint, and back into one."""

import functools
import math

import numpy as np
import pytest
import torch
import transformers

from keras_bft.models import BFTLlamaCausalLM
from keras_bft.models.llama.checkpoint_folder import CheckpointFolder
from tests.layers.layer_checks import numpy
from tests.models.llama.small_models import KINDS
from tests.models.llama.small_models import B
from tests.models.llama.small_models import T
from tests.models.llama.small_models import logits_of
from tests.models.llama.small_models import make_changed
from tests.models.llama.small_models import make_ids
from tests.models.llama.small_models import make_lm
from tests.models.llama.small_models import set_strength
from tests.models.llama.small_models import transformers_llama
from tests.models.llama.small_models import transformers_logits
from tests.models.llama.tokenizer_folders import write_byte_level

IDS = make_ids(B, T)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers(kind):
    want = transformers_logits(kind, IDS)
    for options in ({}, {"bayesian": False}):
        got = logits_of(make_lm(kind, **options), IDS)
        np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("max_bytes", [100, 4_000_000])
def test_a_checkpoint_loads_as_bfloat16(monkeypatch, max_bytes):
    blocks = functools.partialmethod(
        CheckpointFolder.blocks, max_bytes=max_bytes
    )
    monkeypatch.setattr(CheckpointFolder, "blocks", blocks)
    lm = BFTLlamaCausalLM.from_preset(
        transformers_llama()[1], dtype="bfloat16", preprocessor=None
    )
    for variable in lm.backbone.weights:
        statistic = any(
            name in variable.path
            for name in ("strength", "log_process_noise", "log_precision")
        )
        assert variable.dtype == ("float32" if statistic else "bfloat16")
    got, want = logits_of(lm, IDS), transformers_logits("grouped", IDS)
    assert np.sqrt(np.mean(np.square(got - want))) < 0.05
    assert math.isclose(want.std(), 1.0, rel_tol=0.1)


@pytest.mark.parametrize("kind", ["grouped", "tied", "biases", "llama3"])
def test_transformers_reads_the_export(kind, tmp_path):
    lm = make_lm(kind)
    # As if it had been trained.
    kernel = lm.backbone.transformer_layers[0].attention.query_dense.kernel
    kernel.assign(numpy(kernel) * 1.1)
    lm.export_to_transformers(tmp_path / "export")
    model = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "export")
    with torch.no_grad():
        got = model(torch.tensor(IDS, dtype=torch.long)).logits.numpy()
    np.testing.assert_allclose(got, logits_of(lm, IDS), atol=1e-5)
    assert np.abs(got - transformers_logits(kind, IDS)).max() > 1e-3
    again = BFTLlamaCausalLM.from_preset(tmp_path / "export", preprocessor=None)
    np.testing.assert_array_equal(logits_of(again, IDS), logits_of(lm, IDS))


def test_the_tokenizer_is_exported(tmp_path):
    folder = write_byte_level(tmp_path / "checkpoint")
    transformers_llama("text")[0].save_pretrained(folder)
    lm = BFTLlamaCausalLM.from_preset(folder, bayesian=False)
    lm.export_to_transformers(tmp_path / "export")
    for text in ("the model", "<|im_end|> 12  a"):
        want, got = (
            transformers.AutoTokenizer.from_pretrained(path)(text)["input_ids"]
            for path in (folder, tmp_path / "export")
        )
        assert got == want


def test_a_filter_is_not_exported(tmp_path):
    lm = make_changed()
    with pytest.raises(ValueError, match=r"Received: strengths \[0\.3"):
        lm.export_to_transformers(tmp_path / "export")
    assert not (tmp_path / "export").exists()
    set_strength(lm, 0.0)
    lm.export_to_transformers(tmp_path / "export")
    with pytest.raises(FileExistsError, match="already"):
        lm.export_to_transformers(tmp_path / "export")
