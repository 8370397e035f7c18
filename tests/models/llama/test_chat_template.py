import datetime
import json

import pytest

from keras_bft.models.llama.chat_template import MAX_CHARACTERS
from keras_bft.models.llama.chat_template import MAX_STEPS
from keras_bft.models.llama.chat_template import render_chat
from keras_bft.models.llama.tokenizer import BFTLlamaTokenizer
from tests.models.llama.tokenizer_folders import CHATML
from tests.models.llama.tokenizer_folders import ZEPHYR
from tests.models.llama.tokenizer_folders import write_byte_level
from tests.models.llama.tokenizer_folders import write_json
from tests.models.llama.tokenizer_folders import write_sentencepiece

pytestmark = pytest.mark.any_backend

USER = {"role": "user", "content": " Wie <b>geht's</b>?\n </s> 日本 "}
CHATS = [
    [USER],
    [{"role": "system", "content": "Be brief."}, USER],
    [USER, {"role": "assistant", "content": "Fine."}, USER],
]
FEATURES = (
    "{%- set ns = namespace(n=0) -%}\n"
    "{% for m in messages %}\n"
    "    {% if m.role == 'system' %}{% continue %}{% endif %}\n"
    "    {% set ns.n = ns.n + 1 %}\n"
    "{{ m | tojson }} {{ dict(a=1) | tojson(indent=2) }}{{ bos_token }}\n"
    "    {% generation %}{{ m.content | trim }}{% endgeneration %}\n"
    "    {% if ns.n > 1 %}{% break %}{% endif %}\n"
    "{% endfor %}\n"
    "{% for i in range(3) %}{{ i * 'x' }}{{ 2 ** i }}{% endfor %}"
    "{{ tools is none }}{{ ns.n }}{{ strftime_now('%Y') }}{{ nothing }}"
)


@pytest.mark.parametrize("add_generation_prompt", [False, True])
@pytest.mark.parametrize("messages", CHATS)
@pytest.mark.parametrize("template", [ZEPHYR, CHATML, FEATURES])
@pytest.mark.parametrize("write", [write_byte_level, write_sentencepiece])
def test_text_is_that_of_transformers(
    tmp_path, write, template, messages, add_generation_prompt
):
    transformers = pytest.importorskip("transformers")
    folder = write(tmp_path / "x", chat_template=template)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    expected = theirs.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=add_generation_prompt
    )
    ours = BFTLlamaTokenizer.from_folder(folder)
    assert ours.render_chat(messages, add_generation_prompt) == expected
    assert ours.render_chat(
        messages, not add_generation_prompt
    ) != expected or (template == FEATURES)
    ids = theirs(expected, add_special_tokens=False)["input_ids"]
    assert ours(expected) == ids


def test_text_written_out_by_hand():
    chat = [{"role": "user", "content": "Hi"}]
    text = render_chat(ZEPHYR, chat, {"eos_token": "</s>"}, True)
    assert text == "<|user|>\nHi</s>\n<|assistant|>\n"
    text = render_chat(
        CHATML,
        [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "<&>"},
        ],
        add_generation_prompt=True,
    )
    assert text == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n<&><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_helpers_of_a_template():
    chat = [{"role": "user", "content": "é<&>'"}]
    template = "{{ messages[0] | tojson }}|{{ strftime_now('%Y') }}"
    text, year = render_chat(template, chat).split("|")
    assert text == json.dumps(chat[0], ensure_ascii=False)
    assert int(year) == datetime.datetime.now().year


def test_template_in_a_file_comes_first(tmp_path):
    folder = write_byte_level(tmp_path / "x")
    template = "{{ eos_token }}|ß"
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    tokenizer = BFTLlamaTokenizer.from_folder(folder)
    assert tokenizer.render_chat([USER]) == "<|im_end|>|ß"
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"chat_template\.jinja"):
        BFTLlamaTokenizer.from_folder(folder)


def test_default_of_several_templates(tmp_path):
    templates = [
        {"name": "tool_use", "template": "t"},
        {"name": "default", "template": "d"},
    ]
    folder = write_byte_level(tmp_path / "x", chat_template=templates)
    assert BFTLlamaTokenizer.from_folder(folder).render_chat([USER]) == "d"


def test_no_template(tmp_path):
    folder = write_byte_level(tmp_path / "x", chat_template=None)
    tokenizer = BFTLlamaTokenizer.from_folder(folder)
    with pytest.raises(ValueError, match="no chat template"):
        tokenizer.render_chat([USER])
    with pytest.raises(ValueError, match="no chat template"):
        render_chat("", [USER])


@pytest.mark.parametrize(
    "messages",
    [
        [],
        None,
        "Hi",
        USER,
        ["Hi"],
        [{"role": "user"}],
        [{"content": "Hi"}],
        [{"role": 1, "content": "Hi"}],
        [USER, {"role": "user", "content": None}],
        [{"role": "user", "content": ["Hi"]}],
    ],
)
def test_messages_that_are_none(messages):
    with pytest.raises(ValueError, match="essage.* must be"):
        render_chat(ZEPHYR, messages)


def test_content_of_several_parts():
    chat = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    assert render_chat("{{ messages[0].content[0].text }}", chat) == "Hi"


@pytest.mark.parametrize(
    "template, message",
    [
        ("{{ raise_exception('roles must alternate') }}", "must alternate"),
        ("{% for m in messages %}", "TemplateSyntaxError"),
        ("{{ messages.__class__.__mro__ }}", "SecurityError"),
        ("{{ ''.__class__.__base__.__subclasses__() }}", "SecurityError"),
        ("{{ raise_exception.__globals__['json'] }}", "SecurityError"),
        ("{{ '{0.__class__.__mro__}'.format(messages) }}", "SecurityError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{{ messages[0].update(role='x') }}", "SecurityError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ none + 1 }}", "TypeError"),
        ("{{ nothing.more }}", "UndefinedError"),
        ("{{ strftime_now(3) }}", "TypeError"),
        ("{% include 'x' %}", "TypeError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ 'x' * 100000000000 }}", "repetition"),
        ("{{ 100000000000 * ['x'] }}", "repetition"),
        ("{{ 10 ** 10000000000 }}", "exponent"),
        ("{% for i in range(10000000000) %}{% endfor %}", "ranges"),
        (
            "{% for i in range(100000) %}{% for j in range(100000) %}"
            "{% endfor %}{% endfor %}",
            "ranges",
        ),
        (
            "{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}",
            "characters",
        ),
    ],
)
def test_templates_that_fail_or_run_away(template, message):
    chat = [dict(USER)]
    with pytest.raises(ValueError, match=message) as error:
        render_chat(template, chat)
    assert "chat template can't write" in str(error.value)
    assert chat == [USER]


def test_bounds_are_for_each_chat():
    template = f"{{% for i in range({MAX_STEPS - 5}) %}}{{% endfor %}}."
    assert render_chat(template, [USER]) == "."
    assert render_chat(template, [USER]) == "."
    template = f"{{{{ 'x' * {MAX_CHARACTERS} }}}}"
    assert len(render_chat(template, [USER])) == MAX_CHARACTERS


def test_chat_template_of_the_wrong_type(tmp_path):
    folder = write_byte_level(tmp_path / "x")
    config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    write_json(folder / "tokenizer_config.json", {**config, "chat_template": 1})
    with pytest.raises(ValueError, match="chat_template=1"):
        BFTLlamaTokenizer.from_folder(folder)
