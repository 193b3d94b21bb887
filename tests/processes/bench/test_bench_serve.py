"""`octavo bench serve` against a server that answers by a script: it reports what was scripted, and survives."""

import asyncio
import json
import os
import pty
import signal
import struct
import sys
import termios
from contextlib import AsyncExitStack, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.models.checkpoints import successor_checkpoint
from support.patience import PATIENCE_S
from support.router.jobs import until
from support.router.scripted_api import (
    CUT,
    DONE,
    PLAIN,
    Ended,
    Script,
    bench,
    benching,
    data,
    delta,
    scripted_api,
    text,
    usage,
)
from support.worker.authority import Authority

SLACK_S = 5.0  # of a busy machine
TIMED = [
    (0.3, text("a")),
    (0.2, text("bc")),
    (0.2, text("de")),
    (0.2, text("fg", "length") + usage(11, 7) + DONE),
]


async def serve(url: str, *arguments: object) -> Ended:
    small = ("--random-input-len", 5, "--random-output-len", 3, "--num-prompts", 4)
    return await bench("serve", "--base-url", url, *small, *arguments)


async def detailed(url: str, folder: Path, *arguments: object) -> tuple[Ended, dict[str, Any]]:
    named = ("--result-dir", folder / "made", "--result-filename", "result.json")
    ended = await serve(url, "--save-result", "--save-detailed", *named, *arguments)
    return ended, json.loads((folder / "made" / "result.json").read_text())


async def test_ttft_tpot_itl_and_e2el_are_as_scripted(tmp_path: Path) -> None:
    one_by_one = ("--num-prompts", 3, "--max-concurrency", 1)
    async with scripted_api(lambda number: Script(TIMED)) as api:
        ended, result = await detailed(api.url, tmp_path, *one_by_one, "--percentile-metrics", "ttft,tpot,itl,e2el")
    assert ended.code == 0, ended.err
    assert result["output_lens"] == [7] * 3 and result["input_lens"] == [11] * 3
    for ttft, gaps, latency in zip(result["ttfts"], result["itls"], result["latencies"], strict=True):
        assert ttft >= 0.3 and latency >= 0.9
        assert len(gaps) == 3  # between four chunks, three of which carry two tokens
        assert sum(gaps) == pytest.approx(latency - ttft)
    assert min(result["ttfts"]) <= 0.3 + SLACK_S
    assert max(sum(gaps) for gaps in result["itls"]) >= 0.5  # a client that is held up sees the first chunk late
    assert result["generated_texts"] == ["abcdefg"] * 3
    pairs = zip(result["latencies"], result["ttfts"], strict=True)
    tpots = [(latency - ttft) / 6 for latency, ttft in pairs]
    assert result["mean_tpot_ms"] == pytest.approx(1e3 * sum(tpots) / 3)
    assert ended.figure("Mean TTFT (ms)") == pytest.approx(result["mean_ttft_ms"], abs=0.01)
    assert ended.figure("Total generated tokens") == 21 and ended.figure("Total input tokens") == 33
    assert ended.figure("P99 E2EL (ms)") >= 900


async def test_a_chats_times_count_its_content(tmp_path: Path) -> None:
    parts = [
        (0.0, delta(role="assistant", content="")),
        (0.4, delta(content="a")),
        (0.2, delta(content="b")),
        (0.0, delta("length") + usage(20, 2) + DONE),
    ]
    model = successor_checkpoint(tmp_path / "model")
    async with scripted_api(lambda number: Script(parts)) as api:
        ended, result = await detailed(api.url, tmp_path, "--backend", "openai-chat", "--tokenizer", model)
    assert ended.code == 0, ended.err
    assert set(api.paths) == {"/v1/chat/completions"}
    assert all(ttft >= 0.4 for ttft in result["ttfts"]) and {len(gaps) for gaps in result["itls"]} == {1}
    for request in api.requests:
        assert len(request["messages"][0]["content"]) == 5 and request["max_completion_tokens"] == 3


