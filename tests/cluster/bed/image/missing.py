"""Writes an OCI archive with those blobs of an image that a containerd lacks.

usage: missing.py DIR NAME <digests that it has >archive     (DIR: what `buildah push dir:` wrote)
"""

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

OCI = "application/vnd.oci.image.index.v1+json"


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def main(folder: Path, name: str) -> None:
    have = set(sys.stdin.read().split())
    manifest = (folder / "manifest.json").read_bytes()
    content = json.loads(manifest)
    digest = "sha256:" + hashlib.sha256(manifest).hexdigest()
    entry = {
        "mediaType": content["mediaType"],
        "digest": digest,
        "size": len(manifest),
        "annotations": {"io.containerd.image.name": name},
    }
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as tar:
        add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        add(tar, "index.json", json.dumps({"schemaVersion": 2, "mediaType": OCI, "manifests": [entry]}).encode())
        add(tar, "blobs/sha256/" + digest.removeprefix("sha256:"), manifest)
        for blob in (content["config"]["digest"], *(layer["digest"] for layer in content["layers"])):
            if blob not in have:
                tar.add(folder / blob.removeprefix("sha256:"), "blobs/sha256/" + blob.removeprefix("sha256:"))


main(Path(sys.argv[1]), sys.argv[2])
