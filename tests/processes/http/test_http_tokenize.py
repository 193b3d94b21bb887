"""/tokenize and /detokenize answer as vLLM does, by the same path as what is served."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from support.router.fronts import CONTEXT, TOKENIZER, Front, front
from support.router.vocabularies import CHATML, files, metaspace

pytestmark = pytest.mark.asyncio(loop_scope="module")
TEXT = "naïve café 日本語 🌶 <|im_end|>"
CHAT = [{"role": "user", "content": "hello"}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Front]:
    async with front(tmp_path_factory.mktemp("tokenize")) as made:
        yield made


async def test_a_prompt_becomes_ids_and_back(served: Front) -> None:
    status, answer = await served.router.post("/tokenize", {"model": "m", "prompt": TEXT})
    ids = TOKENIZER.encode(TEXT).ids
    assert (status, answer) == (200, {"count": len(ids), "max_model_len": CONTEXT, "tokens": ids, "token_strs": None})
    status, back = await served.router.post("/detokenize", {"model": "m", "tokens": ids})
    assert (status, back) == (200, {"prompt": TEXT})


async def test_token_strings_are_the_vocabularys(served: Front) -> None:
    _, answer = await served.router.post("/tokenize", {"prompt": "the quick fox", "return_token_strs": True})
    assert answer["token_strs"] == TOKENIZER.encode("the quick fox").tokens


async def test_a_chat_is_rendered_as_when_it_is_served(served: Front) -> None:
    status, answer = await served.router.post("/tokenize", {"model": "m", "messages": CHAT})
    body = {"model": "m", "messages": CHAT, "max_tokens": 1}
    _, chat = await served.router.post("/v1/chat/completions", body)
    assert status == 200 and answer["count"] == len(answer["tokens"]) == chat["usage"]["prompt_tokens"]
    _, back = await served.router.post("/detokenize", {"tokens": answer["tokens"]})
    assert back["prompt"] == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"


async def test_empty_texts_and_lists_are_answered(served: Front) -> None:
    _, answer = await served.router.post("/tokenize", {"prompt": ""})
    assert (answer["count"], answer["tokens"]) == (0, [])
    assert await served.router.post("/detokenize", {"tokens": []}) == (200, {"prompt": ""})


async def test_a_text_longer_than_the_context_is_counted(served: Front) -> None:
    status, answer = await served.router.post("/tokenize", {"prompt": "x y " * 5000})
    assert status == 200 and answer["count"] > CONTEXT == answer["max_model_len"]


BAD = [
    ("/tokenize", {}, "prompt"),
    ("/tokenize", {"prompt": "x", "messages": CHAT}, "prompt"),
    ("/tokenize", {"prompt": 5}, "prompt"),
    ("/tokenize", {"prompt": ["x"]}, "prompt"),
    ("/tokenize", {"messages": []}, "messages"),
    ("/tokenize", {"messages": [{"role": "boss"}]}, "messages[0].role"),
    ("/tokenize", {"messages": CHAT, "chat_template": "{{ 1 }}"}, "chat_template"),
    ("/tokenize", {"messages": CHAT, "add_special_tokens": True}, "add_special_tokens"),
    ("/tokenize", {"prompt": "x", "add_special_tokens": 1}, "add_special_tokens"),
    ("/tokenize", {"prompt": "x", "return_token_strs": "yes"}, "return_token_strs"),
    ("/tokenize", {"prompt": "x", "tokens": [1]}, "tokens"),
    ("/tokenize", {"prompt": "x", "timeout": -1}, "timeout"),
    ("/detokenize", {}, "tokens"),
    ("/detokenize", {"tokens": "x"}, "tokens"),
    ("/detokenize", {"tokens": ["x"]}, "tokens"),
    ("/detokenize", {"tokens": [True]}, "tokens"),
    ("/detokenize", {"tokens": [1, "x"]}, "tokens"),
    ("/detokenize", {"tokens": [-1]}, "tokens"),
    ("/detokenize", {"tokens": [999_999]}, "tokens"),
    ("/detokenize", {"tokens": [[1]]}, "tokens"),
    ("/detokenize", {"tokens": [1] * 1_000_001}, "tokens"),
]


async def test_a_bad_field_gets_400_with_its_name(served: Front) -> None:
    for path, body, name in BAD:
        status, answer = await served.router.post(path, body)
        assert (status, answer["error"]["param"]) == (400, name), (path, str(body)[:60], answer)
    for path in ("/tokenize", "/detokenize"):
        for body in (b"", b"[]", b"{", b"[" * 100_000):
            assert (await served.router.raw(path, body))[0] == 400
        assert (await served.router.post(path, {"model": "nope", "prompt": "x"} | {"tokens": None}))[0] in (400, 404)
        assert await served.router.status(path) == 405


async def test_a_body_that_is_good_for_an_answer_is_good_here(served: Front) -> None:
    body = {"model": "m", "messages": CHAT, "max_tokens": 5, "temperature": 0.5, "stream": True, "n": 1}
    async with served.router.session.post(f"{served.router.url}/tokenize", json=body | {"foo": 1}) as answer:
        assert answer.status == 200 and answer.headers["X-Octavo-Warning"].endswith('"foo"')


async def test_the_version_is_served(served: Front) -> None:
    async with served.router.session.get(f"{served.router.url}/version") as answer:
        assert answer.status == 200 and list(await answer.json()) == ["version"]


@pytest.mark.parametrize("add_bos", [True, None])
async def test_a_chat_has_one_bos_and_a_raw_prompt_what_the_tokenizer_says(
    tmp_path: Path, add_bos: bool | None
) -> None:
    tokenizer = metaspace()
    made = files(tokenizer, "{{ bos_token }}" + CHATML, bos_token="<s>", add_bos_token=add_bos)
    async with front(tmp_path, tokenizer=tokenizer, made=made) as served:
        bos = tokenizer.token_to_id("<s>")
        chat = {"messages": CHAT, "max_tokens": 1}
        _, tokens = await served.router.post("/tokenize", {"messages": CHAT})
        _, answer = await served.router.post("/v1/chat/completions", chat)
        assert tokens["tokens"].count(bos) == 1 and tokens["tokens"][0] == bos
        assert answer["usage"]["prompt_tokens"] == tokens["count"]
        _, plain = await served.router.post("/tokenize", {"prompt": "hello"})
        _, bare = await served.router.post("/tokenize", {"prompt": "hello", "add_special_tokens": False})
        assert plain["tokens"] == [bos, *bare["tokens"]]
        _, answer = await served.router.post("/v1/completions", {"prompt": "hello", "max_tokens": 1})
        assert answer["usage"]["prompt_tokens"] == plain["count"]
