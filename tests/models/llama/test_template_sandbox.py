"""Chat templates that would take all memory or all time."""

import pytest

from keras_bft.models.llama.chat_template import render_chat

pytestmark = pytest.mark.any_backend

CHAT = [{"role": "user", "content": "Hi"}]
GROW = (
    "{{% set ns = namespace(x={start}) %}}{{% for i in range(60) %}}"
    "{{% set ns.x = {step} %}}{{% endfor %}}{{{{ ns.x }}}}"
)


@pytest.mark.parametrize(
    ("start", "step", "message"),
    [
        ("'xx'", "ns.x ~ ns.x", "characters"),
        ("'xx'", "ns.x + ns.x", "characters"),
        ("[1, 2]", "ns.x + ns.x", "steps|characters"),
        ("[1, 2]", "[ns.x, ns.x]", "characters"),
        ("(1, 2)", "(ns.x, ns.x)", "characters"),
        ("{'a': 1}", "{'a': ns.x, 'b': ns.x}", "characters"),
        ("'xx'", "ns.x.replace('x', 'xx')", "characters"),
        ("'xx'", "ns.x | replace('x', 'xx')", "characters"),
        ("'xx'", "ns.x.join('xxx')", "characters"),
        ("99", "ns.x * ns.x", "number"),
    ],
)
def test_doubling(start, step, message):
    with pytest.raises(ValueError, match=f"SecurityError: .*{message}"):
        render_chat(GROW.format(start=start, step=step), CHAT)


@pytest.mark.parametrize(
    "expression",
    [
        "'%999999999d' % 1",
        "'%*d' % (999999999, 1)",
        "'%999999999d' | format(1)",
        "'{:>999999999}'.format(1)",
        "'{:{}}'.format(1, '>999999999')",
        "'x'.ljust(999999999)",
        "'x'.zfill(999999999)",
        "'x' | center(999999999)",
        "'a\nb' | indent(999999999)",
        "('\t' * 9999).expandtabs(9999)",
        "('x' * 9999).replace('x', 'y' * 9999)",
        "('x' * 9999) | join('y' * 9999)",
        "[1] | batch(999999999, 2) | list",
        "[1] | tojson(indent=999999999)",
        "[1] | tojson(separators=('x' * 99, 'y'))",
        "lipsum(n=999999999)",
    ],
)
def test_short_expressions_of_long_values(expression):
    with pytest.raises(ValueError, match="SecurityError|UndefinedError"):
        render_chat(f"{{{{ {expression} }}}}", CHAT)


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in 'x' * 9999 %}{% for b in 'x' * 9999 %}"
        "{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
        "{% endmacro %}{{ f(60) }}",
        "{% for a in 'xy' recursive %}{{ loop('x' * 999999) }}{% endfor %}",
        "{{ range(999999) | map('string') | list | length }}",
    ],
)
def test_long_ways(template):
    with pytest.raises(ValueError, match="1000000 steps|in all|Recursion"):
        render_chat(template, CHAT)


def test_templates_that_are_long_themselves():
    with pytest.raises(ValueError, match="at most 200000 characters"):
        render_chat("{{ 1 }}" * 30_000, CHAT)
    with pytest.raises(ValueError, match="TemplateSyntaxError") as raised:
        render_chat("{% " + "x" * 100_000 + " %}", CHAT)
    assert len(str(raised.value)) < 1000


def test_what_templates_do_is_as_in_jinja():
    template = (
        "{% set ns = namespace(n=1, seen=[]) %}"
        "{% for key, value in {'a': 1, 'b': [2, 3]}.items() %}"
        "{{ loop.index }}/{{ loop.length }}{{ key ~ value ~ none }}"
        "{{ ' ' if not loop.last }}{% set ns.n = ns.n + loop.index %}"
        "{% endfor %}|{{ ns.n }}|{% set a, b = (3, 4) %}{{ a * 'x' ~ b }}|"
        "{{ ['u', 'v'] | join('-') }}|{{ 'a\nb' | indent(2) }}|"
        "{{ '%05.1f' % 2.25 }}|{{ '{:>4}{}'.format(7, 'é') }}|"
        "{{ 'role' in messages[0] }}|"
        "{{ messages | map(attribute='role') | list }}|"
        "{{ 'aXbX'.replace('X', '--') }}|{{ 'x'.center(5) }}|{{ 2 ** 10 }}|"
        "{% for x in [[1, [2]], [3]] recursive %}"
        "{% if x is iterable %}<{{ loop(x) }}>{% else %}{{ x }}{% endif %}"
        "{% endfor %}|{{ [1, 2] + [3] }}{{ 'a' + 'b' }}"
    )
    assert render_chat(template, CHAT) == (
        "1/2a1None 2/2b[2, 3]None|4|xxx4|u-v|a\n  b|002.2|   7é|True|['user']|"
        "a--b--|  x  |1024|<1<2>><3>|[1, 2, 3]ab"
    )
