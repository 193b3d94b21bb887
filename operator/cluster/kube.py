"""Asynchronous client of the Kubernetes API: the calls that the operator makes, each with a deadline.

KubeError            the API server refused the call; `status`, `reason` and `message` are the server's
└── KubeUnreachable  no answer: the connection failed or the deadline passed
"""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp

from octavo.operator.cluster.kopf_import import kopf
from octavo.operator.errors import OperatorError

FIELD_MANAGER = "octavo"
USER_AGENT = "octavo-operator"
CALL_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 5.0
PAGE = "100"  # objects
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
# The API server sends a bookmark about once a minute; a watch that is silent for longer is dead.
WATCH_SILENCE_S = 75.0
TOKEN_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
LOGIN_AGAIN_S = 10.0
TOKEN_MAX_AGE_S = 60.0  # bound tokens are rotated on disk well before they expire

Object = dict[str, Any]  # Any: an API object as JSON


class KubeError(OperatorError):
    """The API server refused a call."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason, self.message = status, reason, message

    @property
    def refused(self) -> bool:
        """True if the same call would be refused again, until the object, a quota, a policy or a permission changes.
        Objects of a namespace that is being deleted are no longer of interest."""
        if self.status == 500:
            return "webhook" in self.message
        return self.status in (400, 403, 404, 413, 422) and not self.is_termination

    @property
    def is_termination(self) -> bool:
        """True if the write was refused because the namespace is being deleted, or is gone."""
        return (self.status == 403 and "because it is being terminated" in self.message) or (
            self.status == 404 and self.message.startswith("namespaces ")
        )


class KubeUnreachable(KubeError):
    """The API server did not answer; a write may have been applied or not."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "Unreachable", message)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object and its path in the API."""

    api_version: str
    kind: str
    plural: str

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        root = "/api/v1" if self.api_version == "v1" else f"/apis/{self.api_version}"
        parts = [root, *(["namespaces", namespace] if namespace else []), self.plural]
        return "/".join([*parts, *([name] if name else []), *([subresource] if subresource else [])])


SERVICE_CR = Kind("octavo.dev/v1alpha1", "InferenceService", "inferenceservices")
POD = Kind("v1", "Pod", "pods")
SECRET = Kind("v1", "Secret", "secrets")
NODE = Kind("v1", "Node", "nodes")
EVENT = Kind("v1", "Event", "events")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
STATEFUL_SET = Kind("apps/v1", "StatefulSet", "statefulsets")
CONTROLLER_REVISION = Kind("apps/v1", "ControllerRevision", "controllerrevisions")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
SERVICE = Kind("v1", "Service", "services")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
ROLE = Kind("rbac.authorization.k8s.io/v1", "Role", "roles")
ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
PDB = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")

CHILD_KINDS = (
    STATEFUL_SET,
    CONTROLLER_REVISION,
    DEPLOYMENT,
    SERVICE,
    SERVICE_ACCOUNT,
    ROLE,
    ROLE_BINDING,
    PDB,
    NETWORK_POLICY,
)
BY_KIND = {kind.kind: kind for kind in (*CHILD_KINDS, POD, SECRET, EVENT, LEASE, SERVICE_CR)}