async def test_the_block_and_the_file_say_the_same_under_vllms_names(tmp_path: Path) -> None:
    async with scripted_api() as api:
        saved = ("--save-result", "--result-dir", tmp_path, "--metadata", "gpu=none", "--max-concurrency", 2)
        ended = await serve(api.url, *saved, "--goodput", "ttft:60000", "e2el:60000")
    assert ended.code == 0, ended.err
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("openai-infqps-concurrency2-scripted-") and file.suffix == ".json"
    result = json.loads(file.read_text())
    assert set(result) == {
        *("date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts", "gpu"),
        *("request_rate", "burstiness", "max_concurrency", "duration", "completed", "failed"),
        *("total_input_tokens", "total_output_tokens", "request_throughput", "request_goodput"),
        *("output_throughput", "total_token_throughput", "max_output_tokens_per_s", "max_concurrent_requests"),
        *(f"{figure}_{name}_ms" for name in ("ttft", "tpot", "itl") for figure in ("mean", "median", "std", "p99")),
    }
    assert (result["model_id"], result["completed"], result["total_output_tokens"]) == ("org/scripted", 4, 12)
    assert result["request_goodput"] == pytest.approx(result["request_throughput"])
    assert ended.out.splitlines()[0] == "============ Serving Benchmark Result ============"
    assert ended.figure("Maximum request concurrency") == 2 >= api.most


async def test_results_can_be_appended_to_one_file(tmp_path: Path) -> None:
    async with scripted_api() as api:
        for _ in range(2):
            file = ("--append-result", "--result-dir", tmp_path, "--result-filename", "all.json")
            assert (await serve(api.url, *file)).code == 0
    lines = (tmp_path / "all.json").read_text().split("\n")
    assert [json.loads(line)["completed"] for line in lines] == [4, 4]


async def test_a_model_may_have_another_name_in_requests_than_in_the_result(tmp_path: Path) -> None:
    async with scripted_api() as api:
        _, result = await detailed(api.url, tmp_path, "--model", "org/m", "--served-model-name", "served")
    assert result["model_id"] == "org/m" and {request["model"] for request in api.requests} == {"served"}


