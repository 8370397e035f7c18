"""What is fuzzed: valid files, and how they are read."""

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from typing import NamedTuple

import numpy as np

import keras_bft
from keras_bft.models.llama.chat_template import render_chat
from keras_bft.models.llama.checkpoint_folder import CheckpointFolder
from keras_bft.models.llama.hf_config import read_llama_config
from keras_bft.models.llama.tokenizer import BFTLlamaTokenizer
from tests.fuzz.mutations import Mutation
from tests.fuzz.mutations import mutate_bytes
from tests.fuzz.mutations import mutate_json
from tests.fuzz.mutations import mutate_npz
from tests.fuzz.mutations import mutate_safetensors
from tests.models.llama import tokenizer_folders
from tests.models.llama.checkpoint_files import make_shards


class Reader(NamedTuple):
    """A reader to be fuzzed.

    Attributes:
        write: Writes valid files into an empty folder.
        read: Reads the folder, and uses what it has read.
        alone: Whether a file is read without the others.
    """

    write: Callable[[Path], Any]
    read: Callable[[Path], Any]
    alone: bool = False


def mutation_of(name: str) -> Mutation:
    """The way to damage a file of this name."""
    if name.endswith((".json", ".jsonl")):
        return mutate_json
    if name.endswith(".npz"):
        return mutate_npz
    if name.endswith(".safetensors"):
        return mutate_safetensors
    return mutate_bytes


def _write_tables(folder: Path) -> None:
    rows = "user,item,time\n" + "".join(
        f"{user},{item},{5 * item}\n" for user in "abc" for item in (7, 8, 9)
    )
    (folder / "a.csv").write_text(rows)
    (folder / "b.tsv").write_text(rows.replace(",", "\t"))
    (folder / "c.csv").write_text('1,"2",3.5\r\n4,5,6\r\n')
    (folder / "d.csv.gz").write_bytes(gzip.compress(rows.encode()))
    (folder / "e.txt").write_text("3 9 4 9\n1 4\n2 9 4000000000000000000\n")


def _read_tables(folder: Path) -> None:
    for path in folder.iterdir():
        interactions = keras_bft.data.read_interactions(path)
        interactions.k_core(1)
        interactions.sequences()


def _write_interactions(folder: Path) -> None:
    _write_tables(folder)
    keras_bft.data.read_interactions(folder / "a.csv").save(folder)
    for name in ("a.csv", "b.tsv", "c.csv", "d.csv.gz", "e.txt"):
        (folder / name).unlink()


def _read_interactions(folder: Path) -> None:
    interactions = keras_bft.data.Interactions.load(folder)
    interactions.sequences()
    interactions.encode([interactions.item_ids.tolist()])


def _write_questions(folder: Path) -> None:
    question = {"question": "Who?", "answers": ["é"], "id": 3}
    lines = [
        question | {"context": "By é.", "title": "T"},
        {"question": "Who?", "answer": "b", "passage": "a b"},
        question | {"ctxs": [{"title": "", "text": "x é", "has_answer": True}]},
        question | {"context": "é", "answers": {"text": ["é"]}},
    ]
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    for number, line in enumerate(lines):
        (folder / f"{number}.json").write_text(json.dumps(line))
    entry = {"question": "Who?", "id": "q", "answers": [{"text": "b"}]}
    paragraphs = [{"context": "a b", "qas": [entry]}]
    squad = {"data": [{"title": "t", "paragraphs": paragraphs}]}
    (folder / "squad.json").write_text(json.dumps(squad))


def _read_questions(folder: Path) -> None:
    for path in folder.iterdir():
        for question in keras_bft.data.read_questions(path):
            keras_bft.data.format_prompt(question).encode()


def _write_config(folder: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    config = {
        "model_type": "llama",
        "vocab_size": 30,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_size": 16,
        "intermediate_size": 32,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": scaling,
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config))


def _read_checkpoint(folder: Path) -> None:
    checkpoint = CheckpointFolder(folder)
    for name in checkpoint.names:
        checkpoint.read(name)