class Kube:
    """Client without retries: callers know which calls are safe to repeat. `login` is called again after a 401."""

    def __init__(self, login: Callable[[], kopf.ConnectionInfo]) -> None:
        self._login, self._logged_in = login, time.monotonic()
        access = self._access = login()
        self._server = access.server.rstrip("/")
        tls: ssl.SSLContext | bool = access.as_ssl_context() if self._server.startswith("https") else True
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls, limit=0, keepalive_timeout=30),
            timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            headers={"User-Agent": USER_AGENT},
        )
        self._token, self._token_read = "", -TOKEN_MAX_AGE_S

    async def close(self) -> None:
        await self._session.close()

    def _headers(self) -> dict[str, str]:
        """The service account's token is read again after TOKEN_MAX_AGE_S: the kubelet rotates the file."""
        if not TOKEN_FILE.exists() or not self._access.token:
            return self._access.as_http_headers()
        if time.monotonic() - self._token_read > TOKEN_MAX_AGE_S:
            self._token, self._token_read = TOKEN_FILE.read_text().strip(), time.monotonic()
        return {"Authorization": f"Bearer {self._token}"}

    async def _refused(self, status: int) -> None:
        """Log in again after a 401, at most every LOGIN_AGAIN_S: tokens of a credential plugin expire."""
        if status != 401 or time.monotonic() - self._logged_in < LOGIN_AGAIN_S:
            return
        self._logged_in = time.monotonic()
        self._access = await asyncio.to_thread(self._login)

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
        timeout_s: float = CALL_TIMEOUT_S,
        accept: str = "application/json",
    ) -> Object:
        url = self._server + path + (f"?{urlencode(query)}" if query else "")
        data = json.dumps(body).encode() if body is not None else None
        headers = {**self._headers(), "Content-Type": content_type, "Accept": accept}
        timeout = aiohttp.ClientTimeout(total=timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s))
        try:
            async with self._session.request(method, url, data=data, headers=headers, timeout=timeout) as response:
                text = await response.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise KubeUnreachable(f"{method} {path}: {type(error).__name__} {error}") from error
        answer = _json(text)
        if response.status >= 400:
            await self._refused(response.status)
            raise KubeError(
                response.status, str(answer.get("reason", "")), str(answer.get("message", text[:300] or path))
            )
        if not answer:
            raise KubeUnreachable(f"{method} {path}: the answer with status {response.status} is no JSON object")
        return answer

    async def get(
        self, kind: Kind, namespace: str | None, name: str, timeout_s: float = CALL_TIMEOUT_S
    ) -> Object | None:
        """The object; None if it does not exist. Raises KubeError."""
        try:
            return await self.call("GET", kind.path(namespace, name), timeout_s=timeout_s)
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    async def version(self, kind: Kind, namespace: str | None, name: str) -> str | None:
        """Resource version of an object, without reading its data; None if it does not exist. Raises KubeError."""
        try:
            answer = await self.call("GET", kind.path(namespace, name), accept=METADATA_ONLY)
        except KubeError as error:
            if error.status == 404:
                return None
            raise
        return str(answer["metadata"]["resourceVersion"])

    async def pages(self, kind: Kind, namespace: str | None, **query: str) -> AsyncIterator[tuple[list[Object], str]]:
        """(items, resource version) of a list, page by page, so that only one page is in memory."""
        query = {"limit": PAGE, **query}
        while True:
            items, metadata = await self._page(kind, namespace, query)
            yield items, str(metadata["resourceVersion"])
            if not metadata.get("continue"):
                return
            query["continue"] = metadata["continue"]

    async def _page(
        self, kind: Kind, namespace: str | None, query: Mapping[str, str]
    ) -> tuple[list[Object], Mapping[str, Any]]:
        answer = await self.call("GET", kind.path(namespace), query, timeout_s=60)
        items = [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in answer.get("items") or []]
        return items, answer["metadata"]

    async def list(self, kind: Kind, namespace: str | None, **query: str) -> tuple[list[Object], str]:
        """(items, resource version) of one page; the items get the apiVersion and kind that lists omit."""
        items, metadata = await self._page(kind, namespace, query)
        return items, str(metadata["resourceVersion"])

    async def watch(
        self, kind: Kind, namespace: str | None, version: str, selector: str, timeout_s: int
    ) -> AsyncIterator[tuple[str, Object]]:
        """(type, object) until the server ends the stream. Raises KubeError; KubeUnreachable also after a silence."""
        query = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true"}
        query |= {"timeoutSeconds": str(timeout_s)} | ({"labelSelector": selector} if selector else {})
        url = f"{self._server}{kind.path(namespace)}?{urlencode(query)}"
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S, sock_read=WATCH_SILENCE_S)
        try:
            async with self._session.get(url, headers=self._headers(), timeout=timeout) as response:
                if response.status >= 400:
                    answer = _json(await response.text())
                    await self._refused(response.status)
                    raise KubeError(response.status, str(answer.get("reason", "")), str(answer.get("message", "")))
                async for line in _lines(response.content):
                    event = json.loads(line)
                    yield event["type"], event["object"]
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise KubeUnreachable(f"watch {kind.plural}: {type(error).__name__} {error}") from error

    async def apply(self, kind: Kind, body: Object, timeout_s: float, subresource: str | None = None) -> Object:
        """Server-side apply as field manager `octavo`; returns the object as stored. Raises KubeError."""
        meta = body["metadata"]
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        path = kind.path(meta["namespace"], meta["name"], subresource)
        return await self.call("PATCH", path, query, body, "application/apply-patch+yaml", timeout_s)


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length: the stream's own readline has a limit that a large object exceeds."""
    rest = b""
    async for chunk in stream.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line


def _json(text: str) -> Object:
    try:
        answer = json.loads(text) if text else {}
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
