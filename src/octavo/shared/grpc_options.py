"""gRPC settings of both ends of each connection between pods: they must agree, or a server takes pings for an attack.

A peer that is gone without a word (a cut network, a stopped process) is noticed by keepalive: a ping after 5 s, and
the connection ends 5 s after a ping without an answer.
"""

MESSAGE_BYTES = 64 << 20  # of one message

OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # a minute by default, which would win over the one above
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 2_000),
)
