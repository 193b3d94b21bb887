"""Where chat templates run: what transformers gives them, in the same sandbox, and a bound on memory.

The output is the same as transformers' for the same template and messages; tests compare the two.
"""

import datetime
import json
import re
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment

MAX_ADDED_CHARACTERS = 1 << 20  # beyond twice what the client sent
RENDER_BYTES = 256 << 20  # that a template may take besides what the process has; a large chat takes a tenth
STATM = Path("/proc/self/statm")


class _Sandbox(ImmutableSandboxedEnvironment):
    """Multiplication and powers are bounded too: `'x' * 10**10` would be one instruction."""

    intercepted_binops = frozenset(("*", "**"))

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: object, right: object) -> object:
        for value, other in ((left, right), (right, left)):
            if isinstance(value, str | list | tuple) and isinstance(other, int):
                if len(value) * other > MAX_ADDED_CHARACTERS:
                    raise jinja2.exceptions.SecurityError("the template multiplies a sequence beyond its bound")
        if operator == "**" and isinstance(right, int | float) and abs(right) > 64:
            raise jinja2.exceptions.SecurityError("the template raises to a power beyond its bound")
        result: object = SandboxedEnvironment.call_binop(self, context, operator, left, right)
        return result


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks what a model wrote, for training. Like a macro's body, it has names of its own."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's own declaration)

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Callable[[], str]) -> str:
        return caller()


class _Dict:
    """`dict` without its attributes."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:  # Any: whatever a template gives
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(jinja2.utils.Namespace):
    """Without names that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # so that `self` may be a name too
        self, *given = args
        attributes = dict(*given, **kwargs)
        for name in attributes:
            _check_name(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace may not hold the name {name[:64]!r}")


def environment() -> ImmutableSandboxedEnvironment:
    made = _Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols], autoescape=False
    )
    made.filters["tojson"] = _tojson
    made.globals["raise_exception"] = _raise
    made.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    made.globals["dict"] = _Dict()
    made.globals["namespace"] = _Namespace
    return made


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Without the HTML escapes of jinja2's own."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise jinja2.exceptions.TemplateError(message)


@contextmanager
def bounded_memory(size: int = RENDER_BYTES) -> Iterator[None]:
    """Inside, the process may take `size` bytes more than it has; then MemoryError. Where it cannot tell: no bound."""
    has = _data_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if has is None or (soft != resource.RLIM_INFINITY and soft <= has + size):
        yield
        return
    if hard != resource.RLIM_INFINITY and hard <= has + size:
        yield
        return
    resource.setrlimit(resource.RLIMIT_DATA, (has + size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data_bytes() -> int | None:
    """What RLIMIT_DATA counts, as Linux tells it."""
    try:
        fields = re.findall(r"\d+", STATM.read_text())
    except OSError:
        return None
    return int(fields[5]) * resource.getpagesize()