async def test_a_result_that_cannot_be_written_is_reported_after_the_block(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    async with scripted_api() as api:
        ended = await serve(api.url, "--save-result", "--result-dir", tmp_path, "--result-filename", "taken")
    assert ended.code == 1 and ended.figure("Successful requests") == 4
    assert "cannot write the result" in ended.err and "taken" in ended.err and "Traceback" not in ended.err
    (tmp_path / "file").write_text("")
    ended = await serve("http://127.0.0.1:1", "--save-result", "--result-dir", tmp_path / "file" / "x")
    assert ended.code == 2 and "--result-dir" in ended.err


async def test_what_is_asked_for_reaches_the_server() -> None:
    async with scripted_api() as api:
        flags = "--temperature 0 --top-p 0.5 --top-k 3 --model m --api-key secret --header X-A=1".split()
        ended = await serve(api.url, *flags, "--extra-body", '{"seed": 4}', "--random-prefix-len", 2)
    assert ended.code == 0, ended.err
    assert "secret" not in ended.out + ended.err
    assert len({tuple(request["prompt"][:2]) for request in api.requests}) == 1
    assert len({tuple(request["prompt"][2:]) for request in api.requests}) == 4
    for request, headers in zip(api.requests, api.headers, strict=True):
        assert len(request.pop("prompt")) == 7
        assert request == {
            "model": "m", "max_tokens": 3, "stream": True, "stream_options": {"include_usage": True},
            "ignore_eos": True, "temperature": 0.0, "top_p": 0.5, "top_k": 3, "seed": 4,
        }  # fmt: skip
        assert (headers["Authorization"], headers["X-A"]) == ("Bearer secret", "1")


async def test_requests_are_sent_at_their_rate(tmp_path: Path) -> None:
    async with scripted_api() as api:
        ended, result = await detailed(api.url, tmp_path, "--request-rate", 10, "--burstiness", "inf")
    assert ended.figure("Request rate configured (RPS)") == 10
    for number, start in enumerate(result["start_times"], 1):
        assert number / 10 - 0.01 <= start <= number / 10 + SLACK_S


async def test_the_bound_of_concurrency_holds_back_what_would_exceed_it(tmp_path: Path) -> None:
    script = Script([(0.1, text("a", "length") + usage(5, 1) + DONE)])
    async with scripted_api(lambda number: script) as api:
        ended, result = await detailed(api.url, tmp_path, "--max-concurrency", 1)
    assert api.most == 1 == ended.figure("Peak concurrent requests")
    assert result["queue_times"][3] >= 0.3
    # Latency counts from the sending, not from the scheduled time: none reaches into the next.
    spans = list(zip(result["start_times"], result["latencies"], strict=True))
    assert all(start + latency <= following for (start, latency), (following, _) in pairwise(spans))


async def test_tokens_are_counted_by_the_tokenizer_where_the_server_does_not(tmp_path: Path) -> None:
    model = successor_checkpoint(tmp_path / "model")
    script = Script([(0, text("abc")), (0.05, text("de", "length") + DONE)])
    async with scripted_api(lambda number: script) as api:
        _, with_one = await detailed(api.url, tmp_path, "--tokenizer", model)
        _, without = await detailed(api.url, tmp_path)
    assert with_one["output_lens"] == [5] * 4 and without["output_lens"] == [2] * 4
    assert with_one["input_lens"] == without["input_lens"] == [5] * 4


async def test_the_server_is_waited_for_and_warmed_up_before_the_measurement() -> None:
    busy = Script([(0, b'{"error": {"message": "loading"}}')], status=503)
    async with scripted_api(lambda number: busy if number < 2 else PLAIN) as api:
        ended = await serve(api.url, "--ready-check-timeout-sec", 30, "--num-warmups", 2)
    assert ended.code == 0, ended.err
    assert ended.figure("Successful requests") == 4 and ended.figure("Failed requests") == 0
    assert len(api.requests) == 3 + 2 + 4
    measured = {tuple(request["prompt"]) for request in api.requests[5:]}
    assert measured.isdisjoint(tuple(request["prompt"]) for request in api.requests[:5])


async def test_a_server_that_never_gets_ready_ends_the_command_with_1_and_its_own_words() -> None:
    busy = Script([(0, b'{"error": {"message": "loading"}}')], status=503)
    async with scripted_api(lambda number: busy) as api:
        ended = await serve(api.url, "--ready-check-timeout-sec", 1)
    assert ended.code == 1 and "HTTP 503: loading" in ended.err and "Traceback" not in ended.err


BROKEN = {
    "refused": (Script([(0, b'{"error": {"message": "no such model"}}')], status=404), "HTTP 404: no such model"),
    "in plain words": (Script([(0, b"Bad gateway\n")], status=502), "HTTP 502: Bad gateway"),
    "without words": (Script(status=500), "HTTP 500: Internal Server Error"),
    "an error within": (Script([(0, text("a")), (0, data(error={"message": "worker lost"}))]), "worker lost"),
    "cut off": (Script([(0, text("a")), (0.05, CUT)]), "Client"),
    "cut before a token": (Script([(0, b": hello\n\n"), (0.05, CUT)]), "Client"),
    "ended early": (Script([(0, text("a")), (0, text("b"))]), "neither a finish_reason nor [DONE]"),
    "ended without a token": (Script([(0, usage(1, 0) + DONE)]), "without a token"),
    "no stream": (Script([(0, b'{"choices": [{"text": "a"}]}')]), "neither a finish_reason nor [DONE]"),
    "no JSON": (Script([(0, b"data: <html>\n\n")]), "not JSON: <html>"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_answer_is_a_failed_request_with_its_reason(name: str) -> None:
    broken, said = BROKEN[name]
    async with scripted_api(lambda number: broken if number % 2 else PLAIN) as api:
        ended = await serve(api.url)
    assert ended.code == 0, ended.err
    assert (ended.figure("Successful requests"), ended.figure("Failed requests")) == (2, 2)
    assert ended.figure("Total generated tokens") == 6
    assert "2 of 4 requests failed; the first: " in ended.err and said in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("end", [b"data: [DONE]", b"", b"data:[DONE]\r\n\r\n"])
async def test_an_end_is_an_end_however_it_is_written(end: bytes) -> None:
    parts = [(0, text("a")), (0, text("b", None if end.endswith(b"]") else "stop")), (0, usage(3, 2) + end)]
    async with scripted_api(lambda number: Script(parts)) as api:
        ended = await serve(api.url)
    assert ended.figure("Successful requests") == 4 and ended.figure("Total generated tokens") == 8, ended.err


async def test_when_every_request_fails_the_exit_code_is_1_and_the_block_is_printed() -> None:
    async with scripted_api(lambda number: BROKEN["refused"][0]) as api:
        ended = await serve(api.url)
    assert ended.code == 1 and ended.figure("Failed requests") == 4
    assert "4 of 4 requests failed; the first: HTTP 404: no such model" in ended.err


@pytest.mark.parametrize("model", [(), ("--model", "m")])
async def test_a_server_that_is_not_there_ends_the_command_with_1(model: tuple[str, ...]) -> None:
    async with scripted_api() as api:
        gone = api.url
    ended = await serve(gone, *model)
    assert ended.code == 1 and "Cannot connect" in ended.err and "Traceback" not in ended.err


async def test_a_name_that_no_resolver_knows_ends_the_command_with_1() -> None:
    for host in ("a..b", f"{'x' * 70}.invalid"):
        ended = await serve(f"http://{host}:80", "--model", "m")
        assert ended.code == 1 and "4 of 4 requests failed" in ended.err and "Traceback" not in ended.err


async def test_a_certificate_without_a_trusted_authority_is_refused_unless_insecure(tmp_path: Path) -> None:
    async with scripted_api(tls=Authority(tmp_path).issue("server")) as api:
        refused = await serve(api.url)
        assert refused.code == 1 and "certificate" in refused.err and "Traceback" not in refused.err
        assert (await serve(api.url, "--insecure")).code == 0


async def test_a_server_that_dies_in_the_middle_leaves_a_report() -> None:
    async with AsyncExitStack() as end:
        async with scripted_api(lambda number: PLAIN if number < 2 else Script([(60, b"")])) as api:
            asked = ("--base-url", api.url, "--num-prompts", 6, "--random-input-len", 4)
            process = await end.enter_async_context(benching("serve", *asked))
            await until(lambda: len(api.requests) == 6)
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 0 and b"Traceback" not in err
    assert b"Failed requests:                         4" in out and b"4 of 6 requests failed" in err


async def test_progress_is_lines_in_a_log_a_bar_on_a_terminal_and_nothing_when_unwanted() -> None:
    async with scripted_api() as api:
        logged = await serve(api.url)
        assert "octavo bench serve: 4 of 4" in logged.err
        assert (await serve(api.url, "--disable-tqdm")).err == ""
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 80))
        small = ("--num-prompts", "4", "--random-input-len", "4")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "octavo", "bench", "serve", "--base-url", api.url, *small,
            stdout=asyncio.subprocess.DEVNULL, stderr=theirs,
        )  # fmt: skip
        os.close(theirs)
        assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0
        shown = _all_of(ours).decode()
        os.close(ours)
    assert "4/4" in shown and "100%" in shown and "4 of 4" not in shown


