"""Between pods a router speaks to leaders over mutual TLS, and only to leaders of its own service."""

import datetime
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from support.router.fake_leader import OPTIONS, FakeLeader, Script
from support.router.jobs import Recorder, job, until

from octavo.proto.v1 import engine_pb2_grpc
from octavo.router.dispatch.assembly import FleetSettings, running
from octavo.router.jobs.generation import LENGTH


class Authority:
    """A CA, and leaves with one DNS name each."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign(self.key.public_key(), "ca", x509.BasicConstraints(True, None))

    def leaf(self, name: str, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(key.public_key(), name, x509.SubjectAlternativeName([x509.DNSName(name)]))
        (folder / "ca.crt").write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        (folder / "tls.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (folder / "tls.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return folder

    def _sign(self, key: ec.EllipticCurvePublicKey, name: str, extension: x509.ExtensionType) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")]))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(extension, critical=False)
            .sign(self.key, hashes.SHA256())
        )


@asynccontextmanager
async def secure_leader(folder: Path, port: int = 0) -> AsyncIterator[tuple[FakeLeader, str]]:
    credentials = grpc.ssl_server_credentials(
        [((folder / "tls.key").read_bytes(), (folder / "tls.crt").read_bytes())],
        root_certificates=(folder / "ca.crt").read_bytes(),
        require_client_auth=True,
    )
    leader = FakeLeader(Script(service_uid="u1"))
    server = grpc.aio.server(options=OPTIONS)
    engine_pb2_grpc.add_EngineServicer_to_server(leader, server)
    port = server.add_secure_port(f"127.0.0.1:{port}", credentials)
    await server.start()
    try:
        yield leader, f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def test_a_router_knows_its_leaders_by_name_whatever_their_address(tmp_path: Path) -> None:
    ca = Authority()
    worker, router = ca.leaf("worker.u1.octavo", tmp_path / "w"), ca.leaf("router.u1.octavo", tmp_path / "r")
    async with secure_leader(worker) as (_, address):
        async with running(FleetSettings(groups=(address,), tls_dir=router, service_uid="u1")) as fleet:
            sink = Recorder()
            fleet.submit(job(), sink)
            await sink.end()
            assert sink.finish == LENGTH


@pytest.mark.parametrize("name", ["worker.u2.octavo", "router.u1.octavo", "127.0.0.1"])
async def test_a_router_refuses_a_peer_of_another_name(tmp_path: Path, name: str) -> None:
    ca = Authority()
    worker, router = ca.leaf(name, tmp_path / "w"), ca.leaf("router.u1.octavo", tmp_path / "r")
    async with secure_leader(worker) as (leader, address):
        async with running(FleetSettings(groups=(address,), tls_dir=router, service_uid="u1")) as fleet:
            await until(lambda: any(upstream.last_error for upstream in fleet.fleet.upstreams))
            assert not fleet.ready and not leader.streams


async def test_new_certificates_are_used_at_the_next_connection(tmp_path: Path) -> None:
    old, new = Authority(), Authority()
    router = old.leaf("router.u1.octavo", tmp_path / "r")
    async with secure_leader(old.leaf("worker.u1.octavo", tmp_path / "w1")) as (_, address):
        async with running(FleetSettings(groups=(address,), tls_dir=router, service_uid="u1")) as fleet:
            await until(lambda: fleet.ready)
            other = secure_leader(new.leaf("worker.u1.octavo", tmp_path / "w2"))
            async with other as (_, moved):
                fleet.retarget((moved,))
                await until(lambda: any(upstream.last_error for upstream in fleet.fleet.upstreams))
                assert not fleet.ready
                new.leaf("router.u1.octavo", router)
                await until(lambda: fleet.ready)


async def test_plaintext_to_another_machine_is_never_tried() -> None:
    async with running(FleetSettings(groups=("192.0.2.1:8500",))) as fleet:
        await until(lambda: any("plaintext" in upstream.last_error for upstream in fleet.fleet.upstreams))
