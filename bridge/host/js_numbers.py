"""Numbers as a page gives them: JavaScript's ``Number(x)`` and what counts as a usable option."""

from __future__ import annotations

import math
import re
from typing import Any

DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


def js_number(value: Any) -> float:
    """``Number(value)`` of a number, boolean or decimal text; NaN for anything else."""
    if isinstance(value, bool | int | float):
        return float(value)
    if isinstance(value, str) and DECIMAL.fullmatch(value.strip()):
        return float(value)
    return math.nan


def finite(value: Any) -> float | None:
    """A finite number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def positive_integer(value: Any, largest: int = 2**31 - 1) -> int | None:
    """``Number(value)`` truncated, if it is then at least 1; None otherwise."""
    number = js_number(value)
    if not number >= 1:
        return None
    return int(min(number, largest))