def _all_of(terminal: int) -> bytes:
    """What was written to it; the kernel hands that out in pieces, and then says that no process writes any more."""
    parts: list[bytes] = []
    with suppress(OSError):
        while part := os.read(terminal, 65536):
            parts.append(part)
    return b"".join(parts)


async def test_an_interrupt_ends_it_without_a_traceback() -> None:
    async with scripted_api(lambda number: Script([(60, b"")])) as api:
        asked = ("--base-url", api.url, "--num-prompts", 2, "--random-input-len", 4)
        async with benching("serve", *asked) as process:
            await until(lambda: bool(api.requests))
            process.send_signal(signal.SIGINT)
            _, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 130 and b"interrupted" in err and b"Traceback" not in err


@pytest.mark.parametrize("failing", [False, True])
async def test_the_plot_is_a_picture_of_a_sane_size(tmp_path: Path, failing: bool) -> None:
    script = BROKEN["refused"][0] if failing else PLAIN
    async with scripted_api(lambda number: script) as api:
        ended = await serve(api.url, "--plot", tmp_path / "out.png")
    assert ended.code == int(failing) and "Traceback" not in ended.err, ended.err
    picture = (tmp_path / "out.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n") and picture.endswith(b"IEND\xaeB`\x82")
    assert struct.unpack(">II", picture[16:24]) == (1400, 600) and 10_000 < len(picture) < 1_000_000


@pytest.mark.parametrize(
    ("name", "lines", "options"),
    [
        ("custom", '{"prompt": "one"}\n{"prompt": "two", "output_tokens": 9}\n', ["--custom-output-len", 3]),
        (
            "sharegpt",
            json.dumps([{"conversations": [{"value": word}, {"value": "answer"}]} for word in ("one", "two")]),
            ["--sharegpt-output-len", 3],
        ),
    ],
)
async def test_a_files_prompts_are_sent_as_text(tmp_path: Path, name: str, lines: str, options: list[object]) -> None:
    path = tmp_path / "dataset"
    path.write_text(lines)
    async with scripted_api() as api:
        ended = await serve(api.url, "--dataset-name", name, "--dataset-path", path, *options)
    assert ended.code == 0, ended.err
    assert {request["prompt"] for request in api.requests} == {"one", "two"} and len(api.requests) == 4
    assert {request["max_tokens"] for request in api.requests} == {3}
    assert not any("ignore_eos" in request for request in api.requests)
