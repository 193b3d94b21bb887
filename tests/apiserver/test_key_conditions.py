"""The operator asks routers for the state of their API keys; what is wrong with them is a condition and an event."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.cluster.bed import Bed, wait_until
from support.cluster.operators import condition, operator, service
from support.patience import PATIENCE_S

from octavo.operator.groups.names import ROUTER_HTTP

ADDRESS = "127.0.0.77"  # of a router that only answers /readyz
GOOD: dict[str, Any] = {"valid": True}
MISSING: dict[str, Any] = {"valid": False, "problem": "missing", "message": "there is no such file"}


class Page:
    """What /readyz says of the keys."""

    def __init__(self) -> None:
        self.keys = GOOD

    def handler(self) -> type[BaseHTTPRequestHandler]:
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                assert self.path == "/readyz"
                body = json.dumps({"groups": {"connected": 1}, "keys": page.keys}).encode()
                self.send_response(200 if page.keys["valid"] else 503)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@pytest.fixture
def page() -> Iterator[Page]:
    found = Page()
    with ThreadingHTTPServer((ADDRESS, ROUTER_HTTP), found.handler()) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield found
        server.shutdown()


def router_pod() -> dict[str, Any]:
    """A router that mounts the Secret. There are no nodes: the test writes its status."""
    source = {"secretName": "clients", "items": [{"key": "keys", "path": "keys"}], "optional": True}
    labels = {"octavo.dev/service": "chat", "octavo.dev/component": "router"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "chat-router-test", "labels": labels},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [{"name": "router", "image": "none"}],
            "volumes": [{"name": "keys", "secret": source}],
        },
    }


def counts(bed: Bed, space: str, reason: str) -> list[tuple[str, int]]:
    """Type and count of the service's events of a reason."""
    events = json.loads(bed.kubectl("-n", space, "get", "events", f"--field-selector=reason={reason}", "-o", "json"))
    return [(event["type"], event["count"]) for event in events["items"]]


@pytest.mark.timeout(300)
def test_a_missing_secret_is_a_condition_and_each_time_it_goes_missing_raises_the_events_count(
    bed: Bed, space: str, tmp_path: Path, page: Page
) -> None:
    with operator(bed.kubeconfig, tmp_path, space) as one:
        bed.apply(service(router={"apiKeys": {"secretName": "clients"}}), namespace=space)
        wait_until(lambda: bed.get("deployment", "chat-router", space), PATIENCE_S, "the Deployment")
        page.keys = MISSING
        bed.apply(router_pod(), namespace=space)
        ready = {"phase": "Running", "podIP": ADDRESS, "conditions": [{"type": "Ready", "status": "True"}]}
        patch = json.dumps({"status": ready})
        bed.kubectl(
            "-n", space, "patch", "pod", "chat-router-test", "--subresource=status", "--type=merge", "-p", patch
        )
        for times in (1, 2):
            page.keys = MISSING
            wait_until(lambda: condition(bed, space, "Degraded").get("reason") == "SecretMissing", PATIENCE_S, "cause")
            message = condition(bed, space, "Degraded")["message"]
            assert message.startswith("chat-router-test: there is no Secret clients with an entry keys"), message
            expected = [("Warning", times)]
            wait_until(lambda expected=expected: counts(bed, space, "SecretMissing") == expected, PATIENCE_S, "count")
            page.keys = GOOD
            wait_until(lambda: condition(bed, space, "Degraded").get("reason") != "SecretMissing", PATIENCE_S, "repair")
        log = one.log.read_text()
    assert "write the status: " in log and "Degraded=True/SecretMissing" in log, "the log says what a write changed"
    assert "OS signals" not in log, "kopf runs in a thread, as it must: that is nothing to warn of"
    deployment = bed.get("deployment", "chat-router", space)
    assert deployment is not None
    (volume,) = [each for each in deployment["spec"]["template"]["spec"]["volumes"] if each["name"] == "keys"]
    assert volume["secret"]["optional"] is True
