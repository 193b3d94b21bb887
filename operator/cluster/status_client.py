"""Clients of the pods' own status: of leaders by gRPC `octavo.v1.Status` with the service's TLS, as the role
`operator`; of routers by their health page, which is open to all."""

import asyncio
import json
import logging
from typing import Any

import grpc

from octavo.operator.cluster.pki import Pair
from octavo.operator.groups import names
from octavo.operator.groups.snapshot import RouterKeys, RouterReport
from octavo.proto.v1 import group_pb2, group_pb2_grpc
from octavo.shared.grpc_options import OPTIONS
from octavo.shared.key_problem import KeyProblem

TIMEOUT_S = 1.5
MAX_PAGE = 65_536  # bytes

log = logging.getLogger(__name__)


def channel_options(service_uid: str) -> list[tuple[str, str | int]]:
    """gRPC options: limits and keepalive of the worker's server; TLS verifies the fixed name, not the address."""
    return [
        ("grpc.ssl_target_name_override", names.dns_name("worker", service_uid)),
        *OPTIONS,
    ]


async def get_status(
    address: str, service_uid: str, own: Pair, bundle: bytes, port: int = names.STATUS
) -> group_pb2.GroupStatus | None:
    """Status of one pod; None: no answer, as is normal while a pod starts. Each call has a channel of its own, because
    addresses are reused."""
    credentials = grpc.ssl_channel_credentials(bundle, own.key, own.certificate)
    target = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    async with grpc.aio.secure_channel(target, credentials, channel_options(service_uid)) as channel:
        try:
            stub = group_pb2_grpc.StatusStub(channel)
            status = await stub.Get(group_pb2.StatusRequest(), timeout=TIMEOUT_S)
        except (grpc.aio.AioRpcError, TimeoutError) as error:
            code = error.code().name if isinstance(error, grpc.aio.AioRpcError) else "timeout"
            log.debug("no status from %s: %s", target, code)
            return None
    return status if status.service_uid == service_uid else None


async def get_statuses(
    addresses: dict[str, str], service_uid: str, own: Pair, bundle: bytes
) -> dict[str, group_pb2.GroupStatus]:
    """Statuses of all pods of {pod: address}, read concurrently; pods that did not answer are absent."""
    answers = await asyncio.gather(*(get_status(address, service_uid, own, bundle) for address in addresses.values()))
    return {pod: answer for pod, answer in zip(addresses, answers, strict=True) if answer is not None}


Page = dict[str, Any]  # Any: JSON


async def get_router_page(address: str, port: int = names.ROUTER_HTTP) -> tuple[int, Page] | None:
    """(status, JSON) of a router's /readyz: 200 while a group serves through it. None: no answer."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            answer = await _http_get(address, port, "/readyz")
        head, _, body = answer.partition(b"\r\n\r\n")
        page = json.loads(body)
        return int(head.split(b" ", 2)[1]), page if isinstance(page, dict) else {}
    except (OSError, TimeoutError, ValueError, IndexError) as error:
        log.debug("no answer of the router at %s: %r", address, error)
        return None


def router_report(status: int, page: Page, last: RouterReport | None, now: float) -> RouterReport | None:
    """The health page of a router as a RouterReport; None for another answer. now: Unix time in seconds."""
    if status not in (200, 503):
        return None
    groups, keys = page.get("groups"), router_keys(page)
    known = groups if isinstance(groups, dict) else {}
    skew = _skew(known)
    stale = "stale_seconds" in known
    # A router without a valid key answers 503 too: then its number of streams says whether it reaches a group.
    refuses = keys is not None and not keys.valid
    if status == 200 or (refuses and known.get("connected")):
        return RouterReport(None, stale, keys, skew)
    since = last.unconnected_since if last else None
    return RouterReport(float(int(now)) if since is None else since, stale, keys, skew)


def _skew(groups: Page) -> str:
    """Why the router does not work with the first group whose release is too far from its own; "" if it does."""
    missing = groups.get("missing")
    entries = [entry for entry in missing if isinstance(entry, dict)] if isinstance(missing, list) else []
    return next((str(entry["skew"])[:500] for entry in entries if entry.get("skew")), "")


def router_keys(page: Page) -> RouterKeys | None:
    """The entry `keys` of the page; None where there is none, or where it cannot be read."""
    try:
        keys: dict[str, Any] = page["keys"]  # Any: JSON
        problem = keys.get("problem")
        known = None if problem is None else KeyProblem(problem)
        return RouterKeys(keys["valid"] is True, known, str(keys.get("message", ""))[:300])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


async def _http_get(address: str, port: int, path: str) -> bytes:
    """The whole answer. One connection for a page a minute needs no client with a pool."""
    reader, writer = await asyncio.open_connection(address, port)
    try:
        host = f"[{address}]" if ":" in address else address
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while len(answer) < MAX_PAGE and (more := await reader.read(MAX_PAGE)):
            answer += more
        return answer
    finally:
        writer.close()
