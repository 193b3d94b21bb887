"""Client of the leader pods' status: gRPC `octavo.v1.Status` with the service's TLS, as the role `operator`."""

import asyncio
import logging

import grpc

from octavo.operator.cluster.pki import Pair
from octavo.operator.groups import names
from octavo.proto.v1 import group_pb2, group_pb2_grpc
from octavo.shared.grpc_options import OPTIONS

TIMEOUT_S = 1.5

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
