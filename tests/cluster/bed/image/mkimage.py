"""Writes a container image archive from layer tars, without a builder.

usage: mkimage.py OUT NAME CONFIG_JSON LAYER_TAR...
"""

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def main(out: str, name: str, config: str, *layers: str) -> None:
    digests = [digest(Path(layer)) for layer in layers]
    image = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": [PATH]} | json.loads(config),
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + each for each in digests]},
            "history": [{"created_by": Path(layer).name} for layer in layers],  # builders want one entry a layer
        }
    ).encode()
    image_id = hashlib.sha256(image).hexdigest()
    manifest = {"Config": f"{image_id}.json", "RepoTags": [name], "Layers": [f"{each}.tar" for each in digests]}
    with tarfile.open(out, "w") as tar:
        add(tar, f"{image_id}.json", image)
        for each, layer in zip(digests, layers, strict=True):
            tar.add(layer, arcname=f"{each}.tar")
        add(tar, "manifest.json", json.dumps([manifest]).encode())


main(*sys.argv[1:])
