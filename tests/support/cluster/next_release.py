"""A release after this one, as far as an upgrade sees it: another version, a new field of the CRD, new images."""

import shutil
import subprocess
from pathlib import Path

import yaml
from support.cluster.bed import Cluster
from support.cluster.deployed import CHART

VERSION, FIELD = "99.0.0", "speculation"  # spec.engine.speculation
IMAGE = "localhost/octavo-operator:next"
_BASE, _KNOWN = "localhost/octavo-operator:test", '"prefixCaching": fields.flag('
_ADDED = f'"{FIELD}": fields.flag("Guess tokens.", False),\n            {_KNOWN}'


def chart(folder: Path) -> Path:
    """This tree's chart with the next version and CRD; its operator's image is IMAGE where the values say so."""
    made = folder / "octavo"
    shutil.copytree(CHART, made)
    about = yaml.safe_load((made / "Chart.yaml").read_text())
    (made / "Chart.yaml").write_text(yaml.safe_dump({**about, "version": VERSION, "appVersion": VERSION}))
    path = made / "files" / "crds" / "inferenceservices.yaml"
    crd = yaml.safe_load(path.read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec["engine"]["properties"][FIELD] = {"type": "boolean", "default": False, "description": "Guess tokens."}
    path.write_text(yaml.safe_dump(crd))
    return made


def push_operator(bed: Cluster) -> None:
    """IMAGE on the nodes: the operator of this tree, whose version is VERSION and whose schema has FIELD."""
    container = _buildah("from", "--pull-never", _BASE)
    try:
        root = Path(_buildah("mount", container))
        (package,) = root.glob("**/*-packages/octavo")
        _replace(package / "__init__.py", "__version__ = ", f'__version__ = "{VERSION}"  # ')
        _replace(package / "operator" / "api" / "schema.py", _KNOWN, _ADDED)
        _buildah("umount", container)
        _buildah("commit", "-q", container, IMAGE)
    finally:
        _buildah("rm", container)
    bed.push(IMAGE)


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, f"{path} has {old!r} {text.count(old)} times"
    path.write_text(text.replace(old, new))


def _buildah(*arguments: str) -> str:
    done = subprocess.run(["buildah", *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"buildah {arguments}: {done.stderr}"
    return done.stdout.strip()
