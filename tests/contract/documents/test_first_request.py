"""The first request that the README, the notes of the chart and the operations page give is one that works."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "charts/octavo/files/request_completion.py"
PAGES = ("README.md", "docs/operations.md", "charts/octavo/templates/NOTES.txt", "tests/cluster/bed/cluster.sh")


@pytest.mark.parametrize("page", PAGES)
def test_the_first_request_names_the_model_that_the_example_serves(page: str) -> None:
    example = yaml.safe_load((ROOT / "examples/minimal.yaml").read_text())
    text = (ROOT / page).read_text()
    name = example["metadata"]["name"]
    shown = text[text.index(f"port-forward svc/{name} 8000:80") :]
    body = re.search(r"curl http://127\.0\.0\.1:8000/v1/chat/completions .*? -d '(\{.*?\})'", shown, re.DOTALL)
    assert body is not None and json.loads(body[1])["model"] == name


class Api(BaseHTTPRequestHandler):
    """An API that needs the key sk-1, and has a model."""

    def do_GET(self) -> None:
        self._answer({"data": [] if self.path.startswith("/empty") else [{"id": "chat"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer({"choices": [{"message": {"content": "Paris."}}]})

    def _answer(self, found: object) -> None:
        is_known = self.headers["Authorization"] == "Bearer sk-1"
        body = json.dumps(found if is_known else {"error": {"message": "a key is needed"}}).encode()
        self.send_response(200 if is_known else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def run_script(*args: str) -> subprocess.CompletedProcess[str]:
    """As the pod of `helm test` runs it."""
    script = SCRIPT.read_text().replace("PATIENCE_S = 60", "PATIENCE_S = 0")
    return subprocess.run([sys.executable, "-c", script, *args], capture_output=True, text=True, check=False)


def test_helm_test_sends_a_key_and_prints_the_answer(url: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# teams\n\nsk-1\nsk-2\n")
    done = run_script(url, str(keys))
    assert (done.returncode, done.stdout, done.stderr) == (0, "chat says: Paris.\n", "")


def test_helm_test_fails_in_one_line_without_a_traceback(url: str, tmp_path: Path) -> None:
    empty = tmp_path / "keys"
    empty.write_text("# none\n")
    good = tmp_path / "good"
    good.write_text("sk-1\n")
    for args, words in (
        ((url,), "test.apiKeys.secretName=NAME"),
        ((url, str(empty)), "no key in its entry keys"),
        (("http://no-such-service.invalid/v1",), "test.service=NAME"),
        ((url.replace("/v1", "/empty"), str(good)), "another form"),
    ):
        done = run_script(*args)
        assert done.returncode == 1 and words in done.stderr, (args, done.stderr)
        assert len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr
