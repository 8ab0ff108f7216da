"""Reading a text token by token: where it stands in its grammar."""

from __future__ import annotations

from bridge.sampling.grammar.machine import Machine, State
from bridge.sampling.grammar.utf8 import Pending, decode

Place = tuple[State, Pending | None]
"""Where a text stands: after its last whole character, and within the next one."""


class Reader:
    """Leads from place to place; ``start`` is the beginning of every text."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.start: Place = (machine.start, None)

    def after_token(self, place: Place, token: int, written: str | bytes | None) -> Place | None:
        """The place after a token that writes ``written``; None if the grammar does not allow it.

        A token's text is read character by character; only where it begins may the grammar also name it as a whole. One
        that writes nothing never leads on.
        """
        state, pending = place
        if written is None:
            return None
        if isinstance(written, bytes):
            by_text = self.after_bytes(place, written)
        elif pending is None:
            by_text = self._place(self.machine.run(state, written), None)
        else:
            by_text = None
        as_token = self.machine.step_token(state, token) if pending is None else None
        if as_token is None:
            return by_text
        # Taken as a whole, a token leaves no character to finish; a reading that does is then given up.
        return self.machine.union(as_token, by_text[0] if by_text and by_text[1] is None else None), None

    def after_bytes(self, place: Place, data: bytes) -> Place | None:
        """The place after some bytes, which need not be whole characters."""
        decoded = decode(data, place[1])
        if decoded is None:
            return None
        code_points, pending = decoded
        state: State | None = place[0]
        for code_point in code_points:
            state = self.machine.step(state, code_point)
            if state is None:
                return None
        return self._place(state, pending)

    def may_end(self, place: Place) -> bool:
        """Whether a text that stands here is whole."""
        state, pending = place
        return state.complete and pending is None

    def _place(self, state: State | None, pending: Pending | None) -> Place | None:
        if state is None or pending and not self.machine.lives_within(state, *pending.bounds):
            return None
        return state, pending
