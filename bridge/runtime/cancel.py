"""Cancellation of one operation: a token that its owner sets and the operation looks at between steps."""

from __future__ import annotations

from collections.abc import Callable

from bridge.errors import Cancelled


class CancelToken:
    """Not a global flag: each operation has its own token, so that cancelling one never touches the next."""

    def __init__(self) -> None:
        self.cancelled = False
        self._listeners: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """Ask the operation to stop; further calls do nothing."""
        if self.cancelled:
            return
        self.cancelled = True
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()

    def on_cancel(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` once on cancellation (at once if that has happened); returns a function that forgets it."""
        if self.cancelled:
            listener()
            return lambda: None
        self._listeners.append(listener)

        def forget() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return forget

    def check(self) -> None:
        """Raise Cancelled if cancellation was asked for."""
        if self.cancelled:
            raise Cancelled("the operation was cancelled")
