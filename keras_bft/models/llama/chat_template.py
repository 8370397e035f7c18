"""Chats written out as text by a checkpoint's Jinja template."""

import datetime
import json
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import SecurityError

from keras_bft.models.llama._template_sandbox import MAX_CHARACTERS
from keras_bft.models.llama._template_sandbox import MAX_STEPS
from keras_bft.models.llama._template_sandbox import BoundedSandbox

# Ten times the longest in use; to compile one takes a microsecond a character.
MAX_TEMPLATE = 200_000


class _Generation(Extension):
    """Reads `{% generation %}`, with which templates mark answers."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(
            ("name:endgeneration",), drop_needle=True
        )
        return nodes.Scope(body).set_lineno(line)


def render_chat(
    template: str | None,
    messages: Sequence[Mapping[str, Any]],
    special_tokens: Mapping[str, str] | None = None,
    add_generation_prompt: bool = False,
) -> str:
    r"""Writes a chat with a template, as `apply_chat_template` does.

    A template comes with a checkpoint, so it runs in Jinja's sandbox: it
    can't reach Python's internals or change the messages. It may take 1,000,000
    steps (turns of loops; calls and filters count five), no range may be
    longer, and its text and every value on the way may have 10,000,000
    characters; the template itself 200,000. These bounds stop templates that
    run away, not every way to waste time.

    Args:
        template: The Jinja template. It is given `messages`,
            `add_generation_prompt`, the special tokens, `raise_exception`
            and `strftime_now`, and `tools` and `documents` as `None`.
        messages: Dictionaries with a `"role"` and a `"content"`, both texts.
            The content may be a list of dictionaries, if the template reads
            such. Other keys are passed on.
        special_tokens: Names and texts of special tokens, such as
            `{"eos_token": "</s>"}`. Defaults to `None`.
        add_generation_prompt: Whether to end with the beginning of an answer,
            if the template can. Defaults to `False`.

    Returns:
        The text.

    Raises:
        ValueError: If there is no template, it does not render, or a message
            is malformed.

    Examples:

    >>> template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n"
    >>> template += "{% endfor %}{% if add_generation_prompt %}AI:{% endif %}"
    >>> render_chat(
    ...     template, [{"role": "me", "content": "Hi"}], None, True
    ... )
    'me: Hi\nAI:'
    """
    if not isinstance(template, str) or not template:
        raise ValueError(
            "There is no chat template. Pass one as `chat_template`, or write "
            f"the text yourself. Received: template={template!r}"
        )
    if len(template) > MAX_TEMPLATE:
        raise ValueError(
            f"A chat template must have at most {MAX_TEMPLATE} characters. "
            f"Received: {len(template)} characters, {template!r:.200}"
        )
    _check_messages(messages)
    variables = {
        **(special_tokens or {}),
        "messages": [dict(message) for message in messages],
        "add_generation_prompt": add_generation_prompt,
        "tools": None,
        "documents": None,
    }
    parts: list[str] = []
    length = 0
    try:
        for part in _environment().from_string(template).generate(variables):
            length += len(part)
            if length > MAX_CHARACTERS:
                raise SecurityError(f"it has over {MAX_CHARACTERS} characters")
            parts.append(part)
    except Exception as error:  # A template can raise whatever Python can.
        raise ValueError(
            "The chat template can't write these messages "
            f"({type(error).__name__}: {error!s:.300}). Received: "
            f"template={template!r:.200}, messages={messages!r:.200}"
        ) from error
    return "".join(parts)


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, list | tuple) or not messages:
        raise ValueError(
            "`messages` must be a list of dictionaries with a role and a "
            f"content. Received: messages={messages!r:.200}"
        )
    for index, message in enumerate(messages):
        role = message.get("role") if isinstance(message, Mapping) else None
        content = message.get("content") if role is not None else None
        if not isinstance(role, str) or not (
            isinstance(content, str)
            or isinstance(content, list)
            and all(isinstance(part, Mapping) for part in content)
        ):
            raise ValueError(
                'Every message must be a dictionary with the texts "role" and '
                f'"content". Received: messages[{index}]={message!r:.200}'
            )


def _environment() -> BoundedSandbox:
    environment = BoundedSandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, "jinja2.ext.loopcontrols"],
    )
    environment.filters["tojson"] = environment.bounded("tojson", _tojson)
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    environment.globals["range"] = _bounded_range()
    return environment


def _bounded_range() -> Callable[..., range]:
    left = MAX_STEPS

    def bounded(*args: int) -> range:
        nonlocal left
        numbers = range(*args)
        left -= len(numbers)
        if left < 0:
            raise SecurityError(f"its ranges have over {MAX_STEPS} numbers")
        return numbers

    return bounded


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.datetime.now().strftime(format)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    for name, space in (("indent", indent), ("separators", separators)):
        if len(json.dumps(space)) > 20 or isinstance(space, int) and space > 20:
            raise SecurityError(f"`{name}` is too wide")
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
