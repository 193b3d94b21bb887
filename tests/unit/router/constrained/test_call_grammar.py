"""Answers that are bound to calls: whatever is drawn within the masks is a call that the parser finds."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from support.router.vocabularies import byte_level, files, metaspace, template

from octavo.router.constrained.formats import Formats
from octavo.router.jobs.generation import RequestError
from octavo.router.parsers.answer_parser import Arguments, Call, Dropped, Reasoning
from octavo.router.parsers.parser_flags import ParserFlags
from octavo.router.parsers.tools.events import Content
from octavo.router.text.bodies import EncodedRequest
from octavo.router.text.tokenizer import ModelTokenizer
from octavo.router.tokenizer_pool.encode_request import prepare
from octavo.shared.grammars import limits

END = "<|im_end|>"
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 5}, "days": {"enum": [1, 2, 3]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
CLOCK = {"type": "function", "function": {"name": "clock"}}
TOOLS = [WEATHER, CLOCK]
CALL = {"type": "object", "properties": {"name": {"type": "string"}, "parameters": {"type": "object"}}}
LISTED = {"type": "object", "properties": {"calls": {"type": "array", "items": CALL}}, "required": ["calls"]}
USER = {"role": "user", "content": "How is it in Paris?"}
BARE = [END]
SHAPES = {
    "hermes": ("qwen25_tools", [END, "<|im_start|>"]),
    "hermes, tokens": ("qwen25_tools", [END, "<|im_start|>", "<tool_call>", "</tool_call>"]),
    "hermes, added": ("qwen25_tools", [END, "<|im_start|>"]),
    "thinks": ("qwen3_thinking", [END, "<|im_start|>"]),
    "thinks, tokens": ("qwen3_thinking", [END, "<|im_start|>", "<tool_call>", "</tool_call>", "<think>", "</think>"]),
    "llama3": ("llama31_tools", [END, "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]),
    "llama3, tokens": ("llama31_tools", [END, "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>"]),
    "mistral": ("mistral_v3_tools", [END, "[INST]", "[/INST]", "[TOOL_CALLS]"]),
    "mistral, spelt": ("mistral_v3_tools", [END, "[INST]", "[/INST]"]),
    "mistral, metaspace": ("mistral_v3_tools", ["[INST]", "[/INST]", "[TOOL_CALLS]"]),
    "mistral, heads": ("heads", [END, "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"]),
}
HEADS = "{{ tools | tojson }}{{ messages[0].content }}{# [TOOL_CALLS]f[CALL_ID]i[ARGS]{} #}"


@dataclass(frozen=True)
class Model:
    text: ModelTokenizer
    formats: Formats
    tokens: LLTokenizer
    end: int

    def encoded(self, **body: object) -> EncodedRequest:
        asked = {"messages": [USER], "tools": TOOLS} | body
        return prepare(self.text, "chat", json.dumps(asked).encode(), self.formats)

    def matcher(self, encoded: EncodedRequest) -> LLMatcher:
        made = LLMatcher(self.tokens, encoded.grammar, log_level=0, limits=limits())
        assert not made.is_error(), made.get_error()
        return made

    def ids(self, text: str) -> list[int]:
        return list(self.tokens.tokenize_str(text, parse_special=True))

    def says(self, encoded: EncodedRequest, ids: Sequence[int]) -> "Said":
        """What the parsers find, token by token."""
        make = self.formats.parser(encoded)
        assert make is not None
        parser, detokeniser = make(), self.text.detokeniser(b"", marks=self.formats.marks)
        said = Said()
        pieces = [parser.push(detokeniser.push((token,))) for token in ids]
        for part in (part for parts in (*pieces, parser.push(detokeniser.flush()), parser.finish()) for part in parts):
            if isinstance(part, Content):
                said.content += part.text
            elif isinstance(part, Reasoning):
                said.thought += part.text
            elif isinstance(part, Call):
                said.calls.append((part.name, ""))
            elif isinstance(part, Arguments):
                said.calls[-1] = (said.calls[-1][0], said.calls[-1][1] + part.text)
            else:
                assert not isinstance(part, Dropped), "a bound call is a call"
        return said


@dataclass
class Said:
    content: str = ""
    thought: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    return {kind: model(kind, *SHAPES[kind]) for kind in SHAPES}


def model(kind: str, source: str, specials: list[str]) -> Model:
    if kind == "mistral, metaspace":
        tokenizer = metaspace()
        tokenizer.add_special_tokens(specials)
    else:
        tokenizer = byte_level(specials=specials)
    if kind == "hermes, added":  # as Qwen has them: tokens, and shown as text all the same
        tokenizer.add_tokens(["<tool_call>", "</tool_call>"])
    text = ModelTokenizer(files(tokenizer, HEADS if source == "heads" else template(source), bos_token="<s>"), 4096)
    end = tokenizer.token_to_id("</s>" if kind == "mistral, metaspace" else END)
    tokens = LLTokenizer(tokenizer.to_str(), n_vocab=text.vocabulary, eos_token=end, slices=LLTokenizer.json_slices())
    return Model(text, Formats.of(text, ParserFlags()), tokens, end)


def walk(made: Model, encoded: EncodedRequest, seed: int, most: int = 600) -> list[int] | None:
    """Ids drawn within the masks, up to the end; None: it had not come. What ends a thing is preferred a little."""
    draw = random.Random(seed)
    matcher, mask = made.matcher(encoded), allocate_token_bitmask(1, made.text.vocabulary)
    endings = {made.end, *made.formats.ids.values()}
    ids: list[int] = []
    for _ in range(most):
        fill_next_token_bitmask(matcher, mask, 0)
        allowed = np.nonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))[0].tolist()
        assert allowed and not matcher.is_error()
        preferred = [token for token in allowed if token in endings]
        token = draw.choice(preferred if preferred and draw.random() < 0.3 else allowed)
        if token == made.end:
            return ids
        assert matcher.consume_token(token)
        ids.append(token)
    return None


def fits(call: tuple[str, str]) -> bool:
    arguments = json.loads(call[1])
    if call[0] == "clock":
        return bool(arguments == {})
    return set(arguments) == {"city", "days"} and len(arguments["city"]) <= 5 and arguments["days"] in (1, 2, 3)


@pytest.mark.parametrize("kind", sorted(SHAPES.keys() - {"thinks"}))  # no random text spells </think>
@pytest.mark.parametrize("parallel", [True, False])
def test_whatever_is_drawn_where_a_call_is_required_is_calls(
    models: dict[str, Model], kind: str, parallel: bool
) -> None:
    made, ended = models[kind], 0
    encoded = made.encoded(tool_choice="required", parallel_tool_calls=parallel)
    assert encoded.grammar_field == "tool_choice"
    for seed in range(12):
        ids = walk(made, encoded, seed)
        if ids is None:
            continue
        said = made.says(encoded, ids)
        assert said.calls and all(map(fits, said.calls)), (said, made.tokens.decode_str(ids))
        assert parallel or len(said.calls) == 1
        assert not said.content
        ended += 1
    assert ended >= 6


def script(kind: str, *calls: tuple[str, str]) -> str:
    """Calls as models of this shape write them."""
    key = "parameters" if kind.startswith("llama3") else "arguments"
    objects = [f'{{"name": "{name}", "{key}": {arguments}}}' for name, arguments in calls]
    if kind.startswith(("hermes", "thinks")):
        return "\n".join(f"<tool_call>\n{one}\n</tool_call>" for one in objects)
    if kind.startswith("llama3"):
        return "; ".join(objects)
    if kind == "mistral, heads":
        return "".join(f"[TOOL_CALLS]{name}[CALL_ID]aB3dEf7h9[ARGS]{arguments}" for name, arguments in calls)
    return f"[TOOL_CALLS] [{', '.join(objects)}]"


PARIS, NOW = ("weather", '{"city": "Paris", "days": 2}'), ("clock", "{}")


def accepts(made: Model, encoded: EncodedRequest, text: str) -> bool:
    matcher, ids = made.matcher(encoded), made.ids(text)
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


@pytest.mark.parametrize("kind", SHAPES)
def test_what_models_write_by_themselves_is_what_they_are_bound_to(models: dict[str, Model], kind: str) -> None:
    made = models[kind]
    one, two = script(kind, PARIS), script(kind, PARIS, NOW)
    required = made.encoded(tool_choice="required")
    for text, calls in ((one, [PARIS]), (two, [PARIS, NOW])):
        assert accepts(made, required, text)
        assert made.says(required, made.ids(text)).calls == calls
    assert not accepts(made, required, "") and not accepts(made, required, "Hello. " + one)
    assert not accepts(made, required, script(kind, ("weather", "{}")))
    assert not accepts(made, required, script(kind, ("other", "{}")))
    single = made.encoded(tool_choice="required", parallel_tool_calls=False)
    assert accepts(made, single, one) and not accepts(made, single, two)
    named = made.encoded(tool_choice={"type": "function", "function": {"name": "clock"}})
    assert accepts(made, named, script(kind, NOW)) and not accepts(made, named, one)
    assert not accepts(made, named, script(kind, NOW, NOW)), "a named function is called once"


@pytest.mark.parametrize("kind", SHAPES)
def test_with_strict_tools_text_is_free_and_calls_keep_to_their_schemas(models: dict[str, Model], kind: str) -> None:
    made = models[kind]
    strict = [{"type": "function", "function": WEATHER["function"] | {"strict": True}}, CLOCK]
    encoded = made.encoded(tools=strict)
    assert encoded.grammar_field == "tools"
    free = [
        "",
        "Hello.",
        'Is a < b?\n\n{curly} {\n  "name": 1}',
        '```json\n{"a": 1}\n```\nDone.',
        'so {"name": "weather"}',
    ]
    for text in free:
        assert accepts(made, encoded, text), text
        assert made.says(encoded, made.ids(text)).content == text
    for lead in ("", "I look it up.\n"):
        text = lead + script(kind, PARIS, NOW)
        assert accepts(made, encoded, text), text
        assert made.says(encoded, made.ids(text)).calls == [PARIS, NOW]
    assert accepts(made, encoded, script(kind, ("clock", '{"any": [1, {}]}')))
    marked = [] if kind.startswith("llama3") else [("other", "{}")]  # where nothing marks a call it is text
    for bad in (("weather", "{}"), ("weather", '{"city": "Paris", "days": 4}'), *marked):
        assert not accepts(made, encoded, "Hm.\n" + script(kind, bad)), bad


def test_no_spelling_of_a_call_slips_through_where_nothing_marks_one(models: dict[str, Model]) -> None:
    strict = [{"type": "function", "function": WEATHER["function"] | {"strict": True}}]
    for kind in ("llama3", "llama3, tokens"):
        made = models[kind]
        encoded = made.encoded(tools=strict)
        for text in (
            '{ "name" : "weather", "parameters": {}}',
            'x\n  {"name":"weather"}',
            '{"name": "weather", "arguments": {}}',
            '{"na\\u006de": "weather", "parameters": {}}',
            '{"parameters": {}, "name": "weather"}',
            '{"type": "function", "name": "weather", "parameters": {}}',
            '{ "name": "weather", "parameters": {}}\n' + script(kind, PARIS),
            '<|python_tag|>{"name": "weather", "parameters": {}}',
        ):
            found = made.says(encoded, made.ids(text)).calls
            assert not (found and accepts(made, encoded, text)), text


def test_a_marker_that_is_spelt_though_there_is_a_token_for_it_is_none_in_text(models: dict[str, Model]) -> None:
    made = models["hermes, added"]
    encoded = made.encoded(tools=[{"type": "function", "function": WEATHER["function"] | {"strict": True}}])
    spelt = [token for letter in '<tool_call>{"name": "weather"}</tool_call>' for token in made.ids(letter)]
    assert made.says(encoded, spelt).calls == [("weather", "{}")], "the parser would find it"
    assert made.matcher(encoded).try_consume_tokens(spelt) < len(spelt)
    assert accepts(made, encoded, "a < b, <tool_ca")


@pytest.mark.parametrize("kind", ["thinks", "thinks, tokens"])
@pytest.mark.parametrize("mode", ["required", "auto"])
def test_a_model_that_reasons_may_do_so_before_it_calls(models: dict[str, Model], kind: str, mode: str) -> None:
    made = models[kind]
    strict = [{"type": "function", "function": WEATHER["function"] | {"strict": True}}]
    encoded = made.encoded(tools=strict, tool_choice=mode)
    assert encoded.thought == "none"
    text = "<think>\nParis, then.\n</think>\n\n" + script(kind, PARIS)
    assert accepts(made, encoded, text) and accepts(made, encoded, script(kind, PARIS))
    said = made.says(encoded, made.ids(text))
    assert (said.thought, said.calls) == ("Paris, then.", [PARIS])
    assert accepts(made, encoded, "<think>\nPar") == (mode == "auto")
    if kind == "thinks":
        assert accepts(made, encoded, text.replace("then", "a <tool_call>")), "what is thought of is not done"
    open_messages = [USER, {"role": "assistant", "content": "<think>\nHm"}]
    begun = made.encoded(tools=strict, tool_choice=mode, messages=open_messages, continue_final_message=True)
    assert begun.thought == "begun"
    rest = " so.\n</think>\n\n" + script(kind, PARIS)
    assert accepts(made, begun, rest) and made.says(begun, made.ids(rest)).calls == [PARIS]
    assert accepts(made, begun, "so on") == (mode == "auto")
    assert not accepts(made, begun, "</think>" + script(kind, ("weather", "{}")))


@pytest.mark.parametrize("kind", ["thinks", "thinks, tokens"])
@pytest.mark.parametrize("tools", [[], TOOLS])
def test_a_model_that_reasons_may_do_so_before_it_answers_in_a_form(
    models: dict[str, Model], kind: str, tools: list[object]
) -> None:
    made = models[kind]
    shape: dict[str, Any] = {"tools": tools, "response_format": {"type": "json_object"}}
    encoded = made.encoded(**shape)
    assert encoded.grammar_field == "response_format"
    thought = "<think>\nA {, then.\n</think>"
    for text in ('{"a": 1}', thought + '{"a": 1}', "\n" + thought + '\n\n{"a": 1}'):
        assert accepts(made, encoded, text), text
        said = made.says(encoded, made.ids(text))
        assert (said.content, said.thought) == ('{"a": 1}', "A {, then." if "think" in text else "")
    for text in ("", "Hello.", thought, thought[:20], thought + "Hello.", thought + " {}", thought + thought + "{}"):
        assert not accepts(made, encoded, text), text
    off = made.encoded(**shape, chat_template_kwargs={"enable_thinking": False})
    assert off.thought == "over"
    assert accepts(made, off, '{"a": 1}') and not accepts(made, off, thought + '{"a": 1}')
    open_messages = [USER, {"role": "assistant", "content": "<think>\nHm"}]
    begun = made.encoded(**shape, messages=open_messages, continue_final_message=True)
    assert accepts(made, begun, 'm {"b": 2}</think>{"a": 1}') and not accepts(made, begun, '{"a": 1}')
    said = made.says(begun, made.ids('m {"b": 2}</think>\n\n{"a": 1}'))
    assert (said.content, said.thought) == ('{"a": 1}', 'm {"b": 2}')


def test_a_form_that_cannot_be_kept_to_is_refused_behind_reasoning_as_well(models: dict[str, Model]) -> None:
    with pytest.raises(RequestError) as caught:
        models["thinks, tokens"].encoded(tools=[], guided_regex="a(")
    assert (caught.value.field, caught.value.code) == ("guided_regex", "invalid_grammar")


@pytest.mark.parametrize("kind", SHAPES)
def test_a_response_format_leaves_room_for_calls(models: dict[str, Model], kind: str) -> None:
    made = models[kind]
    encoded = made.encoded(response_format={"type": "json_schema", "json_schema": {"name": "c", "schema": CITY}})
    assert encoded.grammar_field == "response_format.json_schema.schema"
    answer = '{"city": "Rome", "days": 1}'
    for shape in ({"guided_regex": "[a-c]+/"}, {"guided_choice": ["ab/", "c"]}, {"guided_grammar": 'root ::= "ab/"'}):
        assert accepts(made, made.encoded(**shape), "ab/") and accepts(made, made.encoded(**shape), script(kind, NOW))
        assert not accepts(made, made.encoded(**shape), "x")
    assert accepts(made, encoded, answer) and made.says(encoded, made.ids(answer)).content == answer
    for calls in ([PARIS], [PARIS, NOW]):
        text = script(kind, *calls)
        assert accepts(made, encoded, text) and made.says(encoded, made.ids(text)).calls == calls
    assert not accepts(made, encoded, "Hello.")
    required = made.encoded(response_format={"type": "json_object"}, tool_choice="required")
    assert not accepts(made, required, answer) and accepts(made, required, script(kind, PARIS))


@pytest.mark.parametrize("kind", ["llama3", "llama3, tokens"])
def test_an_answer_in_a_form_is_no_call_whatever_it_holds(models: dict[str, Model], kind: str) -> None:
    made = models[kind]
    encoded = made.encoded(guided_json=LISTED)
    for text in (
        '{"calls": [\n{"name": "weather", "parameters": {"city": "Rome", "days": 1}}]}',
        '{"calls": [{"name": "<|python_tag|>{"}]}',
    ):
        ids = [token for letter in text for token in made.ids(letter)]  # a marker is spelt, not meant
        matcher = made.matcher(encoded)
        assert matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting(), text
        said = made.says(encoded, ids)
        assert (said.content, said.calls) == (text, [])
    for seed in range(8):
        if ids := walk(made, encoded, seed):
            said = made.says(encoded, ids)
            assert all(isinstance(json.loads(arguments), dict) for _, arguments in said.calls)
            assert not said.content if said.calls else "calls" in json.loads(said.content)


def test_a_form_is_refused_beside_tools_where_nothing_tells_it_from_a_call(models: dict[str, Model]) -> None:
    other: Any = {"type": "object", "properties": {"name": {"enum": ["x"]}}, "required": ["name"]}
    forms: list[dict[str, Any]] = [
        {"response_format": {"type": "json_object"}},
        {"guided_json": CALL},
        {"guided_json": other},  # ambiguous for too long
        {"guided_regex": "(.|\n)*"},
        {"guided_choice": ['{"name": "weather"', "b"]},
        {"guided_grammar": "start: <|im_end|>"},
    ]
    for shape in forms:
        with pytest.raises(RequestError, match="tool_choice") as caught:
            models["llama3"].encoded(**shape)
        assert (caught.value.field, caught.value.code) == (next(iter(shape)), "unsupported_field")
        assert models["llama3"].encoded(**shape, tool_choice="required").grammar


def test_only_allowed_tools_can_be_called(models: dict[str, Model]) -> None:
    made = models["hermes"]
    for mode in ("auto", "required"):
        allowed = {"mode": mode, "tools": [{"type": "function", "function": {"name": "clock"}}]}
        encoded = made.encoded(tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
        assert accepts(made, encoded, script("hermes", NOW)) and not accepts(made, encoded, script("hermes", PARIS))
        assert accepts(made, encoded, "Hello.") == (mode == "auto")


def test_free_tools_bind_nothing(models: dict[str, Model]) -> None:
    for body in ({}, {"parallel_tool_calls": False}, {"tool_choice": "none"}, {"tools": []}):
        assert models["hermes"].encoded(**body).grammar == ""


OBJECTS: list[tuple[dict[str, Any], str, bool]] = [
    ({}, '{"a": [1]}', True),
    ({"properties": {"a": {"type": "integer"}}}, '{"a": "x"}', False),
    ({"type": ["object", "null"]}, "null", False),
    ({"$ref": "#/$defs/c", "$defs": {"c": CITY}}, PARIS[1], True),
    ({"$ref": "#/$defs/c", "$defs": {"c": CITY}}, "{}", False),
    ({"anyOf": [CITY, {"type": "string"}]}, '"x"', False),
    ({"description": "", "x-guidance": {"whitespace_pattern": "x"}}, '{"a":  1}', True),
]


@pytest.mark.parametrize(("schema", "arguments", "good"), OBJECTS)
def test_arguments_are_an_object_whatever_the_schema_leaves_open(
    models: dict[str, Model], schema: dict[str, Any], arguments: str, good: bool
) -> None:
    made = models["hermes"]
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    encoded = made.encoded(tools=tools, tool_choice="required")
    assert accepts(made, encoded, script("hermes", ("f", arguments))) == good


@pytest.mark.parametrize(
    "schema",
    [{"type": "string"}, {"not": {}}, {"type": "object", "properties": {"a": {"type": "string", "format": "no"}}}],
)
def test_a_schema_that_cannot_be_kept_to_is_refused_with_its_place(models: dict[str, Model], schema: object) -> None:
    bad = {"type": "function", "function": {"name": "bad", "parameters": schema, "strict": True}}
    for body in ({"tools": [CLOCK, bad]}, {"tools": [CLOCK, bad], "tool_choice": "required"}):
        with pytest.raises(RequestError) as caught:
            models["hermes"].encoded(**body)
        error = caught.value
        assert (error.status, error.field, error.code) == (400, "tools[1].function.parameters", "invalid_grammar")
    named = {"type": "function", "function": {"name": "clock"}}
    assert models["hermes"].encoded(tools=[CLOCK, bad | {"function": {"name": "bad"}}], tool_choice=named).grammar
