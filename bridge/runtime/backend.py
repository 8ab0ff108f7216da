"""What the runtime asks of a backend: one session per loaded model.

A session owns the weights, the kv cache and the scratch of one model. It knows positions, not text: the runtime decides
which tokens stand where, and a position may be written again (that is how a prefix is kept and a tail dropped). Where a
model has recurrent state, ``states`` tells which positions it can go on from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from bridge.graph.cache import CacheLayout, CacheReach
from bridge.graph.states import StateCopies
from bridge.sampling.selection import Selected, Selection


class Flight(Protocol):
    async def land(self) -> list[Selected]:
        """What is selected after each token, with the token drawn, up to one from which nothing can be told.

        To be awaited once; one that nobody wants any more may be left alone. Raises DeviceError.
        """
        ...


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

    async def evaluate(self, tokens: Sequence[int], start: int, outputs: Sequence[int],
                       selection: Selection | None = None) -> Any:
        """Run tokens at positions start …, with the cache valid for all positions before ``start``.

        Where there is recurrent state, it must be held for that position (``states``), and what windowed layers see from
        there must not be overwritten (``reach``).

        Returns the logits of the tokens with the indices ``outputs`` (ascending) as a float32 buffer of
        len(outputs) * n_vocab values that is valid until the next call, or None when ``outputs`` is empty. With one output
        and a ``selection`` a backend may return the selected ones of them only (bridge.sampling.selection.Selected).
        Raises DeviceError.
        """
        ...

    def interrupt(self) -> None:
        """The batch under way may end early: its call then raises Cancelled, and its positions count as unwritten."""
        ...

    def tokens_ahead(self, selection: Selection) -> int:
        """How many tokens ``decode_ahead`` takes with such selections; 1 where it is not offered."""
        ...

    async def decode_ahead(self, token: int, start: int, selections: Sequence[Selection]) -> Flight:
        """Begin to run ``token`` at position ``start``, then the tokens the device draws itself by the selections, each the
        next, though perhaps fewer than there are selections.

        Two flights at most may be under way. Positions that the caller makes no use of count as unwritten. Raises
        DeviceError.
        """
        ...

    states: StateCopies
    """Which positions of the recurrent state are held; for models without one, all are."""

    async def embed(self, tokens: Sequence[int], start: int, outputs: Sequence[int], texts: Sequence[int] = ()) -> Any:
        """Like ``evaluate``, for the rows of the graph's embeddings.

        Where the graph reads whole texts, ``texts`` are the lengths of those that ``tokens`` make up; each begins at
        ``start``.
        """
        ...

    cache: CacheLayout
    """The parts of the kv cache, and what of them is saved."""

    reach: CacheReach
    """From which positions on the windowed layers of this context can be continued."""

    state_nbytes: int
    """Bytes of the recurrent state, in the form of ``read_kv``."""

    async def read_kv(self, n_tokens: int) -> bytes:
        """The cache of positions 0 … n_tokens - 1, in the one form that all backends share.

        For each attention layer in the graph's order (``graph.kv_layers``) first K, then V; each is a matrix of one row
        per position, in order, stored as bridge.graph.cache says, without padding. Of a layer with a window the rows are
        those of the last positions only (``CachePart.saved``). A backend that keeps its cache otherwise rearranges it
        here. ``n_tokens`` is 0 to n_ctx. Unless it is 0, the recurrent states (``graph.states``) follow, in order, as
        float32; ``states`` must hold them for that position. The result has cache.saved_nbytes(n_tokens) + state_nbytes
        bytes, or none. Raises DeviceError.
        """
        ...

    async def write_kv(self, data: bytes, n_tokens: int, earliest: int = 0) -> None:
        """Put back what ``read_kv(n_tokens)`` gave; positions from n_tokens on count as unwritten.

        ``earliest`` is the first position that the saved context could be continued from. The caller has checked the size.
        Raises DeviceError, after which no position can be trusted.
        """
        ...

    async def close(self) -> None:
        """Free everything; may be called twice."""
        ...
