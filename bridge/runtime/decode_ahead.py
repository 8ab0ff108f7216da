"""The logits of one generation, token by token; where the device can draw tokens itself, several per wait.

The device goes on from a token it has drawn, and answers for all of them at once. The host then picks each token from
its own logits as ever, in its own arithmetic: what the device drew only decides whether the logits after it are of
use. So the text does not depend on how many tokens are in flight, and what follows a stop, an end or a token that the
host picks otherwise is forgotten: the next batch writes over its positions. While the host picks the tokens of one
flight, the device computes the next.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.runtime.backend import Flight
from bridge.runtime.cancel import CancelToken
from bridge.sampling.selection import Selected, Selection
from bridge.sampling.token_picker import TokenPicker

if TYPE_CHECKING:
    from bridge.runtime.generate import Prefilled, Usage
    from bridge.runtime.model import Model

WAIT_SECONDS = 0.1
"""Tokens in flight come together: waiting much longer for them would be seen, as would a cancellation that waits."""


@dataclass(frozen=True)
class _Begun:
    """A flight of ``n`` tokens, ``token`` first, that was begun ``at`` a time."""

    token: int
    n: int
    at: float
    flight: Flight


class Decoder:
    """``needs_logits``: the caller looks at all logits, so that nothing may be selected from them on the device;
    ``ends``: tokens after which it asks for no more."""

    def __init__(self, model: Model, picker: TokenPicker, needs_logits: bool, ends: Set[int]) -> None:
        self._model, self._picker, self._needs_logits, self._ends = model, picker, needs_logits, ends
        self._in_flight = 1  # so that the first token is not late
        self._ahead: deque[tuple[int, Selected]] = deque()  # tokens the device went on with, and the logits after them
        self._next: _Begun | None = None

    async def prefill(self, prompt: Sequence[int], cancel: CancelToken, usage: Usage,
                      on_prefill: Prefilled | None) -> Any:
        """The logits after the prompt, as far as the picker needs them (None when cancelled)."""
        return await self._model.prefill(prompt, cancel, usage, on_prefill, self._selection())

    async def decode(self, token: int, most: int) -> Any:
        """The logits after ``token``, which was picked and accepted; ``most`` tokens at most are still to come."""
        if self._ahead:
            drawn, logits = self._ahead.popleft()
            if drawn == token:
                self._model.advance(token)
                return logits
            self._turn_back()
        if self._next and self._next.token != token:
            self._turn_back()
        begun, self._next = self._next or await self._begin(token, most), None
        found = await self._land(begun) if begun else []
        if not found:  # none were to be in flight, or nothing can be told but from all logits
            return await self._decode_one(token, None if begun else self._selection())
        self._model.advance(token)
        drawn = [selected.drawn for selected in found]
        self._ahead.extend(zip(drawn, found[1:]))
        if len(found) == begun.n and not self._ends & set(drawn):
            self._next = await self._begin(drawn[-1], most - len(found), drawn)
        return found[0]

    async def _decode_one(self, token: int, selection: Selection | None) -> Any:
        started = time.perf_counter()
        logits = await self._model.decode(token, selection)
        self._adapt(1, time.perf_counter() - started)
        return logits

    async def _begin(self, token: int, most: int, drawn: Sequence[int] = ()) -> _Begun | None:
        """A flight that begins with ``token``, the last of those ``drawn`` since the context's end; None if one token
        is all that may be under way."""
        n_before = max(0, len(drawn) - 1)
        n = min(most, self._in_flight, self._model.n_ctx - self._model.n_past - n_before)
        selections = self._picker.selections(n, drawn) if n > 1 and not self._needs_logits else []
        if selections:
            selections = selections[:self._model.tokens_ahead(selections[-1])]
        if len(selections) < 2:
            return None
        started = time.perf_counter()
        return _Begun(token, len(selections), started, await self._model.decode_ahead(token, n_before, selections))

    async def _land(self, begun: _Begun) -> list[Selected]:
        found = await self._model.land(begun.flight)
        self._adapt(begun.n, time.perf_counter() - begun.at)
        return found

    def _selection(self) -> Selection | None:
        selections = [] if self._needs_logits else self._picker.selections(1)
        return selections[0] if selections else None

    def _turn_back(self) -> None:
        """The host has picked another token than the device: what follows that is of no use."""
        self._ahead.clear()
        self._next, self._in_flight = None, 1

    def _adapt(self, n: int, seconds: float) -> None:
        """Twice as many next time, as long as they come within WAIT_SECONDS."""
        self._in_flight = max(1, min(2 * n, int(WAIT_SECONDS * n / max(seconds, 1e-6))))
