"""`octavo bench` on the real thing: a server of `octavo run`, started by the test or by the command itself."""

import asyncio
import json
import re
import signal
from pathlib import Path

import pytest
from support.models.checkpoints import successor_checkpoint
from support.patience import PATIENCE_S
from support.processes.local import local_run
from support.router.scripted_api import bench, benching

SMALL = ("--", "--device", "cpu", "--kv-cache-memory", "16Mi")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return successor_checkpoint(tmp_path_factory.mktemp("model"))


async def test_serve_measures_a_running_service(model: Path, tmp_path: Path) -> None:
    with local_run(model, "--kv-cache-memory", "16Mi") as run:
        url = await asyncio.to_thread(run.until_serving)
        common = ("serve", "--base-url", url, "--tokenizer", model, "--temperature", 0, "--num-prompts", 12)
        saved = ("--save-result", "--save-detailed", "--result-dir", tmp_path, "--result-filename")
        lengths = ("--random-input-len", 20, "--random-output-len", 9)
        plain = await bench(*common, *lengths, *saved, "completions.json", "--max-concurrency", 4)
        chat = await bench(*common, *lengths, *saved, "chat.json", "--backend", "openai-chat", "--request-rate", 50)
        shared = ("--dataset-name", "prefix_repetition", "--prefix-repetition-num-prefixes", 3)
        repeated = await bench(*common, *shared, "--output-len", 2, *saved, "prefix.json", "--ignore-eos")
        # Without a tokenizer ids are drawn that this tiny vocabulary does not have.
        unknown = await bench("serve", "--base-url", url, "--num-prompts", 2)
    for ended in (plain, chat, repeated):
        assert ended.code == 0, ended.err
        assert (ended.figure("Successful requests"), ended.figure("Failed requests")) == (12, 0)
    first, second, third = (
        json.loads((tmp_path / f"{name}.json").read_text()) for name in ("completions", "chat", "prefix")
    )
    assert first["model_id"] == "local" and first["total_input_tokens"] == 12 * 20
    assert set(first["output_lens"]) == set(second["output_lens"]) == {9}
    # <|start|>user\n ... <|end|>\n<|start|>assistant\n
    around = len("user\n") + len("\n") + len("assistant\n") + 3
    assert set(second["input_lens"]) == {20 + around}
    assert set(third["input_lens"]) == {512} and set(third["output_lens"]) == {2}
    for result in (first, second, third):
        assert all(ttft > 0 for ttft in result["ttfts"]) and result["duration"] > 0
    assert unknown.code == 1 and re.search("2 of 2 requests failed; the first: HTTP 400: .*vocabulary", unknown.err)


async def test_throughput_starts_a_server_and_ends_it(model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    lengths = ("--num-prompts", 20, "--input-len", 16, "--output-len", 8, "--output-json", output)
    ended = await bench("throughput", "--model", model, *lengths, *SMALL)
    assert ended.code == 0, ended.err
    number = r"\d+\.\d\d"
    assert re.fullmatch(
        rf"Throughput: {number} requests/s, {number} total tokens/s, {number} output tokens/s\n"
        r"Total num prompt tokens:  320\nTotal num output tokens:  160\n",
        ended.out,
    ), ended.out
    result = json.loads(output.read_text())
    assert set(result) == {
        *("elapsed_time", "num_requests", "total_num_tokens", "requests_per_second", "tokens_per_second"),
    }
    assert (result["num_requests"], result["total_num_tokens"]) == (20, 480)
    assert "octavo run: draining" in ended.err


async def test_latency_times_one_batch_again_and_again(model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    sizes = ("--batch-size", 3, "--input-len", 16, "--output-len", 8, "--num-iters-warmup", 1, "--num-iters", 4)
    ended = await bench("latency", "--model", model, *sizes, "--output-json", output, *SMALL)
    assert ended.code == 0, ended.err
    shares = (10, 25, 50, 75, 90, 99)
    wanted = [r"Avg latency: [\d.]+ seconds", r"Std latency: [\d.e-]+ seconds"]
    wanted += [rf"{share}% percentile latency: [\d.]+ seconds" for share in shares]
    assert re.fullmatch("\n".join(wanted) + "\n", ended.out), ended.out
    result = json.loads(output.read_text())
    assert set(result) == {"avg_latency", "std_latency", "latencies", "percentiles"}
    assert len(result["latencies"]) == 4 and list(result["percentiles"]) == [str(share) for share in shares]
    assert result["avg_latency"] == pytest.approx(sum(result["latencies"]) / 4)


async def test_requests_that_the_server_refuses_are_reported_and_end_with_1(model: Path) -> None:
    too_long = ("--input-len", 3000, "--output-len", 8)
    many = await bench("throughput", "--model", model, "--num-prompts", 3, *too_long, *SMALL)
    assert many.code == 1 and "3 of 3 requests failed; the first: HTTP 400" in many.err, many.err
    assert many.out.startswith("Throughput: 0.00 requests/s") and "Traceback" not in many.err
    batch = await bench("latency", "--model", model, "--num-iters-warmup", 0, *too_long, *SMALL)
    assert batch.code == 1 and "a request failed: HTTP 400" in batch.err and batch.out == ""


async def test_what_octavo_run_refuses_ends_the_command_with_its_words_and_its_code(model: Path) -> None:
    ended = await bench("throughput", "--model", model, "--num-prompts", 1, "--", "--kv-cache-memory", "lots")
    assert ended.code == 2 and "spec.engine.kvCacheMemory" in ended.err and "Traceback" not in ended.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
async def test_a_signal_ends_the_server_too(model: Path, number: signal.Signals) -> None:
    endless = ("--num-iters", 100_000, "--batch-size", 1, "--output-len", 64)
    async with benching("latency", "--model", model, *endless, *SMALL) as process:
        assert process.stderr is not None
        while not (line := await asyncio.wait_for(process.stderr.readline(), PATIENCE_S)).startswith(b"warm-up"):
            assert line, "it has ended"
        process.send_signal(number)
        _, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number), err
    assert b"Traceback" not in err, err
    # Its pipe is closed only when every process that has it is gone.
    assert b"octavo run: draining" in err
