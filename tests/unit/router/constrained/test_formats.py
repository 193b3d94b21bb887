"""Which parsers read a model's answers: by its template or by the router's flags."""

from pathlib import Path

import pytest
from support.router.vocabularies import TEMPLATES, byte_level, files, template

from octavo.local.commands import Sockets, router_argv
from octavo.local.flags import parse_args
from octavo.router.constrained.formats import Formats
from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.openai import ParsedRequest, parse
from octavo.router.parsers.answer_parser import Arguments, Call, Reasoning
from octavo.router.parsers.parser_flags import AUTO, ParserFlags
from octavo.router.parsers.tools.events import Content
from octavo.router.process.config import parse_arguments
from octavo.router.text.bodies import EncodedRequest
from octavo.router.text.tokenizer import ModelTokenizer

FOUND = {
    "deepseek_r1": (None, True),
    "hermes_tools": ("hermes", False),
    "llama31_tools": ("llama3", False),
    "mistral_v3_tools": ("mistral", False),
    "qwen25_tools": ("hermes", False),
    "qwen3_thinking": ("hermes", True),
}
MARKERS = ["[TOOL_CALLS]", "<|python_tag|>", "<tool_call>", "</tool_call>", "<think>", "</think>"]
TOOL = {"type": "function", "function": {"name": "f"}}


def model(source: str | None, specials: list[str] | None = None) -> ModelTokenizer:
    return ModelTokenizer(files(byte_level(specials=specials), source), 4096)


def asked(**body: object) -> ParsedRequest:
    return parse("chat", {"messages": [{"role": "user", "content": "x"}]} | body)


@pytest.mark.parametrize("name", sorted(path.stem for path in TEMPLATES.glob("*.jinja")))
def test_the_template_tells_the_parsers(name: str) -> None:
    formats = Formats.of(model(template(name)), AUTO)
    assert (formats.tools, formats.reasoning) == FOUND.get(name, (None, False))


def test_a_model_without_a_template_has_no_parsers() -> None:
    assert Formats.of(model(None), AUTO) == Formats()


def test_a_control_token_tells_where_the_template_shows_no_calls() -> None:
    offers = "{{ tools | tojson }}{{ messages[0].content }}"
    assert Formats.of(model(offers, MARKERS), AUTO).tools == "mistral"
    assert Formats.of(model(offers), AUTO).tools is None
    assert Formats.of(model(template("chatml"), MARKERS), AUTO).tools is None


def test_flags_overrule_the_template() -> None:
    made = Formats.of(model(template("qwen3_thinking")), ParserFlags("mistral", "none"))
    assert (made.tools, made.reasoning) == ("mistral", False)
    made = Formats.of(model(template("chatml")), ParserFlags("llama3", "think"))
    assert (made.tools, made.reasoning) == ("llama3", True)
    assert Formats.of(model(template("qwen3_thinking")), ParserFlags("none", "none")) == Formats()


def test_markers_that_are_control_tokens_are_found_by_id_and_never_shown() -> None:
    text = model(template("qwen3_thinking"), MARKERS)
    formats = Formats.of(text, AUTO)
    assert set(formats.spelling) == {"<tool_call>", "</tool_call>", "<think>", "</think>"}
    assert len(set(formats.spelling.values())) == 4
    tokenizer = byte_level(specials=MARKERS)
    said = '<think>a</think>b<tool_call>{"name": "f", "arguments": {}}</tool_call></think>c<tool_call>no</tool_call>'
    parser = formats.parser(EncodedRequest(asked(), ()))
    assert parser is not None
    make = formats.parser(EncodedRequest(ParsedRequest("chat", tool_use=asked(tools=[TOOL]).tool_use), ()))
    assert make is not None
    parser, shown = make(), []
    detokeniser = text.detokeniser(b"", marks=formats.marks)
    for token in tokenizer.encode(said).ids:
        shown += parser.push(detokeniser.push((token,)))
    shown += parser.push(detokeniser.flush()) + parser.finish()
    assert "".join(part.text for part in shown if isinstance(part, Reasoning)) == "a"
    assert "".join(part.text for part in shown if isinstance(part, Content)) == "bcno"
    assert [part.name for part in shown if isinstance(part, Call)] == ["f"]
    assert "".join(part.text for part in shown if isinstance(part, Arguments)) == "{}"


def test_a_spelt_marker_is_text_where_the_marker_is_a_control_token() -> None:
    formats = Formats.of(model(template("mistral_v3_tools"), MARKERS), AUTO)
    make = formats.parser(EncodedRequest(asked(tools=[TOOL]), ()))
    assert make is not None
    assert make().push('[TOOL_CALLS]f{"a": 1}') == [Content('[TOOL_CALLS]f{"a": 1}')]


def test_plain_chats_and_completions_have_no_parser() -> None:
    tools = Formats.of(model(template("qwen25_tools")), AUTO)
    assert tools.parser(EncodedRequest(asked(), ())) is None
    assert tools.parser(EncodedRequest(asked(tools=[TOOL], tool_choice="none"), ())) is None
    assert tools.parser(EncodedRequest(asked(tools=[TOOL]), ())) is not None
    thinks = Formats.of(model(template("deepseek_r1")), AUTO)
    assert thinks.parser(EncodedRequest(asked(), ())) is not None
    assert thinks.parser(EncodedRequest(parse("completion", {"prompt": "x"}), ())) is None


def test_tools_without_a_parser_are_refused() -> None:
    formats = Formats.of(model(template("command_r_tool_macros")), AUTO)
    with pytest.raises(RequestError, match="--tool-parser") as caught:
        formats.check(asked(tools=[TOOL]))
    assert (caught.value.status, caught.value.field) == (400, "tools")
    formats.check(asked(tools=[TOOL], tool_choice="none"))


def test_the_prompt_tells_how_far_the_reasoning_is() -> None:
    deepseek = model(template("deepseek_r1"))
    chatml = model(template("chatml"))

    def thought(made: ModelTokenizer, **body: object) -> str:
        ask = asked(**body)
        return made.thought(ask, made.encode(ask)[0])

    half = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "<think>\n2 +"}]
    done = [half[0], {"role": "assistant", "content": "<think>2</think>So"}]
    assert thought(deepseek) == "begun" and thought(chatml) == "none"
    assert thought(deepseek, add_generation_prompt=False) == "none"
    assert thought(chatml, messages=half, continue_final_message=True) == "begun"
    assert thought(chatml, messages=done, continue_final_message=True) == "over"
    assert thought(chatml, messages=[{"role": "user", "content": "a <think>"}]) == "none"


def test_the_flags_reach_the_router() -> None:
    argv = router_argv(parse_args(["--tool-parser", "hermes", "--reasoning-parser", "none"]), 8000, None, [])
    assert "--tool-parser=hermes" in argv and "--reasoning-parser=none" in argv
    group = f"--group={Sockets(Path('x'), 0).serve}"
    assert parse_arguments([*argv[1:], group]).parsers == ParserFlags("hermes", "none")
    assert parse_arguments([group]).parsers == AUTO


@pytest.mark.parametrize("flag", ["--tool-parser", "--reasoning-parser"])
def test_an_unknown_parser_is_refused_by_name(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    for parse_flags in (lambda: parse_args([flag, "x"]), lambda: parse_arguments([flag, "x"])):
        with pytest.raises(SystemExit) as caught:
            parse_flags()
        assert caught.value.code == 2 and flag in capsys.readouterr().err
