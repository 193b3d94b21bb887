"""Errors of the kernels. Imports nothing: a process without PyTorch can name them.

KernelsError
├── MissingKernels   the libraries were not built for this installation
└── KernelError      CUDA refused a launch or a call
"""


class KernelsError(RuntimeError):
    """Root of the kernels' errors; the worker converts them where they reach its status."""


class MissingKernels(KernelsError):
    """The libraries were not built for this installation; the message names one and the command that builds it."""


class KernelError(KernelsError):
    """CUDA refused a launch or a call: the arguments or the device do not fit."""
