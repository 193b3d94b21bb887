"""Errors of the commands, of `octavo run`, of the benchmarks, and of the bundled model; and of what components share.

OctavoError
├── BundledError       no such bundled model, or its package is not installed
├── UsageError         `octavo run`, `octavo bench`: the arguments are invalid
├── StartFailed        `octavo run`: a group failed and a restart cannot help
├── AskError           `octavo run --prompt`: the server refused the prompt
├── NotServed          `octavo bench`: the service that it starts has exited
├── Unreachable        `octavo bench`: the server does not answer as OpenAI's API does
├── BadEvent           `octavo bench`: an event is none of OpenAI's protocol
├── BatchFailed        `octavo bench`: a request of a batch failed
├── TokenizerError     `octavo bench`: the folder has no usable tokenizer
├── DatasetError       `octavo bench`: no requests can be made from the records
├── PlotError          `octavo bench`: the plot cannot be drawn or written
└── InvalidSamplingParams  values that fit no message, or bytes that are none: a component's own error names its request
"""


class OctavoError(Exception):
    """Root of these errors."""


class UsageError(OctavoError):
    """Arguments are invalid, or cannot be met here; the message names the option or the field."""
