"""Channels to leaders: mutual TLS between pods, plaintext only within one machine.

Pods are dialled by address, so their certificates carry a fixed name per service and role instead. The files are read
again for each channel: a rotated leaf or bundle takes effect at the next connection.
"""

from collections.abc import Callable
from pathlib import Path

import grpc

from octavo.router.dispatch.rules.loopback import check_loopback
from octavo.router.dispatch.wire import CHANNEL_OPTIONS

Dial = Callable[[str], grpc.aio.Channel]


def dialler(tls_dir: Path | None, service_uid: str) -> Dial:
    """How this router opens a channel to `unix:/path` or `host:port`. Raises ValueError for plaintext to another
    machine."""

    def dial(address: str) -> grpc.aio.Channel:
        if address.startswith("unix:"):
            return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        if tls_dir is None:
            check_loopback(address)
            return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        name = ("grpc.ssl_target_name_override", f"worker.{service_uid}.octavo")
        return grpc.aio.secure_channel(address, _credentials(tls_dir), options=(*CHANNEL_OPTIONS, name))

    return dial


def _credentials(tls_dir: Path) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        root_certificates=(tls_dir / "ca.crt").read_bytes(),
        private_key=(tls_dir / "tls.key").read_bytes(),
        certificate_chain=(tls_dir / "tls.crt").read_bytes(),
    )
