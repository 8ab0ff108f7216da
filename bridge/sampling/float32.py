"""Rounding to float32, so that plain Python arithmetic takes the same decisions as llama.cpp's."""

from __future__ import annotations

from array import array

MAX_FLOAT32 = (2 - 2**-23) * 2.0**127


def float32(value: float) -> float:
    """The float32 nearest to ``value``; sums, products and quotients of float32s so rounded are the float32 operations."""
    return array("f", (value,))[0]
