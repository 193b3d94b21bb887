"""Mutual TLS: which peers may connect, in which role. Certificates carry one DNS name `ROLE.<service uid>.octavo`.

Servers ask for a client certificate and read their own files again at each handshake, so a renewed certificate needs no
restart. Unix sockets carry no TLS: their folder's permissions say which users may connect.
"""

from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from octavo.worker.channel import OPTIONS
from octavo.worker.config import Config, is_unix
from octavo.worker.errors import ConfigError

_FILES = ("tls.key", "tls.crt", "ca.crt")
# A peer that starts with us is looked for again soon, also by name: its pod may get its address later. Until then the
# name may have that of a pod that is gone, where nothing answers: gRPC would wait 20 s for it.
REDIAL = (
    ("grpc.min_reconnect_backoff_ms", 2000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.dns_min_time_between_resolutions_ms", 1000),
)


def server_credentials(tls_dir: Path) -> grpc.ServerCredentials:
    """Mutual TLS from ca.crt, tls.crt and tls.key of `tls_dir`. Raises ConfigError when they cannot be read."""
    try:
        newest = _read(tls_dir)
    except OSError as error:
        raise ConfigError(f"--tls-dir: {error}") from error

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        nonlocal newest
        try:
            files = _read(tls_dir)
        except OSError:
            return None  # half-way through being replaced: go on with what is loaded
        if files == newest:
            return None
        newest = files
        return _configuration(files)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(newest),
        fetch,  # type: ignore[arg-type]  # None says to gRPC that nothing changed; the stubs do not know it
        require_client_authentication=True,
    )


def _read(tls_dir: Path) -> tuple[bytes, bytes, bytes]:
    key, certificate, authority = ((tls_dir / name).read_bytes() for name in _FILES)
    return key, certificate, authority


def _configuration(files: tuple[bytes, bytes, bytes]) -> grpc.ServerCertificateConfiguration:
    key, certificate, authority = files
    return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=authority)


def bind(server: grpc.Server | grpc.aio.Server, flag: str, address: str, config: Config) -> None:
    """Listen on `address`, with TLS unless it is a Unix socket or the pod has none. Raises ConfigError."""
    try:
        if is_unix(address) or config.tls_dir is None:
            server.add_insecure_port(address)
        else:
            server.add_secure_port(address, server_credentials(Path(config.tls_dir)))
    except RuntimeError as error:
        raise ConfigError(f"{flag}: cannot listen on {address}: {error}") from error


def dial(address: str, config: Config) -> grpc.aio.Channel:
    """A channel to another worker of this service; it resolves the name again when it reconnects."""
    credentials, named = towards(address, config)
    options = (*OPTIONS, *REDIAL, *named)
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, credentials, options=options)


def towards(address: str, config: Config) -> tuple[grpc.ChannelCredentials | None, tuple[tuple[str, str], ...]]:
    """What a channel to another worker needs: what this one shows and believes, and the name that it expects. None is
    plaintext, on this machine."""
    if is_unix(address) or config.tls_dir is None:
        return None, ()
    key, certificate, authority = _read(Path(config.tls_dir))
    name = f"worker.{config.service_uid}.octavo"
    return grpc.ssl_channel_credentials(authority, key, certificate), (("grpc.ssl_target_name_override", name),)


class Roles:
    """Which peers may call. Without TLS every peer that can connect may."""

    def __init__(self, config: Config) -> None:
        self._secure = config.tls_dir is not None
        self._uid = config.service_uid

    async def require(self, role: str, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        """Abort the call with PERMISSION_DENIED unless the peer's certificate has `role` of this service.

        The context is any call's: its message types do not matter here.
        """
        if refusal := self.refusal(role, context):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, refusal)

    def refusal(self, role: str, context: Any) -> str | None:  # Any: grpc's, or grpc.aio's
        """The text of that refusal; None when the peer may call."""
        if not self._secure or context.peer().startswith("unix:"):
            return None
        wanted = f"{role}.{self._uid}.octavo"
        names = [name.decode() for name in context.auth_context().get("x509_subject_alternative_name", [])]
        return None if wanted in names else f"this call needs the name {wanted}; the certificate has {names}"
