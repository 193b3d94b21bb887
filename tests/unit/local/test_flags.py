"""What a person gives to `octavo run` becomes a resource, or a complaint that names the flag."""

from pathlib import Path

import pytest

from octavo.local.flags import UsageError, parse_args
from octavo.worker.models.resolve import resolve


@pytest.mark.parametrize("name", ["plain", "my model", "50%", "a?b#c", "naïve", "~x", "%2e%2e"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    assert resolve(parse_args([str(folder)]).service.spec.model.uri) == folder


@pytest.mark.parametrize("model", ["/no/such", "file", "s3://bucket/key"])
def test_what_is_no_folder_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="model"):
        parse_args([model])
