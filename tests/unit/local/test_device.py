"""`octavo run` computes on the flag's device, else on the file's, else on a GPU where there is one."""

from pathlib import Path

import pytest

from octavo.errors import UsageError
from octavo.local import main
from octavo.local.commands import Sockets, worker_argv
from octavo.local.flags import parse_args
from octavo.worker.devices import gpu

FILE = (
    "apiVersion: octavo.dev/v1alpha1\nkind: InferenceService\n"
    "metadata: {name: a}\nspec: {model: {uri: 'bundled://x'}, %s}\n"
)
ON_GPU, ON_CPU = "accelerator: {resource: nvidia.com/gpu}", "accelerator: {resource: cpu}"
SIXTEEN = ["--dtype", "bfloat16"]


@pytest.fixture(params=[False, True], ids=["no GPU", "a GPU"])
def present(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(gpu, "likely", lambda: request.param)
    return bool(request.param)


@pytest.mark.parametrize(
    ("file", "given", "device"),
    [
        ("", [], "auto"),
        ("", ["--device", "cuda"], "cuda"),
        (ON_GPU, [], "cuda"),
        (ON_CPU, [], "cpu"),
        (ON_GPU, ["--device", "cpu"], "cpu"),
        (ON_CPU, ["--device", "auto"], "auto"),
    ],
)
def test_the_flag_wins_over_the_file(tmp_path: Path, file: str, given: list[str], device: str) -> None:
    (tmp_path / "service.yaml").write_text(FILE % file)
    settings = parse_args(["-f", str(tmp_path / "service.yaml"), *given])
    assert settings.device == device and f"--device={device}" in worker_argv(settings, Sockets(tmp_path, 0))


def test_the_rules_count_with_the_defaults_of_the_device(present: bool) -> None:
    assert parse_args(["--device", "cuda", *SIXTEEN, "--max-requests", "512"]).service.spec.engine.max_requests == 512
    with pytest.raises(UsageError, match="dtype"):
        parse_args(["--device", "cpu", *SIXTEEN])
    if present:
        assert parse_args(SIXTEEN).service.spec.model.dtype == "bfloat16"
    else:
        with pytest.raises(UsageError, match="dtype"):
            parse_args(SIXTEEN)


@pytest.mark.parametrize("wrong", ["accelerator: gpu", "accelerator: {resource: [cpu]}", "accelerator: {resource: x}"])
def test_a_wrong_accelerator_is_named(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "service.yaml").write_text(FILE % wrong)
    with pytest.raises(UsageError, match=r"spec\.accelerator"):
        parse_args(["-f", str(tmp_path / "service.yaml")])


def test_a_gpu_that_is_not_there_ends_with_2_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "missing", lambda: "PyTorch sees no GPU")
    assert main(["--device", "cuda", "--kv-cache-memory", "64Mi"]) == 2
    assert "--device cuda: PyTorch sees no GPU; give --device cpu" in capsys.readouterr().err


def test_processes_log_at_the_level_of_the_flag(tmp_path: Path) -> None:
    assert "--log-level=warning" in worker_argv(parse_args([]), Sockets(tmp_path, 0))
    assert "--log-level=info" in worker_argv(parse_args(["--log-level", "info"]), Sockets(tmp_path, 0))
