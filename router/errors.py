"""Errors of the router.

RouterError
├── RequestError        one request: a refusal or a failure, ready for its client
│   └── ModelChanged    the groups of its model have gone, and another model is served
├── QueueFull           one request: as many wait as may
├── StreamCut           one gRPC stream failed after its first message
├── SinkFailed          one request: the reader of its answer raised
├── StreamBroken        one leader: its stream cannot go on
│   └── VersionSkew     one leader: its release and this router's do not work together
├── ModelFilesInvalid   one model: the files that a leader served cannot be used
├── ApiRefused          the API server: it refused a list or a watch of the groups' addresses
├── Gone                the API server: the resource version of a watch is too old
└── CannotListen        start: an address cannot be used
"""


class RouterError(Exception):
    """Root of the router's errors."""
