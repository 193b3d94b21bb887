"""Discovers the groups' addresses: the EndpointSlices of the leaders' Service, by list and watch.

    list -> watch -> (time-out, so that a dead connection is noticed) -> watch -> ... -> 410 or any error -> list

A list replaces what was known; while the API server is away, what was known stands.
"""

import asyncio
import json
import logging
import os
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from octavo.router.dispatch.rules.endpoints import Slice, ready_addresses
from octavo.router.errors import RouterError

log = logging.getLogger(__name__)

PORT_NAME = "serve"
WATCH_TIMEOUT_S = 30
LIST_TIMEOUT_S = 10
MAX_BACK_OFF_S = 5.0
WARN_AGAIN_S = 60.0  # until the log has the same error again
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

Retarget = Callable[[frozenset[str]], None]


@dataclass(frozen=True, slots=True)
class ApiServer:
    """url: https://host:port. token_file is read for each request, because it rotates; None: no token."""

    url: str
    ca_file: Path | None = None
    token_file: Path | None = None


def in_cluster(environment: Mapping[str, str] = os.environ) -> ApiServer:
    """The API server as a pod sees it. Raises ValueError outside a pod."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ValueError("--endpoints works only in a pod: KUBERNETES_SERVICE_HOST and _PORT are not set")
    literal = f"[{host}]" if ":" in host else host
    return ApiServer(f"https://{literal}:{port}", _ACCOUNT / "ca.crt", _ACCOUNT / "token")


class Gone(RouterError):
    """The watch's resource version is too old: list again."""


class ApiRefused(RouterError):
    """The API server refused a list or a watch; the message is a sentence."""


class Endpoints:
    """Follows one Service; calls `retarget` whenever the set of serving leaders has changed, and after each list."""

    def __init__(self, api: ApiServer, namespace: str, service: str, retarget: Retarget) -> None:
        self._api = api
        self._path = f"{api.url}/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self._name = f"{namespace}/{service}"
        self._selector = f"kubernetes.io/service-name={service}"
        self._retarget = retarget
        self._slices: dict[str, Slice] = {}
        self._version = ""
        self._addresses: frozenset[str] | None = None
        self._heard_at = time.monotonic()
        self._warned = "", float("-inf")  # the last warning, and when

    @property
    def silent_s(self) -> float:
        """Seconds since the API server last answered: a healthy watch begins again every WATCH_TIMEOUT_S."""
        return time.monotonic() - self._heard_at

    async def run(self) -> None:
        """Until cancelled."""
        back_off = 0.1
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._tls())) as session:
            while True:
                try:
                    await self._list(session)
                    back_off = 0.1
                    while True:
                        await self._watch(session)
                        await asyncio.sleep(0.1)  # a server that ends each watch at once is not to be stormed
                except Gone:
                    log.info("endpoints %s: the watch is too old, listing again", self._name)
                except Exception as error:  # whatever an answer may be: what was known stands, and watching goes on
                    self._warn(error)
                    back_off = min(back_off * 2, MAX_BACK_OFF_S)
                await asyncio.sleep(back_off * random.uniform(0.5, 1.0))

    def _warn(self, error: Exception) -> None:
        """Warn of an error, of the same one again only after WARN_AGAIN_S."""
        text = str(error) if isinstance(error, ApiRefused) else f"{type(error).__name__}: {error}"
        now = time.monotonic()
        repeated = text == self._warned[0] and now - self._warned[1] < WARN_AGAIN_S
        log.log(logging.DEBUG if repeated else logging.WARNING, "endpoints %s: %s", self._name, text)
        if not repeated:
            self._warned = text, now

    async def _list(self, session: aiohttp.ClientSession) -> None:
        timeout = aiohttp.ClientTimeout(total=LIST_TIMEOUT_S)
        async with session.get(self._path, params=self._params(), headers=self._headers(), timeout=timeout) as response:
            await _check(response)
            body = await response.json()
        self._heard_at = time.monotonic()
        self._slices = {item["metadata"]["name"]: item for item in body["items"]}
        self._version = body["metadata"]["resourceVersion"]
        self._publish()

    async def _watch(self, session: aiohttp.ClientSession) -> None:
        params = self._params() | {
            "watch": "true",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_TIMEOUT_S),
        }
        # The server ends the watch; a connection that is silent for longer is dead.
        timeout = aiohttp.ClientTimeout(total=None, connect=LIST_TIMEOUT_S, sock_read=WATCH_TIMEOUT_S + 5)
        async with session.get(self._path, params=params, headers=self._headers(), timeout=timeout) as response:
            await _check(response)
            self._heard_at = time.monotonic()
            async for event in _events(response.content):
                self._heard_at = time.monotonic()
                self._take(event)

    def _take(self, event: Mapping[str, Any]) -> None:
        item = event["object"]
        if event["type"] == "ERROR":
            if item.get("code") == 410:
                raise Gone
            raise ApiRefused(f"the API server ended the watch: {str(item.get('message') or item.get('code'))[:200]}")
        self._version = item["metadata"]["resourceVersion"]
        if event["type"] == "DELETED":
            self._slices.pop(item["metadata"]["name"], None)
        elif event["type"] in ("ADDED", "MODIFIED"):
            self._slices[item["metadata"]["name"]] = item
        self._publish()

    def _publish(self) -> None:
        addresses = ready_addresses(self._slices.values(), PORT_NAME)
        if addresses != self._addresses:
            log.info("endpoints %s: %s", self._name, ", ".join(sorted(addresses)) or "none")
            self._retarget(addresses)
            self._addresses = addresses  # only now: a list whose handling failed is published again

    def _params(self) -> dict[str, str]:
        return {"labelSelector": self._selector}

    def _headers(self) -> dict[str, str]:
        if self._api.token_file is None:
            return {}
        return {"Authorization": f"Bearer {self._api.token_file.read_text().strip()}"}

    def _tls(self) -> ssl.SSLContext | bool:
        return True if self._api.ca_file is None else ssl.create_default_context(cafile=str(self._api.ca_file))


async def _check(response: aiohttp.ClientResponse) -> None:
    if response.status == 410:
        raise Gone
    if response.status >= 400:
        text = _message(await response.text())
        raise ApiRefused(f"the API server answered {response.status} to {response.url.path}: {text}")


def _message(body: str) -> str:
    """The message of a Status object, else the text itself, in one line."""
    try:
        text = str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        text = body
    return " ".join(text.split())[:200]


async def _events(content: aiohttp.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """One JSON object a line; lines may be longer than the reader's own limit."""
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield json.loads(line)
