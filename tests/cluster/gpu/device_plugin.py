"""A device plugin for the bed: tells a node's kubelet of `nvidia.com/gpu`, one for each /dev/nvidiaN; hands them out.

It speaks the kubelet's device plugin API (v1beta1) over gRPC, as NVIDIA's and Google's do, and runs beside the kubelet
as a program of the node. A container gets the nodes of its GPUs and the shared ones, and the driver's folder at
/usr/local/nvidia where the node keeps its driver there. GPUs are never found unhealthy: a bed runs for minutes.

usage: device_plugin.py [--devices FOLDER] [--driver FOLDER]
"""

import argparse
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

RESOURCE = "nvidia.com/gpu"
KUBELET = Path("/var/lib/kubelet/device-plugins")  # of every kubelet, whatever its --root-dir
SOCKET = "octavo-bed-gpu.sock"
DRIVER = Path("/usr/local/nvidia")  # in the container
SHARED = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
Message = Any  # its class is made below

# What is used of the API, as its .proto has it: fields by their numbers, "*" in front of what is repeated.
API: dict[str, dict[str, tuple[int, str]]] = {
    "Empty": {},
    "DevicePluginOptions": {},
    "RegisterRequest": {"version": (1, "string"), "endpoint": (2, "string"), "resource_name": (3, "string")},
    "Device": {"ID": (1, "string"), "health": (2, "string")},
    "ListAndWatchResponse": {"devices": (1, "*Device")},
    "ContainerAllocateRequest": {"devices_ids": (1, "*string")},
    "AllocateRequest": {"container_requests": (1, "*ContainerAllocateRequest")},
    "Mount": {"container_path": (1, "string"), "host_path": (2, "string"), "read_only": (3, "bool")},
    "DeviceSpec": {"container_path": (1, "string"), "host_path": (2, "string"), "permissions": (3, "string")},
    "ContainerAllocateResponse": {"mounts": (2, "*Mount"), "devices": (3, "*DeviceSpec")},
    "AllocateResponse": {"container_responses": (1, "*ContainerAllocateResponse")},
}


def _messages() -> dict[str, type[Message]]:
    file = descriptor_pb2.FileDescriptorProto(name="deviceplugin.proto", package="v1beta1", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in API.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            label = kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL
            made = message.field.add(name=field, number=number, label=label)
            if (kind := kind.lstrip("*")) in API:
                made.type, made.type_name = kinds.TYPE_MESSAGE, f".v1beta1.{kind}"
            else:
                made.type = kinds.TYPE_STRING if kind == "string" else kinds.TYPE_BOOL
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1beta1.{name}")) for name in API}


MESSAGES = _messages()


def gpus(folder: Path) -> list[str]:
    """Ids of the GPUs: the numbers of their nodes."""
    found = (re.fullmatch(r"nvidia(\d+)", path.name) for path in folder.glob("nvidia*"))
    return sorted((match[1] for match in found if match), key=int)


class Plugin:
    """devices: the node's folder of device files; driver: the folder of its driver, None where that is in /usr/lib."""

    def __init__(self, devices: Path, driver: Path | None) -> None:
        self._devices, self._driver = devices, driver

    def options(self, _: Message, __: grpc.ServicerContext) -> Message:
        """Nothing before a container starts, and no preference among GPUs."""
        return MESSAGES["DevicePluginOptions"]()

    def watch(self, _: Message, context: grpc.ServicerContext) -> Iterator[Message]:
        """What there is, once; then nothing, for as long as the kubelet listens."""
        answer = MESSAGES["ListAndWatchResponse"]()
        for gpu in gpus(self._devices):
            answer.devices.add(ID=gpu, health="Healthy")
        yield answer
        gone = threading.Event()
        context.add_callback(gone.set)
        gone.wait()

    def allocate(self, request: Message, _: grpc.ServicerContext) -> Message:
        answer = MESSAGES["AllocateResponse"]()
        for container in request.container_requests:
            given = answer.container_responses.add()
            for name in (*(f"nvidia{gpu}" for gpu in container.devices_ids), *SHARED):
                if (host := self._devices / name).exists():
                    given.devices.add(container_path=f"/dev/{name}", host_path=str(host), permissions="rw")
            if self._driver is not None:
                given.mounts.add(container_path=str(DRIVER), host_path=str(self._driver), read_only=True)
            print(f"GPUs {', '.join(container.devices_ids)}: {given}", flush=True)
        return answer

    def handler(self) -> grpc.GenericRpcHandler:
        methods = {
            "GetDevicePluginOptions": _unary(self.options, "Empty"),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self.watch, *_codec("Empty")),
            "Allocate": _unary(self.allocate, "AllocateRequest"),
        }
        return grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods)


def _unary(method: Any, request: str) -> grpc.RpcMethodHandler:  # Any: a method of Plugin
    return grpc.unary_unary_rpc_method_handler(method, *_codec(request))


def _codec(request: str) -> tuple[Any, Any]:  # Any: (reads a request, writes a message)
    return MESSAGES[request].FromString, lambda message: message.SerializeToString()


def register(kubelet: Path) -> None:
    """Tells the kubelet of the plugin, which must listen already."""
    request = MESSAGES["RegisterRequest"](version="v1beta1", endpoint=SOCKET, resource_name=RESOURCE)
    with grpc.insecure_channel(f"unix://{kubelet / 'kubelet.sock'}") as channel:
        write = MESSAGES["RegisterRequest"].SerializeToString
        call = channel.unary_unary("/v1beta1.Registration/Register", write, MESSAGES["Empty"].FromString)
        call(request, timeout=30, wait_for_ready=True)


def serve(plugin: Plugin, kubelet: Path = KUBELET) -> grpc.Server:
    """Serves the plugin in the kubelet's folder, and registers it."""
    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((plugin.handler(),))
    (kubelet / SOCKET).unlink(missing_ok=True)
    server.add_insecure_port(f"unix://{kubelet / SOCKET}")
    server.start()
    register(kubelet)
    return server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=Path, default=Path("/dev"))
    parser.add_argument("--driver", type=Path, help="mounted at /usr/local/nvidia; not needed where it is in /usr/lib")
    args = parser.parse_args()
    server = serve(Plugin(args.devices, args.driver))
    print(f"registered: {RESOURCE} {gpus(args.devices)}", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
