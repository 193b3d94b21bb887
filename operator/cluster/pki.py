"""Rotation of the keys and certificates of one service. No I/O; the clock is an argument.

    CA_NEXT_BEFORE its expiry     the next CA is created and added to the trust bundle
    PROPAGATION later             the next CA signs the leaves
    LEAF_LIFETIME later           the previous CA leaves the trust bundle

A new CA is in every bundle for PROPAGATION before it signs, and the old one stays for one LEAF_LIFETIME after, so that
two peers always trust each other even if a kubelet updates their files late.
"""

import datetime
from dataclasses import dataclass, replace
from functools import cached_property

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFETIME = datetime.timedelta(days=730)
LEAF_LIFETIME = datetime.timedelta(days=90)
LEAF_RENEW_BEFORE = datetime.timedelta(days=30)
CA_NEXT_BEFORE = datetime.timedelta(days=200)
PROPAGATION = datetime.timedelta(days=1)
SKEW = datetime.timedelta(minutes=5)  # clocks of nodes differ


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    @cached_property
    def parsed(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.certificate)

    @property
    def begins(self) -> datetime.datetime:
        return self.parsed.not_valid_before_utc

    @property
    def ends(self) -> datetime.datetime:
        return self.parsed.not_valid_after_utc

    def sign_key(self) -> ec.EllipticCurvePrivateKey:
        key = serialization.load_pem_private_key(self.key, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the CA's key is not an elliptic curve key")
        return key


@dataclass(frozen=True, slots=True)
class Authority:
    """The CA that signs, the next one if it is announced, and the certificate (PEM) of the previous one, or b""."""

    current: Pair
    next: Pair | None = None
    previous: bytes = b""

    @property
    def bundle(self) -> bytes:
        """Trust bundle of the peers, PEM."""
        return self.current.certificate + (self.next.certificate if self.next else b"") + self.previous


def authority(found: Authority | None, service_uid: str, now: datetime.datetime) -> Authority:
    """The CA after the rotation that is due at `now`; the same object if none is."""
    if found is None or now >= found.current.ends:
        return Authority(new_ca(service_uid, now))
    if found.next is not None and now >= found.next.begins + SKEW + PROPAGATION:
        return Authority(found.next, None, found.current.certificate)
    if found.next is None and now >= found.current.ends - CA_NEXT_BEFORE:
        return replace(found, next=new_ca(service_uid, now))
    if found.previous and now >= found.current.begins + SKEW + PROPAGATION + LEAF_LIFETIME:
        return replace(found, previous=b"")
    return found


def leaf_is_good(leaf: Pair, ca: Authority, dns_name: str, now: datetime.datetime) -> bool:
    """True if the leaf is signed by the current CA for this name and is not due for renewal."""
    try:
        certificate = leaf.parsed
        certificate.verify_directly_issued_by(ca.current.parsed)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        key_matches = serialization.load_pem_private_key(leaf.key, None).public_key() == certificate.public_key()
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.ExtensionNotFound):
        return False  # whatever is wrong with a foreign or damaged certificate, it is replaced
    return key_matches and names.get_values_for_type(x509.DNSName) == [dns_name] and now < leaf.ends - LEAF_RENEW_BEFORE


def new_ca(service_uid: str, now: datetime.datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(
        f"octavo CA {service_uid[:36]} {now:%Y%m%d%H%M%S}"
    )  # unlike its successor's: issuers are found by name
    builder = _builder(name, name, key, now, CA_LIFETIME)
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    builder = builder.add_extension(x509.BasicConstraints(True, 0), True).add_extension(usage, True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    return Pair(_pem(builder.sign(key, hashes.SHA256())), _key_pem(key))


def new_leaf(ca: Authority, dns_name: str, now: datetime.datetime) -> Pair:
    """A certificate for server and client authentication: each peer is a server to some peers, a client to others."""
    key, signer = ec.generate_private_key(ec.SECP256R1()), ca.current.sign_key()
    builder = _builder(_name(dns_name), ca.current.parsed.subject, key, now, LEAF_LIFETIME)
    both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = builder.add_extension(x509.BasicConstraints(False, None), True).add_extension(both, False)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(dns_name)]), False)
    return Pair(_pem(builder.add_extension(issuer, False).sign(signer, hashes.SHA256())), _key_pem(key))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
    lifetime: datetime.timedelta,
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - SKEW).not_valid_after(now + lifetime)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption())
