"""What a person gives to `octavo run` becomes a resource, or a complaint that names the flag."""

from pathlib import Path

import pytest

from octavo.errors import UsageError
from octavo.local.commands import router_argv
from octavo.local.flags import parse_args
from octavo.worker.models.sources.resolve import resolve


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


def test_grpc_is_served_where_its_port_says() -> None:
    plain, with_grpc = parse_args(["--device", "cpu"]), parse_args(["--device", "cpu", "--grpc-port", "8033"])
    assert not [flag for flag in router_argv(plain, 8000, plain.grpc_port, []) if flag.startswith("--grpc")]
    assert "--grpc=127.0.0.1:8033" in router_argv(with_grpc, 8000, with_grpc.grpc_port, [])


def test_one_port_for_both_apis_is_refused() -> None:
    with pytest.raises(UsageError, match="--grpc-port"):
        parse_args(["--device", "cpu", "--port", "9000", "--grpc-port", "9000"])
