"""The operator's identity, by what its kubeconfig holds."""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from octavo.operator.cluster.kube import KubeUnreachable
from octavo.operator.cluster.login import login

LOG = logging.getLogger(__name__)


def _kubeconfig(folder: Path, user: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(path))


def test_a_token_of_the_kubeconfig_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _kubeconfig(tmp_path, {"token": "open"}, monkeypatch)
    assert login(LOG).as_http_headers() == {"Authorization": "Bearer open"}


def test_a_user_that_logs_in_by_a_program_gets_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = "client.authentication.k8s.io/v1"
    answer = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": "sesame"}}
    program = {"command": sys.executable, "args": ["-c", f"print({json.dumps(json.dumps(answer))})"]}
    how = {"apiVersion": version, "interactiveMode": "Never", **program}
    _kubeconfig(tmp_path, {"exec": how}, monkeypatch)
    found = login(LOG)
    assert found.server == "https://127.0.0.1:1" and found.as_http_headers() == {"Authorization": "Bearer sesame"}


def test_a_kubeconfig_that_is_not_there_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(KubeUnreachable, match="kubeconfig"):
        login(LOG)
