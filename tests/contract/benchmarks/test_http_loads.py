"""Loads over HTTP: as many streams at once as were asked for, each with one request after the other."""

import random
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from loads import OPENAI, RAW, Load, loads
from streams import Clients

FRAMES = 'data: {"choices": [{"index": 0, "text": "a", "finish_reason": null}]}\n\n' * 2
USAGE = 'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}\n\n'


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    under_way, most, lock = 0, 0, threading.Lock()

    def do_POST(self) -> None:
        with self.lock:
            Handler.under_way += 1
            Handler.most = max(Handler.most, Handler.under_way)
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.05)
        with self.lock:
            Handler.under_way -= 1
        body = (FRAMES + USAGE + "data: [DONE]\n\n").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("script", [RAW, OPENAI], ids=lambda script: script.name)
def test_each_stream_sends_its_next_request_when_its_last_has_ended(script: Path) -> None:
    Handler.most = 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        jobs = Load(3, 2, streams=3, turns=4).jobs(random.Random(0), 100)
        answers = Clients(server.server_address[1], 2, script=script).run(jobs)
    finally:
        server.shutdown()
        server.server_close()
    assert [(answer.complete, answer.tokens, len(answer.frames_s), answer.error) for answer in answers] == [
        (True, 2, 2, "")
    ] * 12
    assert Handler.most <= 3
    for lane in range(3):
        ends = [(answer.sent_s, answer.frames_s[-1]) for answer in answers[lane::3]]
        assert all(end <= sent for (_, end), (sent, _) in pairwise(ends))


def test_a_load_has_its_requests_in_as_many_lanes_as_streams() -> None:
    jobs = Load(128, 64, streams=4, turns=3).jobs(random.Random(0), 1000)
    assert [job.lane for job in jobs] == [0, 1, 2, 3] * 3
    assert {(len(job.prompt), job.new_tokens) for job in jobs} == {(128, 64)}
    assert len({tuple(job.prompt) for job in jobs}) == 12


def test_short_requests_come_in_turns_unless_asked_otherwise() -> None:
    assert [load.turns for load in loads("128/128,2048/2048", "1,64", None)] == [4, 4, 1, 1]
    assert [load.name for load in loads("8/4", "1,2", 7)] == ["8/4, 1", "8/4, 2"]
    with pytest.raises(ValueError):
        list(loads("128", "1", None))
