"""The operator asks a pod for its status over mutual TLS, by role and service, never by address."""

import datetime
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from octavo.operator.cluster import pki
from octavo.operator.cluster.status_client import get_status
from octavo.operator.groups import names
from octavo.operator.observing.polls import report
from octavo.proto.v1 import group_pb2, group_pb2_grpc

UID = "0b9f6a52-0b6f-4f0c-9d3c-7b6f7e1a2c3d"


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class Pod(group_pb2_grpc.StatusServicer):
    """Answers as a supervisor does and keeps the names of its callers."""

    def __init__(self, answer: group_pb2.GroupStatus) -> None:
        self.answer, self.callers = answer, list[bytes]()

    async def Get(
        self,
        request: group_pb2.StatusRequest,
        context: grpc.aio.ServicerContext[group_pb2.StatusRequest, group_pb2.GroupStatus],
    ) -> group_pb2.GroupStatus:
        self.callers += context.auth_context().get("x509_subject_alternative_name", [])
        return self.answer


@asynccontextmanager
async def _serving(pod: Pod, ca: pki.Authority, role: str) -> AsyncIterator[int]:
    leaf = pki.new_leaf(ca, names.dns_name(role, UID), _now())
    server = grpc.aio.server()
    group_pb2_grpc.add_StatusServicer_to_server(pod, server)
    credentials = grpc.ssl_server_credentials([(leaf.key, leaf.certificate)], ca.bundle, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


async def test_a_pod_is_asked_as_the_operator_and_answers() -> None:
    ca = pki.authority(None, UID, _now())
    failure = group_pb2.Failure(pod="chat-0-0", rank=0, reason="OOMKilled", exit_code=-9, message="m", time_ms=2500)
    answer = group_pb2.GroupStatus(service_uid=UID, revision="r1", phase=group_pb2.LOADING, progress_percent=71)
    answer.release = "7.0.0"
    answer.last_failure.CopyFrom(failure)
    answer.collective.append(group_pb2.GLOO)
    answer.activations.extend([group_pb2.GRPC, 9])  # of a worker that is newer
    pod, own = Pod(answer), pki.new_leaf(ca, names.dns_name("operator", UID), _now())
    async with _serving(pod, ca, "worker") as port:
        said = await get_status("127.0.0.1", UID, own, ca.bundle, port)
    assert said is not None and pod.callers == [f"operator.{UID}.octavo".encode()]
    reported = report(said, "pod-uid")
    assert (reported.phase, reported.progress_percent, reported.model) == ("LOADING", 71, None)
    assert (reported.collective, reported.activations, reported.release) == ("gloo", "grpc, 9", "7.0.0")
    assert reported.last_failure is not None and reported.last_failure.time_s == 2.5


async def test_a_pod_of_another_role_or_authority_is_not_believed() -> None:
    ca, stranger = pki.authority(None, UID, _now()), pki.authority(None, UID, _now())
    pod, own = Pod(group_pb2.GroupStatus(service_uid=UID)), pki.new_leaf(ca, names.dns_name("operator", UID), _now())
    for authority, role in ((ca, "router"), (stranger, "worker")):
        async with _serving(pod, authority, role) as port:
            assert await get_status("127.0.0.1", UID, own, ca.bundle, port) is None
    assert pod.callers == []


async def test_the_answer_of_another_services_pod_is_dropped() -> None:
    ca = pki.authority(None, UID, _now())
    own = pki.new_leaf(ca, names.dns_name("operator", UID), _now())
    async with _serving(Pod(group_pb2.GroupStatus(service_uid="other")), ca, "worker") as port:
        assert await get_status("127.0.0.1", UID, own, ca.bundle, port) is None


async def test_during_a_change_of_authority_old_and_new_leaves_are_both_believed() -> None:
    old = pki.authority(None, UID, _now())
    new = pki.Authority(pki.new_ca(UID, _now() + datetime.timedelta(seconds=1)), None, old.current.certificate)
    own = pki.new_leaf(new, names.dns_name("operator", UID), _now())
    pod = Pod(group_pb2.GroupStatus(service_uid=UID))
    async with _serving(pod, pki.Authority(old.current, new.current), "worker") as port:
        assert await get_status("127.0.0.1", UID, own, new.bundle, port) is not None
