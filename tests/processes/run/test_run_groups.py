"""`octavo run` with groups of several pods: the same answers, one drain."""

import asyncio
import signal
from pathlib import Path

import pytest
from support.models.checkpoints import successor_checkpoint
from support.processes.commands import done
from support.processes.local import complete, local_run, many

from octavo.worker.devices.memory import threads

ALPHABET = "bcdefghi"
SPREAD = ("--device", "cpu", "--kv-cache-memory", "16Mi", "--tensor", "2", "--pipeline", "2", "--ranks-per-pod", "1")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return successor_checkpoint(tmp_path / "model")


async def test_a_group_of_four_pods_answers_like_one_and_an_interrupt_finishes_what_is_under_way(model: Path) -> None:
    with local_run(model, *SPREAD) as run:
        url = run.until_serving()
        assert run.text.count(f"device: CPU, {threads(None, ranks=4)} threads") == 4, run.text
        status, body = await complete(url)
        assert status == 200 and body["choices"][0]["text"] == ALPHABET, body  # type: ignore[index]
        answers = asyncio.create_task(many(url, 5, max_tokens=200))
        await asyncio.sleep(0.5)
        run.process.send_signal(signal.SIGINT)
        assert [status for status, _ in await answers] == [200] * 5
        assert await asyncio.to_thread(run.end) == 0, run.text


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--tensor", "3", "--ranks-per-pod", "2"], r"--ranks-per-pod"),
        (["--tensor", "9", "--pipeline", "9"], r"--tensor, --pipeline"),
        (["--tensor", "3"], r"--tensor"),  # of the model's 8 heads
    ],
)
def test_a_shape_that_cannot_be_ends_with_2_and_names_its_flag(model: Path, flags: list[str], named: str) -> None:
    ended = done("run", model, "--device", "cpu", *flags)
    assert ended.code == 2 and named in ended.err and "Traceback" not in ended.err, ended.err
