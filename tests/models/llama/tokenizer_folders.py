"""Small tokenizers in folders as checkpoints have them, and texts for them."""

import io
import json
import random
from pathlib import Path

import sentencepiece
import tokenizers

ZEPHYR = (
    "{% for message in messages %}\n{% if message['role'] == 'user' %}\n"
    "{{ '<|user|>\n' + message['content'] + eos_token }}\n"
    "{% elif message['role'] == 'system' %}\n"
    "{{ '<|system|>\n' + message['content'] + eos_token }}\n"
    "{% elif message['role'] == 'assistant' %}\n"
    "{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n"
    "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n"
    "{% endif %}\n{% endfor %}"
)
CHATML = (
    "{% for message in messages %}{% if loop.first and "
    "messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a "
    "helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' "
    "}}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_ATOMS = [
    *("the model reads a text and says what follows from it".split()),
    *("日本語 한국어 العربية עברית हिन्दी ไทย Ελληνικά русский".split()),
    *("ａｂｃ ﬁ é e\u0301 ǅ ß İ \u200f \u202e \ufeff \u00a0 \u3000".split(" ")),
    *("👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪 \U0001f9ec \U0010ffff \ue000 \ufffd".split(" ")),
    *("def f(x): return x**2 ; // <0x0A> ▁ ▁▁ Ġ 12345 3.14 1,000".split(" ")),
    *(
        " |  |   |       |\t|\t\t|\n|\n\n|\r\n|\x00|\x07|\x1b|\x7f|\x85".split(
            "|"
        )
    ),
    *("</s> <s> <unk> <|im_start|> <|im_end|> <|endoftext|> <sep>".split()),
    *("a the ing . , ! ? ' \" 's n't - _ @ # $ % & ( ) [ ] { }".split()),
]


def make_texts(count: int = 1000) -> list[str]:
    """Returns texts of many kinds, the same every time."""
    generator = random.Random(0)
    texts = ["", " ", "  ", "\n", "</s>", " a", "a ", "</s></s>", "<s> a"]
    while len(texts) < count:
        separator = generator.choice(["", " ", " ", "  "])
        atoms = generator.choices(_ATOMS, k=generator.randint(1, 12))
        text = separator.join(atoms)
        if len(texts) % 4 == 0:
            text = "".join(generator.choices(text + "xyz", k=len(text)))
        if len(texts) % 5 == 0:
            text += chr(generator.randint(0xE000, 0x2FFFF))
        texts.append(generator.choice(["", " ", "   "]) + text)
    return texts


def write_byte_level(folder: Path, **config: object) -> Path:
    """Writes a byte-level BPE that splits digits, as that of SmolLM2."""
    pre_tokenizers = tokenizers.pre_tokenizers
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(make_texts(300), trainer)
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "chat_template": CHATML,
        **config,
    }
    write_json(folder / "tokenizer_config.json", settings)
    return folder


def write_sentencepiece(
    folder: Path, symbols: tuple[str, ...] = (), **config: object
) -> Path:
    """Writes a SentencePiece BPE with byte fallback, as TinyLlama's."""
    folder.mkdir(parents=True)
    (folder / "tokenizer.model").write_bytes(train_sentencepiece(symbols))
    settings = {
        "tokenizer_class": "LlamaTokenizer",
        "add_bos_token": True,
        "add_eos_token": False,
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "pad_token": "</s>",
        "legacy": False,
        "chat_template": ZEPHYR,
        **config,
    }
    write_json(folder / "tokenizer_config.json", settings)
    return folder


def train_sentencepiece(symbols: tuple[str, ...] = (), **options) -> bytes:
    writer = io.BytesIO()
    settings = {
        "vocab_size": 500,
        "model_type": "bpe",
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "hard_vocab_limit": False,
        "character_coverage": 0.98,
        "user_defined_symbols": list(symbols),
        "minloglevel": 2,
        **options,
    }
    lines = [text.replace("\x00", "") for text in make_texts(300)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=writer, **settings
    )
    return writer.getvalue()


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
