"""A CA and the leaves that it makes for the roles of one service."""

import datetime
from pathlib import Path

import grpc
import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from octavo.worker.channel import OPTIONS

UID = "1234"


class Authority:
    """Of the service UID. A folder that it issues has key files as a Secret's volume has them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._sign("octavo-ca", self._key.public_key(), None)

    def issue(self, role: str, into: Path | None = None) -> Path:
        folder = into or self._folder / role
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        leaf = self._sign(role, key.public_key(), f"{role}.{UID}.octavo")
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        (folder / "ca.crt").write_bytes(self._certificate.public_bytes(pem))
        (folder / "tls.crt").write_bytes(leaf.public_bytes(pem))
        (folder / "tls.key").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
        return folder

    def dial(self, role: str, address: str) -> grpc.aio.Channel:
        """A channel of this role to a worker."""
        folder = self.issue(role)
        parts = [(folder / name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt")]
        target = ("grpc.ssl_target_name_override", f"worker.{UID}.octavo")
        return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(*parts), options=(*OPTIONS, target))

    def _sign(self, name: str, public_key: ec.EllipticCurvePublicKey, dns: str | None) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "octavo-ca")])
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public_key)
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
        builder = builder.not_valid_after(now + datetime.timedelta(days=1))
        builder = builder.add_extension(x509.BasicConstraints(ca=dns is None, path_length=None), critical=True)
        if dns is not None:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(dns)]), critical=False)
        return builder.sign(self._key, hashes.SHA256())
