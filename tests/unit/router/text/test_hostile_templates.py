"""A model's template is untrusted code: what it may reach, and how much it may take, is bounded."""

import resource
import subprocess
import sys
from typing import Any

import pytest

from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.messages import Message
from octavo.router.openai_api.openai import parse
from octavo.router.text.sandbox import RENDER_BYTES
from octavo.router.text.templates import ChatTemplate

HELLO = (Message("user", "hello"),)
REACHES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ''['__class__']['__mro__'] }}",
    "{{ '' | attr('__class__') | attr('__mro__') }}",
    "{{ messages.__class__.__init__.__globals__ }}",
    "{{ raise_exception.__globals__['jinja2'] }}",
    "{{ strftime_now.__globals__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__.os.system('true') }}",
    "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "{{ self._TemplateReference__context.environment.loader.x }}",
    "{{ dict.__base__.__subclasses__() }}",
    "{{ '{0.__class__.__mro__}'.format('') }}",
    "{{ '{x.__globals__}'.format_map({'x': lipsum}) }}",
    "{{ messages | map(attribute='__class__.__mro__') | list | first | first }}",
    "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "{{ namespace(__init__=1) }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update({'role': 'x'}) }}",
    "{{ messages[0].pop('role') }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{% extends 'x' %}",
    "{{ (messages | attr('append')).__self__ }}",
]
SWELLS = [
    "{{ 'x' * 10000000000 }}",
    "{{ [0] * 10000000000 }}",
    "{{ 2 ** 100000000 }}",
    "{{ 'x'.ljust(10000000000) }}",
    "{{ 'x' | center(10000000000) }}",
    "{{ '%10000000000d' % 1 }}",
    "{{ '{:>10000000000}'.format(1) }}",
    "{{ 'x'.zfill(10000000000) }}",
    "{{ range(1000000000) | list }}",
    "{{ messages | tojson(indent=10000000000) }}",
    "{{ 'x' | indent(10000000000, true) }}",
    "{% set ns = namespace(s='xxxxxxxx') %}{% for _ in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "{% set ns = namespace(l=[0]) %}{% for _ in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
    "{% set ns = namespace(s='x') %}{% for _ in range(60) %}{% set ns.s = ns.s.replace('x', 'xxxxxxxx') %}{% endfor %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{% for _ in range(99999) %}{{ 'x' * 9999 }}{% endfor %}{% endmacro %}{{ m() | length }}",
    "{% generation %}{% for _ in range(99999) %}{{ 'x' * 9999 }}{% endfor %}{% endgeneration %}",
    "{% for a in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
]


@pytest.mark.parametrize("source", REACHES)
def test_a_template_that_reaches_for_python_gets_nothing(source: str) -> None:
    """It fails, or what it sees is undefined and renders as nothing."""
    try:
        text = ChatTemplate(source, {}, []).render(HELLO).text
    except RequestError as error:
        assert (error.status, error.code) == (400, "chat_template_failed")
    except Exception as error:  # refused when compiled: ModelTokenizer makes it a 400
        assert type(error).__module__.startswith("jinja2")
    else:
        assert text.strip() in ("", "{x.__globals__}"), text


def peak_of(sources: list[str]) -> tuple[list[str], int]:
    """How each ended in one process of its own, and the KiB that it held at most beyond its start."""
    script = (
        "import resource, sys\n"
        "from octavo.router.jobs.generation import RequestError\n"
        "from octavo.router.openai_api.messages import Message\n"
        "from octavo.router.text.templates import ChatTemplate\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak()\n"
        "for source in sys.argv[1:]:\n"
        "    try:\n"
        "        ChatTemplate(source, {}, []).render((Message('user', 'hello'),))\n"
        "        print('rendered')\n"
        "    except (RequestError, MemoryError) as error:\n"
        "        print('bounded')\n"
        "print(peak() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, *sources], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    *ends, grown = done.stdout.splitlines()
    return ends, int(grown)


def test_a_template_that_swells_fails_within_its_memory() -> None:
    ends, grown = peak_of(SWELLS)
    assert ends == ["bounded"] * len(SWELLS), list(zip(ends, SWELLS, strict=True))
    assert grown * 1024 < RENDER_BYTES + (96 << 20), "what one took is given back before the next"


def test_the_bound_on_memory_ends_with_the_rendering() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(RequestError):
        ChatTemplate("{{ 'x'.ljust(10000000000) }}", {}, []).render(HELLO)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_a_large_chat_renders_within_the_bound() -> None:
    source = "{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}{{ messages | tojson | length }}"
    text = ChatTemplate(source, {}, []).render([Message("user", "word " * 100)] * 10_000).text
    assert len(text) > 5_000_000


def refused(**body: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        parse("chat", {"messages": [{"role": "user", "content": "x"}]} | body)
    return caught.value


LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}"
NAMES = (
    "chat_template messages tools documents tokenize add_generation_prompt continue_final_message bos_token "
    "eos_token namespace raise_exception range self _x __class__ a-b"
).split()


@pytest.mark.parametrize("name", [*NAMES, ""])
def test_a_client_cannot_set_what_the_renderer_owns(name: str) -> None:
    error = refused(chat_template_kwargs={name: LOOP})
    assert (error.status, error.field) == (400, f"chat_template_kwargs.{name}")


def test_a_client_cannot_bring_a_template() -> None:
    assert refused(chat_template=LOOP).field == "chat_template"
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    assert refused(chat_template_kwargs={"x": deep}).field == "chat_template_kwargs"
    assert refused(chat_template_kwargs={"x": "x" * 70_000}).field == "chat_template_kwargs"
    assert refused(chat_template_kwargs=[1]).field == "chat_template_kwargs"
