"""What the proof on a GPU (tests/cluster/gpu) rests on, without a GPU: its device plugin and its images."""

import json
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from cluster.gpu import device_plugin, thin_images
from cluster.gpu.device_plugin import MESSAGES, Message, Plugin


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    """Two GPUs, what they share, and a file whose name only begins like that of one."""
    folder = tmp_path / "dev"
    folder.mkdir()
    for name in ("nvidia0", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia-caps"):
        (folder / name).touch()
    return folder


class Kubelet:
    """The kubelet's side of the API: it takes registrations."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[Message] = []
        self._server = grpc.server(ThreadPoolExecutor(1))
        read = MESSAGES["RegisterRequest"].FromString
        handler = grpc.unary_unary_rpc_method_handler(self._register, read, lambda one: one.SerializeToString())
        service = grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": handler})
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_insecure_port(f"unix://{folder}/kubelet.sock")
        self._server.start()

    def _register(self, request: Message, _: grpc.ServicerContext) -> Message:
        self.asked.append(request)
        return MESSAGES["Empty"]()

    def stop(self) -> None:
        self._server.stop(None).wait()


def test_a_kubelet_learns_of_the_gpus_and_gives_a_container_the_files_of_its_own(tmp_path: Path, devices: Path) -> None:
    kubelet = Kubelet(tmp_path)
    server = device_plugin.serve(Plugin(devices, Path("/opt/driver")), tmp_path)
    try:
        (request,) = kubelet.asked
        assert (request.version, request.resource_name) == ("v1beta1", "nvidia.com/gpu")
        with grpc.insecure_channel(f"unix://{tmp_path / request.endpoint}") as channel:
            listed = channel.unary_stream(
                "/v1beta1.DevicePlugin/ListAndWatch",
                lambda one: one.SerializeToString(),
                MESSAGES["ListAndWatchResponse"].FromString,
            )(MESSAGES["Empty"](), timeout=10)
            assert [(one.ID, one.health) for one in next(listed).devices] == [("0", "Healthy"), ("10", "Healthy")]
            listed.cancel()
            request = MESSAGES["AllocateRequest"]()
            request.container_requests.add(devices_ids=["10"])
            allocate = channel.unary_unary(
                "/v1beta1.DevicePlugin/Allocate",
                lambda one: one.SerializeToString(),
                MESSAGES["AllocateResponse"].FromString,
            )
            (given,) = allocate(request, timeout=10).container_responses
    finally:
        server.stop(None).wait()
        kubelet.stop()
    assert {one.container_path for one in given.devices} == {"/dev/nvidia10", "/dev/nvidiactl", "/dev/nvidia-uvm"}
    assert {one.host_path for one in given.devices} == {
        str(devices / n) for n in ("nvidia10", "nvidiactl", "nvidia-uvm")
    }
    (driver,) = given.mounts
    assert (driver.container_path, driver.host_path, driver.read_only) == ("/usr/local/nvidia", "/opt/driver", True)


def test_workers_look_for_the_driver_where_nodes_without_the_toolkit_mount_it() -> None:
    assert thin_images.environment("worker")["LD_LIBRARY_PATH"] == f"{device_plugin.DRIVER}/lib64"
    assert "LD_LIBRARY_PATH" not in thin_images.environment("router")


def test_thin_images_have_the_environment_of_the_dockerfile_and_our_sources(tmp_path: Path) -> None:
    archives = thin_images.build(tmp_path, Path("/bin/true"))
    assert {archive.name for archive in archives} == {
        f"{name}.tar" for name in ("pause", "coredns", *(f"octavo-{one}" for one in thin_images.COMPONENTS))
    }
    with tarfile.open(tmp_path / "octavo-worker.tar") as archive:
        (manifest,) = json.load(archive.extractfile("manifest.json"))  # type: ignore[arg-type]
        config = json.load(archive.extractfile(manifest["Config"]))["config"]  # type: ignore[arg-type]
        layer = archive.extractfile(manifest["Layers"][0])
        with tarfile.open(fileobj=layer) as files:
            names = set(files.getnames())
    variables = dict(one.split("=", 1) for one in config["Env"])
    assert manifest["RepoTags"] == ["localhost/octavo-worker:test"]
    assert (
        variables["PATH"].startswith("/opt/venv/bin:/")
        and variables["HOME"] == "/tmp"
        and config["User"] == "10001:10001"
    )
    assert {"opt/venv/bin/octavo", "opt/octavo/src/octavo/__main__.py", "opt/octavo/src/octavo/worker/main.py"} <= names
