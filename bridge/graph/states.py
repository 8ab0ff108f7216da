"""Where a session keeps the recurrent state of its one context, and what positions that state can go on from.

Keys and values are kept for every position; a recurrent state is only ever that of the last one. So that a prompt can
be continued in another way than before, a session has two copies, and batches name the one they read and the one they
write: ``keep`` leaves one state alone, and whatever comes next goes to the other copy.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.errors import InputError

COPIES = 2


@dataclass(frozen=True)
class _Held:
    """One copy that holds the state after so many positions."""

    copy: int
    position: int


class StateCopies:
    """``is_recurrent`` is false for graphs without recurrent state; then every position can be gone on from."""

    def __init__(self, is_recurrent: bool) -> None:
        self.is_recurrent = is_recurrent
        self._current: _Held | None = None
        self._kept: _Held | None = None

    def resume_position(self, most: int) -> int:
        """The last position up to ``most`` that a batch can start at."""
        if not self.is_recurrent:
            return most
        return max((held.position for held in (self._current, self._kept) if held and held.position <= most), default=0)

    def keep(self, position: int) -> None:
        """Make sure that ``position``, if it is held, can be gone on from later, instead of the one kept before."""
        self._kept = self._held_at(position)

    def begin(self, start: int) -> tuple[int, int]:
        """For a batch at position ``start``: the copy to read (its content counts as zeros at 0) and the one to write.

        Raises InputError when no copy holds the state of that position. Until ``end`` only the kept one, if the batch
        follows it, can be gone on from.
        """
        if not self.is_recurrent:
            return 0, 0
        held = self._held_at(start)
        if held is None and start:
            raise InputError(f"a batch cannot start at position {start}: its recurrent state is not held")
        if self._kept and self._kept.position > start:
            self._kept = None  # it follows tokens that are now replaced
        self._current = None
        taken = self._kept.copy if self._kept else None
        read = held.copy if held else 0
        write = read if read != taken else 1 - read
        return read, write

    def end(self, write: int, position: int) -> None:
        """The batch is done: the copy ``write`` holds the state after ``position`` positions."""
        if self.is_recurrent:
            self._current = _Held(write, position)

    def holding(self, position: int) -> int:
        """The copy with the state after ``position`` positions, one of those ``resume_position`` gives."""
        held = self._held_at(position)
        if held is None:
            raise InputError(f"the recurrent state of position {position} is not held")
        return held.copy

    def restore(self, position: int) -> None:
        """Copy 0 was filled from outside with the state after ``position`` positions."""
        self._current, self._kept = (_Held(0, position) if self.is_recurrent and position else None), None

    def _held_at(self, position: int) -> _Held | None:
        return next((held for held in (self._current, self._kept) if held and held.position == position), None)
