"""What the runtime asks of a backend: one session per loaded model.

A session owns the weights, the kv cache and the scratch of one model. It knows positions, not text: the runtime decides
which tokens stand where, and a position may be written again (that is how a prefix is kept and a tail dropped).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Session(Protocol):
    name: str
    """"webgpu", "simd" or "reference"."""
    adapter: Mapping[str, str]
    """What the device says of itself (vendor, architecture, device, description …); empty for the CPU."""
    notes: list[str]
    """Runtime notes gathered while loading."""
    n_ctx: int
    n_ubatch: int
    """Most tokens in one ``evaluate``."""
    max_outputs: int
    """Most output rows in one ``evaluate``."""

    async def evaluate(self, tokens: Sequence[int], start: int, outputs: Sequence[int]) -> Any:
        """Run tokens at positions start …, with the cache valid for all positions before ``start``.

        Returns the logits of the tokens with the indices ``outputs`` (ascending) as a float32 buffer of
        len(outputs) * n_vocab values that is valid until the next call, or None when ``outputs`` is empty.
        Raises DeviceError.
        """
        ...

    async def close(self) -> None:
        """Free everything; may be called twice."""
        ...
