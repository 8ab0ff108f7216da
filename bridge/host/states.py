"""Saved contexts: as bytes for the page to keep, or as files in this runtime's own memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bridge.errors import BridgeError, InputError
from bridge.host.js_numbers import finite
from bridge.runtime import Model
from bridge.runtime.state import load_state, save_state


class StateFiles:
    """Files by path, as long as the runtime lives; saving again replaces one."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    async def save(self, model: Model, path: Any, tokens: Any) -> bool:
        name = state_path(path)
        self._files[name] = await state_bytes(model, tokens)
        return True

    async def load(self, model: Model, path: Any, capacity: Any) -> dict[str, Any]:
        data = self._files.get(state_path(path))
        if data is None:
            raise InputError("State load failed: this runtime has no state file of that path.")
        return await restored(model, data, capacity)

    def clear(self) -> None:
        self._files.clear()


async def state_bytes(model: Model, tokens: Any) -> bytes:
    with _named("State save failed"):
        return await save_state(model, [_token(token) for token in tokens or ()])


async def restored(model: Model, data: Any, capacity: Any) -> dict[str, Any]:
    """The documented answer of the state loads. ``capacity``: a number, None for the context size."""
    if not isinstance(data, bytes | bytearray | memoryview) or not len(data):
        raise InputError("State bytes are empty.")
    with _named("State load failed"):
        return {"tokens": await load_state(model, data, capacity if isinstance(capacity, int | float) else None)}


def state_path(path: Any) -> str:
    if not isinstance(path, str) or not path.strip():
        raise InputError("State file path is empty.")
    return path.strip()


def _token(value: Any) -> int:
    number = finite(value)
    if number is None:
        raise InputError(f"a token id is a number, got a value of type {type(value).__name__}")
    return int(number)


@contextmanager
def _named(what: str) -> Iterator[None]:
    try:
        yield
    except BridgeError as error:
        failure = BridgeError(f"{what}: {error}")
        failure.code = error.code
        raise failure from error
