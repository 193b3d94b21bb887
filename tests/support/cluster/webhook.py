"""A mutating admission webhook of one namespace: an HTTPS server in this process, which the API server calls."""

import base64
import datetime
import http.server
import ipaddress
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from support.cluster.bed import Bed

Patch = list[dict[str, Any]]  # Any: JSON


@contextmanager
def mutating(bed: Bed, namespace: str, folder: Path, resource: str, patch: Patch) -> Iterator[None]:
    """While the context lasts, every write of this resource of apps/v1 in the namespace is patched."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(patch))
    certificate, key = _self_signed(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    rules = [
        {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": [resource], "operations": ["CREATE", "UPDATE"]}
    ]
    bundle = base64.b64encode(certificate.read_bytes()).decode()
    webhook = {
        "name": "mirror.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{server.server_address[1]}/", "caBundle": bundle},
        "rules": rules,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
    }
    version = "admissionregistration.k8s.io/v1"
    kind = {"apiVersion": version, "kind": "MutatingWebhookConfiguration", "metadata": {"name": namespace}}
    bed.apply({**kind, "webhooks": [webhook]})
    try:
        yield
    finally:
        bed.client.delete("mutatingwebhookconfiguration", namespace)
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(patch: Patch) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            encoded = base64.b64encode(json.dumps(patch).encode()).decode()
            answer = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch", "patch": encoded}
            body = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: the tests' output is not this server's log."""

    return Handler


def _self_signed(folder: Path) -> tuple[Path, Path]:
    """Files of a certificate for 127.0.0.1 and of its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "webhook")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=1))
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    certificate = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    files = folder / "webhook.crt", folder / "webhook.key"
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    files[0].write_bytes(certificate.sign(key, hashes.SHA256()).public_bytes(pem))
    files[1].write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return files
