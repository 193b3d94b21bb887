"""`octavo plan` and `octavo crd` need no cluster, and say what is wrong with a file."""

from pathlib import Path

import pytest
import yaml

from octavo.operator.api import crd
from octavo.operator.plan_cli import main

SERVICE = "apiVersion: octavo.dev/v1alpha1\nkind: InferenceService\nmetadata: {name: NAME}\nspec: {model: {uri: 'bundled://x'}}\n"


def test_every_object_is_printed_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(SERVICE.replace("NAME", "one") + "---\n" + SERVICE.replace("NAME", "two") + "---\nkind: Other\n")
    assert main(["-f", str(file)]) == 0
    out = capsys.readouterr().out
    found = {(item["kind"], item["metadata"]["name"]) for item in yaml.safe_load_all(out) if item}
    assert {
        ("StatefulSet", "one-0"),
        ("StatefulSet", "two-0"),
        ("Service", "one"),
        ("Deployment", "two-router"),
    } <= found
    assert "# StatefulSet one-0: 1 group of revision" in out
    assert "pod-template" not in out


def test_the_reason_why_nothing_will_serve_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(SERVICE.replace("NAME", "one").replace("bundled://x", "file:///models/x"))
    assert main(["-f", str(file)]) == 0
    assert "# HostPathNotAllowed: " in capsys.readouterr().out
    assert main(["-f", str(file), "--allow-host-path", "/"]) == 0
    assert "hostPath" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no InferenceService"),
        ("a: [", "not YAML"),
        ("kind: Pod\n", "holds no InferenceService"),
        ("---\n" + SERVICE.replace("NAME", "a.b"), "metadata.name must be a DNS label"),
        (SERVICE.replace("NAME", "one").replace("{model", "{modle"), "spec.modle: unknown field"),
        (SERVICE.replace("metadata: {name: NAME}", "metadata: x"), "metadata: expected an object"),
        (SERVICE.replace("metadata: {name: NAME}", "metadata: {}"), "metadata.name: is required"),
    ],
)
def test_a_bad_file_ends_with_2_and_says_why(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(text)
    assert main(["-f", str(file)]) == 2
    error = capsys.readouterr().err
    assert said in error and str(file) in error


def test_a_missing_file_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-f", "/nowhere.yaml"]) == 2
    assert "No such file" in capsys.readouterr().err


def test_the_crd_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert crd.main([]) == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed["spec"]["names"]["shortNames"] == ["infsvc"] and printed["spec"]["names"]["categories"] == ["octavo"]
