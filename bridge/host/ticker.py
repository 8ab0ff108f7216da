"""Something done again and again while a call runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType


class Ticker:
    """Calls ``action`` every ``seconds`` inside a ``with`` block, or until ``stop``.

    Made of timers, not of a task: Pyodide's event loop complains about tasks that are cancelled.
    """

    def __init__(self, seconds: float, action: Callable[[], None]) -> None:
        self._seconds, self._action = seconds, action
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Ticker:
        self._wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._tick)

    def _tick(self) -> None:
        self._action()
        self._wait()
