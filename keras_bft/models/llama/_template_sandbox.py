"""The sandbox of chat templates, with bounds on steps and sizes."""

import functools
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

from jinja2 import nodes
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.sandbox import SecurityError
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MAX_CHARACTERS = 10_000_000
MAX_STEPS = 1_000_000

# What all operations of a template may make together.
_MAX_TOTAL = 10 * MAX_CHARACTERS
# A call takes as long as so many turns of a loop.
_CALL_STEPS = 5

# A width of ten million or more, or one that an argument tells.
_WIDE_PERCENT = re.compile(r"%[^a-zA-Z%]*(\*|\d{8})")
_WIDE_BRACES = re.compile(r"\{[^{}]*(\{|\d{8})")


class _Bounds(NodeTransformer):
    """Makes loops and `~` pass through filters that can refuse them."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = _filter(node.iter, "_counted")
        return node

    def visit_List(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        # `for key, value in` has a tuple too, which is no value.
        is_target = getattr(node, "ctx", "load") != "load"
        return node if is_target else _filter(node, "_weighed")

    visit_Tuple = visit_Dict = visit_List

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter(nodes.List(node.nodes, lineno=node.lineno), "_joined")


def _filter(node: Any, name: str) -> nodes.Filter:
    new = nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
    new.environment = node.environment
    return new


class BoundedSandbox(ImmutableSandboxedEnvironment):
    """A sandbox for one text, in which a template can't run away.

    Every turn of a loop is a step, every call and filter is five, and there
    are at most `MAX_STEPS`. No operation may make more than `MAX_CHARACTERS`
    characters or elements, and all together not more than ten times that.
    """

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._steps = self._made = 0
        # By their id. They are held, so that no other gets the id.
        self._weights: dict[int, tuple[Any, int]] = {}
        # Makes text of any length in one step.
        del self.globals["lipsum"]
        for name, function in list(self.filters.items()):
            self.filters[name] = self.bounded(name, function)
        self.filters["_counted"] = self.count_each
        self.filters["_joined"] = self._joined
        self.filters["_weighed"] = self._checked
        self.globals["namespace"] = _Namespace

    def count(self, steps: int = 1) -> None:
        """Counts steps, and refuses to go on after too many."""
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise SecurityError(f"it takes over {MAX_STEPS} steps")

    def count_each(self, values: Iterable[Any]) -> Iterator[Any]:
        """Passes values on and counts them."""
        for value in values:
            self.count()
            yield value

    def _parse(self, source: str, name: Any, filename: Any) -> nodes.Template:
        tree: nodes.Template = _Bounds().visit(
            super()._parse(source, name, filename)
        )
        return tree

    def _joined(self, values: list[Any]) -> str:
        texts = [str(value) for value in values]
        _check_size(sum(map(len, texts)))
        joined: str = self._checked("".join(texts))
        return joined

    def _weight(self, value: Any) -> int:
        """Length of a value as text, roughly.

        A list of a list twice, and so on, is long as text and not in memory.
        """
        if not isinstance(value, list | tuple | dict):
            return len(value) if hasattr(value, "__len__") else 1
        known = self._weights.get(id(value))
        if known is None:
            self.count(len(value))
            parts = value.items() if isinstance(value, dict) else value
            known = value, 1 + sum(map(self._weight, parts))
            self._weights[id(value)] = known
        return known[1]

    def _checked(self, value: Any) -> Any:
        if isinstance(value, int) and value.bit_length() > 10_000:
            raise SecurityError("a number is too large")
        size = self._weight(value)
        _check_size(size)
        self._made += size
        if self._made > _MAX_TOTAL:
            raise SecurityError(f"it makes over {_MAX_TOTAL} characters in all")
        return value

    def bounded(
        self, name: str, function: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Makes a filter one that counts steps and sizes."""
        skipped = hasattr(function, "jinja_pass_arg")

        @functools.wraps(function)
        def bounded(*args: Any, **kwargs: Any) -> Any:
            self.count(_CALL_STEPS)
            value, *rest = args[skipped:] or (None,)
            _check_growth(name, value, [*rest, *kwargs.values()])
            return self._checked(function(*args, **kwargs))

        return bounded

    def call(self, context: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        self.count(_CALL_STEPS)
        method = getattr(obj, "__wrapped__", obj)
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            arguments = [*args, *kwargs.values()]
            _check_growth(method.__name__, owner, arguments)
        if isinstance(obj, LoopContext) and args:
            args = (self.count_each(args[0]), *args[1:])
        return self._checked(super().call(context, obj, *args, **kwargs))

    def call_binop(
        self, context: Any, operator: str, left: Any, right: Any
    ) -> Any:
        sizes = [
            len(side) if hasattr(side, "__len__") else abs(side)
            for side in (left, right)
            if hasattr(side, "__len__") or isinstance(side, int | float)
        ]
        is_repeat = hasattr(left, "__len__") or hasattr(right, "__len__")
        product = sizes[0] * sizes[1] if len(sizes) == 2 else 0
        if operator == "*" and is_repeat and product > MAX_CHARACTERS:
            raise SecurityError("a repetition is too long")
        if operator == "**" and len(sizes) == 2 and sizes[1] > 64:
            raise SecurityError("an exponent is too large")
        if operator == "+" and is_repeat:
            _check_size(sum(sizes))
        if operator == "%" and isinstance(left, str):
            _check_growth("format", left, [])
        return self._checked(super().call_binop(context, operator, left, right))


class _Namespace(Namespace):
    """A namespace that is not written out with all that is in it."""

    def __repr__(self) -> str:
        return "<Namespace>"


def _check_growth(name: str, value: Any, arguments: list[Any]) -> None:
    """Refuses to begin what would make too long a text or list."""
    numbers = [abs(x) for x in arguments if isinstance(x, int)]
    sizes = [len(x) for x in arguments if hasattr(x, "__len__")]
    size = len(value) if hasattr(value, "__len__") else 0
    growth = max(numbers, default=0)
    if name == "replace" and len(sizes) > 1:
        growth = str(value).count(str(arguments[0])) * sizes[1]
    elif name == "join":
        growth = size * sum(sizes)
    elif name in ("expandtabs", "indent"):
        growth = size * max((8, *numbers, *sizes))
    elif name in ("format", "format_map") and isinstance(value, str):
        if _WIDE_PERCENT.search(value) or _WIDE_BRACES.search(value):
            raise SecurityError("a format is too wide")
    _check_size(growth)


def _check_size(size: float) -> None:
    if size > MAX_CHARACTERS:
        raise SecurityError(f"it makes over {MAX_CHARACTERS} characters")
