"""Writes an OCI archive with the blobs of an image that a containerd lacks, its layers not compressed.

usage: missing.py DIR NAME <digests that it has >archive

DIR/manifest is buildah's own, of layers that are not compressed; DIR/layout is what `buildah push oci:` wrote, where
layers are compressed, and layers that no containerd lacks are missing.
"""

import gzip
import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path
from typing import IO, Any

INDEX = "application/vnd.oci.image.index.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
Blob = dict[str, Any]  # Any: digest, size and more, as JSON


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    put(tar, name, len(data), io.BytesIO(data))


def put(tar: tarfile.TarFile, name: str, size: int, data: IO[bytes]) -> None:
    info = tarfile.TarInfo(name)
    info.size = size
    tar.addfile(info, data)


def main(folder: Path, name: str) -> None:
    have, layout = set(sys.stdin.read().split()), folder / "layout"
    (written,) = json.loads((layout / "index.json").read_bytes())["manifests"]
    compressed = json.loads((layout / path(written)).read_bytes())
    layers = [layer | {"mediaType": LAYER} for layer in json.loads((folder / "manifest").read_bytes())["layers"]]
    manifest = json.dumps(compressed | {"layers": layers}).encode()
    entry = written | described(manifest) | {"annotations": {"io.containerd.image.name": name}}
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as tar:
        add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        add(tar, "index.json", json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).encode())
        add(tar, path(entry), manifest)
        if compressed["config"]["digest"] not in have:
            add(tar, path(compressed["config"]), (layout / path(compressed["config"])).read_bytes())
        for layer, file in zip(layers, compressed["layers"], strict=True):
            if layer["digest"] not in have:
                with gzip.open(layout / path(file)) as data:
                    put(tar, path(layer), layer["size"], data)


def described(data: bytes) -> Blob:
    return {"digest": "sha256:" + hashlib.sha256(data).hexdigest(), "size": len(data)}


def path(blob: Blob) -> str:
    return f"blobs/{blob['digest'].replace(':', '/')}"


main(Path(sys.argv[1]), sys.argv[2])
