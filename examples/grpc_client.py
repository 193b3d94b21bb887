"""Ask a served model over gRPC: `python examples/grpc_client.py [HOST:PORT] [PROMPT]`.

`octavo run --grpc-port 8033` serves one. The client is generated from proto/v1/octavo.proto, which any language can do.
"""

import sys

import grpc

from octavo.proto.v1 import octavo_pb2, octavo_pb2_grpc

# Answers of many prompts may exceed the 4 MiB that clients accept by default; pings find a server that vanished.
OPTIONS = (
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
)


def main(address: str = "127.0.0.1:8033", prompt: str = "What is the capital of France?") -> int:
    request = octavo_pb2.GenerateRequest(
        messages=[octavo_pb2.Message(role="user", content=prompt)],
        max_tokens=64,
        sampling=octavo_pb2.SamplingParameters(temperature=0.0),
    )
    with grpc.insecure_channel(address, options=OPTIONS) as channel:
        try:
            for chunk in octavo_pb2_grpc.InferenceStub(channel).GenerateStream(request, timeout=60):
                print("".join(output.text for output in chunk.outputs), end="", flush=True)
        except grpc.RpcError as error:
            metadata = dict(error.trailing_metadata() or ())
            field = metadata.get("octavo-error-field", "-")
            print(f"\n{error.code().name} at {field}: {error.details()}", file=sys.stderr)
            return 1
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
