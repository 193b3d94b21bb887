"""Rotary tables. Frequencies are theta^(-2i/d); llama3 divides the slow ones by `factor` and blends the ones between.

sin is stored with the sign of its half: rotated(x) = x * cos + swapped(x) * sin, swapped = (second half, first half).
"""

import math

import torch


def inverse_frequencies(dim: int, theta: float) -> torch.Tensor:
    """[dim / 2], float32. (Su 2021)"""
    return 1.0 / (theta ** (torch.arange(0, dim, 2, dtype=torch.int64).float() / dim))


def llama3_frequencies(
    frequencies: torch.Tensor, factor: float, low: float, high: float, original_context: int
) -> torch.Tensor:
    """Stretch wavelengths longer than original_context / low by factor; keep the ones under original_context / high."""
    wavelengths = 2 * math.pi / frequencies
    smooth = ((original_context / wavelengths - low) / (high - low)).clamp(0, 1)
    return (1 - smooth) * frequencies / factor + smooth * frequencies


def rope_table(frequencies: torch.Tensor, context: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and signed sin, each [context, 1, dim]."""
    angles = torch.outer(torch.arange(context, dtype=torch.float32), frequencies)
    cos, sin = angles.cos(), angles.sin()
    cosines = torch.cat((cos, cos), dim=-1).unsqueeze(1)
    sines = torch.cat((-sin, sin), dim=-1).unsqueeze(1)
    return cosines.to(dtype), sines.to(dtype)
