"""How JavaScript's `String(value)` writes values that came from a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def js_text(value: Any) -> str:
    """`String(value)`: numbers as JS prints them, lists joined by commas, objects as their tag."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return js_number(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (list, tuple, bytes, bytearray)):
        return ",".join("" if item is None else js_text(item) for item in value)
    return "[object Object]" if isinstance(value, Mapping) else f"[object {type(value).__name__}]"


def js_number(value: float) -> str:
    """A double as `Number::toString` prints it: the shortest digits, an exponent from 1e21 and below 1e-6."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    # repr gives the shortest digits too, but places point and exponent by other rules.
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    point = len(whole) + int(exponent or 0)
    digits = whole + fraction
    point -= len(digits) - len(digits.lstrip("0"))
    digits = digits.strip("0")
    if not -6 < point <= 21:
        tail = "." + digits[1:] if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{tail}e{point - 1:+d}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if point >= len(digits):
        return sign + digits + "0" * (point - len(digits))
    return f"{sign}{digits[:point]}.{digits[point:]}"
