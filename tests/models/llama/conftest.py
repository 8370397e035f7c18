"""Folders with tokenizers, as the tests of several files read them."""

import pytest

from tests.models.llama.tokenizer_folders import write_byte_level
from tests.models.llama.tokenizer_folders import write_sentencepiece


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    return write_byte_level(tmp_path_factory.mktemp("a") / "byte_level")


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    return write_sentencepiece(tmp_path_factory.mktemp("b") / "pieces")
