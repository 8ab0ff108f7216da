"""The logits of one generation, token by token; where the device can draw tokens itself, several per wait.

The device goes on from a token it has drawn, and answers for all of them at once. The host then picks each token from its
own logits as ever, in its own arithmetic: what the device drew only decides whether the logits after it are of use. So
the text does not depend on how many tokens are in flight, and what follows a stop, an end or a token that the host picks
otherwise is forgotten: the next batch writes over its positions.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bridge.runtime.cancel import CancelToken
from bridge.sampling.token_picker import TokenPicker

if TYPE_CHECKING:
    from bridge.runtime.generate import Prefilled, Usage
    from bridge.runtime.model import Model

WAIT_SECONDS = 0.1
"""Tokens in flight come together: waiting much longer for them would be seen, as would a cancellation that waits."""


class Decoder:
    """``needs_logits``: the caller looks at all logits, so that nothing may be selected from them on the device."""

    def __init__(self, model: Model, picker: TokenPicker, needs_logits: bool) -> None:
        self._model, self._picker, self._needs_logits = model, picker, needs_logits
        self._in_flight = 1  # so that the first token is not late
        self._ahead: deque[tuple[int, Any]] = deque()  # tokens the device went on with, and the logits after them

    async def prefill(self, prompt: Sequence[int], cancel: CancelToken, usage: Usage,
                      on_prefill: Prefilled | None) -> Any:
        """The logits after the prompt, as far as the picker needs them (None when cancelled)."""
        selection, *_ = [*self._selections(1), None]
        return await self._model.prefill(prompt, cancel, usage, on_prefill, selection)

    async def decode(self, token: int, most: int) -> Any:
        """The logits after ``token``, which was picked and accepted; at most ``most`` tokens will be, with the next one."""
        if self._ahead:
            drawn, logits = self._ahead.popleft()
            if drawn == token:
                self._model.advance(token)
                return logits
            self._ahead.clear()
            self._in_flight = 1
        selections = self._selections(min(most, self._in_flight, self._model.n_ctx - self._model.n_past))
        started = time.perf_counter()
        if len(selections) > 1:
            logits = await self._decode_ahead(token, selections)
        else:
            logits = await self._model.decode(token, selections[0] if selections else None)
        self._adapt(max(1, len(selections)), time.perf_counter() - started)
        return logits

    async def _decode_ahead(self, token: int, selections: list) -> Any:
        found = await self._model.decode_ahead(token, selections)
        if not found:  # nothing could be told from the logits but by looking at all of them
            return await self._model.decode(token)
        first, *others = found
        self._ahead.extend(zip([selected.drawn for selected in found], others))
        return first

    def _selections(self, n: int) -> list:
        if self._needs_logits:
            return []
        selections = self._picker.selections(n)
        return selections[:self._model.tokens_ahead(selections[-1])] if selections else []

    def _adapt(self, n: int, seconds: float) -> None:
        """Twice as many next time, as long as they come within WAIT_SECONDS."""
        self._in_flight = max(1, min(2 * n, int(WAIT_SECONDS * n / max(seconds, 1e-6))))
