"""With `apiKeys` set no request is served without a valid key, whatever becomes of the Secret."""

import http.client
import json
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from support.cluster.bed import wait_until
from support.cluster.deployed import SERVES_S, Release, Service
from support.patience import Bound

from octavo.operator.planning.routers.keys import REPLACE_S

SECRET = "clients"
KUBELET_S = 150.0  # from a change of a Secret until every kubelet has brought it
DRAIN_S = 10.0  # in which a router that was asked to end takes requests


@pytest.fixture
def keyed(octavo: Release) -> Iterator[Service]:
    """A service of its own that serves without keys."""
    service = octavo.service("keyed", engine={"kvCacheMemory": "128Mi"})
    service.settled()
    yield service
    service.delete()
    octavo.kubectl("delete", "secret", SECRET, "--ignore-not-found")
    wait_until(lambda: not octavo.left("keyed"), 60, "the service is gone")


def asked(address: str, key: str | None = None) -> tuple[int, str]:
    """Status and error code of a request on a connection of its own."""
    body = json.dumps({"model": "keyed", "prompt": "ab", "max_tokens": 2})
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=90)
    try:
        connection.request("POST", "/v1/completions", body, headers)
        answer = connection.getresponse()
        found = json.loads(answer.read())
    finally:
        connection.close()
    return answer.status, str((found.get("error") or {}).get("code", ""))


def until_asked(address: str, key: str | None, expected: tuple[int, str], bound: Bound) -> None:
    while (seen := attempt(address, key)) != expected:
        assert not bound.over, f"{expected}: not in {bound}, but {seen}"
        time.sleep(0.3)
    bound.kept()


def attempt(address: str, key: str | None) -> tuple[int, str]:
    try:
        return asked(address, key)
    except OSError as error:
        return 0, str(error)


@pytest.mark.timeout(600, func_only=True)
def test_no_request_is_served_without_a_valid_key(keyed: Service) -> None:
    address, kubectl = keyed.address, keyed.release.kubectl
    assert asked(address)[0] == 200

    keyed.change(router={"apiKeys": {"secretName": SECRET}})
    until_asked(address, None, (503, "api_keys_unavailable"), Bound(REPLACE_S + DRAIN_S))
    for kind in ("RouterReady", "Ready"):
        message = keyed.wait(kind, "False", "SecretMissing")["message"]
        assert f"kubectl create secret generic {SECRET} --from-file=keys=FILE" in message
    keyed.wait("Degraded", "True", "SecretMissing")
    wait_until(lambda: len(keyed.pods("router")) == 1, SERVES_S, "the routers without keys are gone")
    for key in (None, "sk-1", "none"):
        assert asked(address, key) == (503, "api_keys_unavailable")

    kubectl("create", "secret", "generic", SECRET, "--from-literal=keys=sk-1\nsk-2\n")
    until_asked(address, "sk-1", (200, ""), Bound(KUBELET_S))
    keyed.wait("Ready", "True", "Serving")
    keyed.wait("Degraded", "False")
    assert asked(address) == asked(address, "sk-3") == (401, "invalid_api_key")

    spoilt = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": keyed.release.namespace}}
    keyed.release.bed.apply({**spoilt, "stringData": {"keys": "key with spaces\nsk-2\n"}})
    until_asked(address, "sk-1", (401, "invalid_api_key"), Bound(KUBELET_S))
    assert asked(address, "sk-2")[0] == 200
    assert "line 1 is not a key" in keyed.wait("Degraded", "True", "KeysUnusable")["message"]

    kubectl("delete", "secret", SECRET)
    until_asked(address, "sk-2", (503, "api_keys_unavailable"), Bound(KUBELET_S))
    keyed.wait("RouterReady", "False", "SecretMissing")
    reasons = json.loads(
        kubectl("get", "events", "--field-selector=involvedObject.name=keyed,type=Warning", "-o", "json")
    )
    assert {"SecretMissing", "KeysUnusable"} <= {event["reason"] for event in reasons["items"]}
