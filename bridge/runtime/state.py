"""The context as bytes, to be put back later: into the same model, on any backend with the same cache type.

    magic         8 bytes   "LWBSTATE"
    version       u32       2
    cache type    16 bytes  "f16" or another of bridge.graph.cache, padded with zeros
    fingerprint   32 bytes  of the model (see bridge.runtime.load)
    n positions   u32       how many positions the cache holds
    earliest      u32       the first position the context can be continued from, but for 0
    n tokens      u32       how many tokens the saver recorded
    cache bytes   u64
    positions     i32 each  the token at each position
    tokens        i32 each  the saver's own list
    cache                   as bridge.runtime.backend.Session.read_kv gives it
    checksum      32 bytes  SHA-256 of everything before it

Numbers are little-endian. Everything is checked before the context is touched.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.errors import ContextOverflow, FormatError, InputError

if TYPE_CHECKING:
    from bridge.runtime.model import Model

MAGIC = b"LWBSTATE"
VERSION = 2
HEADER = struct.Struct("<8sI16s32sIIIQ")
CHECKSUM_NBYTES = 32
TOKEN_NBYTES = 4


@dataclass(frozen=True)
class State:
    """A parsed state whose bytes are whole; nothing says yet that it fits a model."""

    kv_type: str
    fingerprint: bytes
    positions: array
    tokens: array
    cache: memoryview
    earliest: int


async def save_state(model: Model, tokens: Sequence[int] = ()) -> bytes:
    """The model's context and a list of ``tokens`` to give back with it. Raises InputError, DeviceError."""
    recorded = _token_array(tokens)
    positions = array("i", model.tokens)
    cache = await model.read_cache()
    header = HEADER.pack(MAGIC, VERSION, model.kv_type.encode(), model.fingerprint, len(positions), model.earliest,
                         len(recorded), len(cache))
    checksum = hashlib.sha256()
    parts = [header, positions.tobytes(), recorded.tobytes(), cache]
    for part in parts:
        checksum.update(part)
    return b"".join([*parts, checksum.digest()])


async def load_state(model: Model, data: bytes | memoryview, token_capacity: float | None = None) -> list[int]:
    """Put a saved context back and return the tokens recorded with it.

    ``token_capacity`` is the longest list the caller takes, the context size by default. Later prompts may reuse the
    recorded tokens as far as they are those that were evaluated. Raises FormatError for bytes that are no whole state,
    InputError for a state of another model, ContextOverflow for one that does not fit; the context is then as it was.
    """
    state = parse_state(data)
    capacity = model.n_ctx if token_capacity is None else token_capacity
    if not 1 <= capacity <= model.n_ctx:
        raise InputError(f"the token capacity is {capacity}; it must be from 1 to the context size of {model.n_ctx}")
    if state.fingerprint != model.fingerprint:
        raise InputError("the state was saved from another model than the one that is loaded")
    if state.kv_type != model.kv_type:
        raise InputError(f"the state has a cache of type {state.kv_type}, the loaded model one of type {model.kv_type}")
    if len(state.positions) > model.n_ctx:
        raise ContextOverflow(f"the state holds {len(state.positions)} positions, which exceeds the context size of {model.n_ctx}")
    if len(state.tokens) > capacity:
        raise ContextOverflow(f"the state records {len(state.tokens)} tokens, which exceeds the token capacity of {capacity}")
    n_positions = len(state.positions)
    needed = model.saved_nbytes(n_positions)
    if len(state.cache) != needed:
        raise FormatError(f"the state has {len(state.cache)} cache bytes for {n_positions} positions; the model needs {needed}")
    if any(not 0 <= token < model.n_vocab for token in state.positions):
        raise FormatError(f"the state holds a token outside the model's vocabulary of {model.n_vocab} tokens")
    same = next((i for i, (a, b) in enumerate(zip(state.positions, state.tokens)) if a != b),
                min(len(state.positions), len(state.tokens)))
    await model.restore(state.positions, same, state.cache, state.earliest)
    return list(state.tokens)


def parse_state(data: bytes | memoryview) -> State:
    """Check that ``data`` is a whole, unaltered state of a known version. Raises FormatError."""
    data = memoryview(data).cast("B")
    if bytes(data[:len(MAGIC)]) != MAGIC:
        raise FormatError("the bytes are not a saved state: they do not begin with its magic")
    if len(data) < HEADER.size + CHECKSUM_NBYTES:
        raise FormatError(f"the state is cut off: it has {len(data)} bytes, and the shortest has {HEADER.size + CHECKSUM_NBYTES}")
    (version,) = struct.unpack_from("<I", data, len(MAGIC))
    if version != VERSION:
        raise FormatError(f"the state has version {version}; this build reads version {VERSION}")
    _, _, kv_type, fingerprint, n_positions, earliest, n_tokens, cache_nbytes = HEADER.unpack_from(data)
    tokens_start = HEADER.size + TOKEN_NBYTES * n_positions
    cache_start = tokens_start + TOKEN_NBYTES * n_tokens
    end = cache_start + cache_nbytes
    if len(data) != end + CHECKSUM_NBYTES:
        raise FormatError(f"the state has {len(data)} bytes; its header says {end + CHECKSUM_NBYTES}, so it is cut off or longer")
    if hashlib.sha256(data[:end]).digest() != bytes(data[end:]):
        raise FormatError("the state was altered: its checksum does not match")
    return State(kv_type.rstrip(b"\0").decode("ascii", "replace"), fingerprint, _ints(data[HEADER.size:tokens_start]),
                 _ints(data[tokens_start:cache_start]), data[cache_start:end], earliest)


def _ints(data: memoryview) -> array:
    values = array("i")
    values.frombytes(data)
    return values


def _token_array(tokens: Sequence[int]) -> array:
    try:
        return array("i", tokens)
    except (TypeError, OverflowError):
        raise InputError("the recorded tokens must be 32-bit integers") from None