def _read_tokenizer(folder: Path) -> None:
    tokenizer = BFTLlamaTokenizer.from_folder(folder)
    tokenizer.detokenize(tokenizer("Ab 1é\n"))
    if tokenizer.chat_template:
        tokenizer.render_chat([{"role": "user", "content": "Hi"}])


def _write_template(folder: Path) -> None:
    (folder / "a.jinja").write_text(tokenizer_folders.CHATML)
    (folder / "b.jinja").write_text(tokenizer_folders.ZEPHYR)
    (folder / "c.jinja").write_text(
        "{% macro f(n) %}{{ n ~ 'x' * n }}{% endmacro %}"
        "{% for i in range(9) %}{{ f(i) | replace('x', 'yy') | indent(2) }}"
        "{{ '%5d' % i }}{{ '{:>9}'.format(i).center(20) }}{% endfor %}"
    )


def _read_template(folder: Path) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    for path in folder.iterdir():
        template = path.read_text("utf-8", "replace")
        render_chat(template, messages, {"eos_token": "</s>"})


def _write_llama_json(folder: Path) -> None:
    pieces = tokenizer_folders.write_sentencepiece(folder / "pieces")
    BFTLlamaTokenizer.from_folder(pieces).save_assets(str(folder))
    for path in pieces.iterdir():
        path.replace(folder / path.name)
    pieces.rmdir()
    (folder / "tokenizer.model").unlink()
    (folder / "config.json").write_text('{"eos_token_id": [2, 0]}')


def _in_place(write: Callable[[Path], Any]) -> Callable[[Path], None]:
    def write_into(folder: Path) -> None:
        for path in write(folder / "x").iterdir():
            path.replace(folder / path.name)
        (folder / "x").rmdir()

    return write_into


def _write_training(folder: Path) -> None:
    state = {
        "history": [{"epoch": 1, "loss": 0.5, "seconds": 1.0}],
        "stopped": False,
        "stopping": None,
    }
    arrays = {"variable_0": np.ones((2, 3), "float32")}
    np.savez(folder / "state.npz", state=json.dumps(state), **arrays)
    keras_bft.training.write_history(state["history"], folder / "history.csv")
    keras_bft.training.claim_folder(folder, {"loss": "full"})


def _read_training(folder: Path) -> None:
    keras_bft.training.read_history(folder / "history.csv")
    keras_bft.training.claim_folder(folder, {"loss": "full"})
    keras_bft.training.ResumableTraining(folder / "state.npz")


def _write_user_state(folder: Path) -> None:
    model = keras_bft.models.SASRec(num_items=20, max_length=8)
    model.start([[3, 5, 7], [2]]).save(folder / "state.npz")


def _read_user_state(folder: Path) -> None:
    state = keras_bft.models.UserState.load(folder / "state.npz")
    keras_bft.models.UserState.concatenate([state, state[0]])


def _write_ranking(folder: Path) -> None:
    with open(folder / "ranking.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ("user", "target", "history_length", "rank", "filter_seen")
            + ("num_items",)
        )
        writer.writerows([("a", 3, 5, 1.0, 1, 9), ("b", 4, 2, "inf", 1, 9)])


def _read_ranking(folder: Path) -> None:
    keras_bft.evaluation.Ranking.from_csv(folder / "ranking.csv").ndcg(10)


READERS = {
    "tables": Reader(_write_tables, _read_tables, alone=True),
    "interactions": Reader(_write_interactions, _read_interactions),
    "questions": Reader(_write_questions, _read_questions, alone=True),
    "config": Reader(_write_config, read_llama_config),
    "chat-template": Reader(_write_template, _read_template, alone=True),
    "checkpoint": Reader(make_shards, _read_checkpoint),
    "tokenizer-json": Reader(
        _in_place(tokenizer_folders.write_byte_level), _read_tokenizer
    ),
    "tokenizer-llama": Reader(_write_llama_json, _read_tokenizer),
    "tokenizer-model": Reader(
        _in_place(tokenizer_folders.write_sentencepiece), _read_tokenizer
    ),
    "training": Reader(_write_training, _read_training),
    "user-state": Reader(_write_user_state, _read_user_state),
    "ranking": Reader(_write_ranking, _read_ranking),
}
