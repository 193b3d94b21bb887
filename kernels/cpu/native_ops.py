"""The CPU backend in our own kernels, csrc/cpu/cpu.cpp: float32 on any processor.

What is fused: RMSNorm into the product that follows, SiLU and additions into the one before; attention reads blocks
where they lie. A row's result is the same, to the bit, whatever rows are beside it and however its prompt was cut.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from octavo.kernels.backend import HeadNorms
from octavo.kernels.cpu import torch_ops
from octavo.kernels.cpu.torch_ops import Rotary, embed, rotary, rotary_at
from octavo.kernels.paged import Paged, windowed

__all__ = ["embed", "rotary", "rotary_at", "windowed"]

LIBRARY = Path(__file__).resolve().parents[1] / "lib" / "cpu.so"
INTERFACE = 2  # cpu_interface of the sources
STORE, ADD, SILU_MUL = range(3)

_POINTER, _INT, _LONG, _FLOAT = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_float
_ARGUMENTS = {
    "cpu_panel": (),
    "cpu_use": (_INT,),
    "cpu_pack": (_POINTER, _LONG, _LONG, _LONG, _POINTER),
    "cpu_multiply": (_POINTER, _POINTER, _LONG, _LONG, _POINTER, _FLOAT, _INT, _POINTER, _INT),
    "cpu_norm": (_POINTER, _LONG, _LONG, _LONG, _POINTER, _FLOAT, _POINTER, _INT),
    "cpu_rope": (_POINTER, *[_LONG] * 4, *[_POINTER] * 4, _FLOAT, _POINTER, _LONG, _POINTER, _INT),
    "cpu_attention": (
        _POINTER,
        *[_LONG] * 5,
        _POINTER,
        *[_LONG] * 2,
        _POINTER,
        _LONG,
        _POINTER,
        *[_LONG] * 2,
        _POINTER,
        _INT,
    ),
}


@cache
def library() -> Any:
    """Raises OSError when it was not built for this machine."""
    found = ctypes.CDLL(str(LIBRARY))
    if getattr(found, "cpu_interface", int)() != INTERFACE:
        raise OSError(f"{LIBRARY} was built from other sources")
    for name, arguments in _ARGUMENTS.items():
        call = getattr(found, name)
        call.argtypes, call.restype = arguments, _INT if name in ("cpu_panel", "cpu_use") else None
    return found


class _Header(ctypes.Structure):
    _fields_ = (("panels", _POINTER), ("bias", _POINTER), ("inputs", _LONG), ("outputs", _LONG))


class Matrix:
    """A weight in panels, the only copy of it; padded with zeros to whole panels, as its bias is."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        calls = library()
        self.outputs, self.inputs = weight.shape
        self.panel: int = calls.cpu_panel()
        padded = -(-self.outputs // self.panel) * self.panel
        weight = _rows(weight)
        self._panels = torch.empty(padded * self.inputs)
        calls.cpu_pack(weight.data_ptr(), weight.stride(0), self.outputs, self.inputs, self._panels.data_ptr())
        self._bias = None
        if bias is not None:
            self._bias = torch.zeros(padded)
            self._bias[: self.outputs] = bias
        self._header = _Header(self._panels.data_ptr(), _address(self._bias), self.inputs, self.outputs)
        self.address = ctypes.addressof(self._header)


def matrix(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Matrix:
    return Matrix(weight, bias)


def linear(x: torch.Tensor, matrix: Matrix) -> torch.Tensor:
    return _multiply(x, matrix, STORE, x.new_empty((x.shape[0], matrix.outputs)))


def linear_add(x: torch.Tensor, matrix: Matrix, residual: torch.Tensor) -> None:
    if not residual.is_contiguous():
        residual += linear(x, matrix)
        return
    _multiply(x, matrix, ADD, residual)


def norm_linear(x: torch.Tensor, norm: torch.Tensor, eps: float, matrix: Matrix) -> torch.Tensor:
    return _multiply(x, matrix, STORE, x.new_empty((x.shape[0], matrix.outputs)), norm, eps)


def norm_linear_silu_mul(x: torch.Tensor, norm: torch.Tensor, eps: float, matrix: Matrix) -> torch.Tensor:
    return _silu_mul(x, matrix, norm, eps)


def linear_silu_mul(x: torch.Tensor, matrix: Matrix) -> torch.Tensor:
    return _silu_mul(x, matrix, None, 0.0)


def _silu_mul(x: torch.Tensor, matrix: Matrix, norm: torch.Tensor | None, eps: float) -> torch.Tensor:
    if matrix.outputs // 2 % matrix.panel:  # gate and up would share a panel
        wide = _multiply(x, matrix, STORE, x.new_empty((x.shape[0], matrix.outputs)), norm, eps)
        return torch_ops.silu_mul(wide)
    return _multiply(x, matrix, SILU_MUL, x.new_empty((x.shape[0], matrix.outputs // 2)), norm, eps)


def _multiply(
    x: torch.Tensor,
    matrix: Matrix,
    epilogue: int,
    out: torch.Tensor,
    norm: torch.Tensor | None = None,
    eps: float = 0.0,
) -> torch.Tensor:
    x = _rows(x)
    library().cpu_multiply(
        matrix.address,
        x.data_ptr(),
        x.stride(0),
        x.shape[0],
        _address(norm),
        eps,
        epilogue,
        out.data_ptr(),
        torch.get_num_threads(),
    )
    return out


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    x, out = _rows(x), x.new_empty(x.shape)
    library().cpu_norm(
        x.data_ptr(), x.stride(0), *x.shape, weight.data_ptr(), eps, out.data_ptr(), torch.get_num_threads()
    )
    return out


def rope_and_write(
    qkv: torch.Tensor, rotary: Rotary, pool: torch.Tensor, paged: Paged, norms: HeadNorms | None
) -> torch.Tensor:
    cos, sin = rotary
    (tokens, heads, dim), kv_heads = qkv.shape, pool.shape[1]
    library().cpu_rope(
        qkv.data_ptr(),
        tokens,
        heads,
        kv_heads,
        dim,
        cos.data_ptr(),
        sin.data_ptr(),
        _address(norms.q if norms else None),
        _address(norms.k if norms else None),
        norms.eps if norms else 0.0,
        pool.data_ptr(),
        pool.shape[2] * pool.shape[3],
        paged.write_index.data_ptr(),
        torch.get_num_threads(),
    )
    return qkv[:, : heads - 2 * kv_heads]


class Seen(NamedTuple):
    """What the tokens of a call see: as many as their lengths; without lengths, from `start` on each one more.

    window: at most so many, the last ones; 0 is all.
    """

    lengths: torch.Tensor | None
    start: int
    window: int


def attention(q: torch.Tensor, pool: torch.Tensor, paged: Paged) -> torch.Tensor:
    if paged.window:  # our kernel knows none
        return torch_ops.attention(q, pool, paged)
    q = q if q.stride()[1:] == (q.shape[2], 1) else q.contiguous()
    out = q.new_empty((q.shape[0], q.shape[1] * q.shape[2]))
    if paged.decode is not None:
        rows = paged.decode
        _attend(q[: rows.count], pool, _rows(rows.tables), Seen(rows.lengths, 0, paged.window), out)
    for row in paged.prefills:
        tokens = slice(row.begin, row.begin + row.count)
        _attend(q[tokens], pool, row.table.contiguous(), Seen(None, row.start, paged.window), out[tokens])
    return out


def _attend(q: torch.Tensor, pool: torch.Tensor, tables: torch.Tensor, seen: Seen, out: torch.Tensor) -> None:
    """tables: [t, n] with lengths, else [n]."""
    _, kv_heads, blocks, block_size, dim = pool.shape
    library().cpu_attention(
        q.data_ptr(),
        q.stride(0),
        q.shape[0],
        q.shape[1],
        kv_heads,
        dim,
        pool.data_ptr(),
        blocks,
        block_size,
        tables.data_ptr(),
        0 if seen.lengths is None else tables.stride(0),
        _address(seen.lengths),
        seen.start,
        seen.window,
        out.data_ptr(),
        torch.get_num_threads(),
    )


def _rows(x: torch.Tensor) -> torch.Tensor:
    """Rows may lie apart, but each is one run."""
    return x if x.stride(1) == 1 else x.contiguous()


def _address(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
