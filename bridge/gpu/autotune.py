"""The fastest of a few kernels and tiles, measured on the device with the products of the model that is being loaded.

While the weights are on their way, the heaviest products of the plan run with each candidate, on the session's own
buffers; a quarter of a second tells most of it. Answers are kept on the device's machine, by all that they depend on. No
answer, a failure or a broken entry leaves the tuning as it was: whatever is chosen here, results are the same as far as
their precision goes.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import bridge
from bridge.errors import DeviceError
from bridge.gpu.device import F16, PACKED_DOT, SUBGROUPS, AdapterInfo, Device, Dispatch
from bridge.gpu.tuning import (
    LaneShape,
    TileShape,
    Tuning,
    with_bytes,
    with_products,
    with_staging,
    with_subgroups,
)
from bridge.plan.batch import pack_head

DEADLINE_S = 0.3
"""Of running candidates, all together; compiling them, which a device does beside other work, is not counted."""
RUN_S = 0.003
"""A run should take at least this long: waits end some tenths of a millisecond late."""
RUNS = 3
MOST_REPEATS = 64
WORTH = 0.95
"""What a candidate may take of the time of the choice before it, to be taken instead."""

LANES = ((64, 16, 2, 1 << 16), (128, 32, 4, 1 << 16), (64, 8, 4, 1 << 14), (256, 64, 2, 1 << 18), (64, 32, 1, 1 << 17))
"""Invocations of a workgroup, lanes and rows of a tile, and invocations wanted, for single tokens."""
TILES = ((128, 8, 4, 64), (128, 4, 4, 32), (64, 8, 4, 32), (64, 4, 4, 32))
"""Invocations of a workgroup, weight rows and rows of x of each, and rows of x of the workgroup, for prompts."""
PROMPT_ROWS = 64

Candidates = Mapping[str, Tuning]
Load = Callable[[Tuning, int], Awaitable[Sequence[Dispatch]]]
"""The dispatches to measure, compiled, with a tuning and for a number of rows of x."""


@dataclass(frozen=True)
class Question:
    """``candidates`` to a tuning that has been chosen so far; measured with ``n_rows`` rows of x."""

    name: str
    n_rows: int
    candidates: Callable[[Tuning], Candidates]


def questions(info: AdapterInfo, exact: bool, n_ubatch: int) -> list[Question]:
    asked = []
    if SUBGROUPS in info.features:
        asked.append(Question("subgroups", 1, lambda tuning: {
            "registers": with_subgroups(tuning), "workgroup memory": with_subgroups(tuning, False)}))
    may_pack = not exact and PACKED_DOT in info.features and info.subgroup_min_size >= 8
    asked.append(Question("x", 1, lambda tuning: _other_ways_of_x(tuning, may_pack)))
    asked.append(Question("lanes", 1, other_lanes))
    if n_ubatch >= PROMPT_ROWS:
        types = ["f32", *(name for name, needs in (("f16", F16), ("int8", PACKED_DOT))
                          if needs in info.features and not exact)]
        asked.append(Question("products", PROMPT_ROWS,
                              lambda tuning: {name: with_products(tuning, name) for name in types}))
        asked.append(Question("tiles", PROMPT_ROWS, other_tiles))
    return asked


def _other_ways_of_x(tuning: Tuning, may_pack: bool) -> Candidates:
    found = {"staged": with_staging(tuning, True), "direct": with_staging(tuning, False)}
    if may_pack and all(shape.subgroups for shape in tuning.matmul if isinstance(shape, LaneShape)):
        found["bytes"] = with_bytes(tuning)
    return found


def other_lanes(tuning: Tuning) -> Candidates:
    """The shapes for single tokens with other lanes and rows; none where their kernel has no lanes."""
    found: dict[str, Tuning] = {}
    if not isinstance(tuning.matmul[0], LaneShape):
        return found
    for workgroup, lanes, rows, invocations in LANES:
        found[f"{workgroup} {lanes} {rows} {invocations}"] = replace(tuning, matmul=tuple(
            replace(shape, workgroup=workgroup, lanes=lanes, rows=rows, invocations=invocations)
            if isinstance(shape, LaneShape) and shape.tokens == 1 else shape for shape in tuning.matmul))
    return found


def other_tiles(tuning: Tuning) -> Candidates:
    """The last tile, for the longest batches, in another size, in whatever types its elements are multiplied."""
    longest = max(shape.from_rows for shape in tuning.matmul)
    found = {}
    for workgroup, rows, columns, tokens in TILES:
        found[f"{workgroup} {rows} {columns} {tokens}"] = replace(tuning, matmul=tuple(
            replace(shape, workgroup=workgroup, rows=rows, columns=columns, tokens=tokens)
            if isinstance(shape, TileShape) and shape.from_rows == longest else shape for shape in tuning.matmul))
    return found


@dataclass
class Autotune:
    """One search. ``model`` says which products it is about: answers are kept by it, the adapter and the version.

    ``params`` is the session's parameter block.
    """

    device: Device
    model: Any
    load: Load
    params: Any
    exact: bool
    n_ubatch: int
    clock: Callable[[], float] = time.perf_counter
    spent: float = 0.0
    _handles: list[Any] = field(default_factory=list)

    async def best(self, tuning: Tuning) -> Tuning:
        """``tuning`` or what is faster. Raises DeviceError only when the device is lost."""
        asked = questions(self.device.info, self.exact, self.n_ubatch)
        key = self._key(tuning)
        answers = _answers(await self.device.recall(key))
        if answers is None:
            try:
                answers = await self._measure(tuning, asked)
            except DeviceError:
                if self.device.lost:
                    raise
                return tuning
            finally:
                self.device.free(self._handles)
            await self.device.keep(key, json.dumps(answers))
        for question in asked:
            tuning = question.candidates(tuning).get(answers.get(question.name), tuning)
        return tuning

    def _key(self, tuning: Tuning) -> str:
        facts = (bridge.__version__, self.device.info, self.exact, self.n_ubatch >= PROMPT_ROWS, tuning.matmul, LANES, TILES,
                 self.model)
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    async def _measure(self, tuning: Tuning, asked: Sequence[Question]) -> dict[str, str]:
        """The names of the answers; without an entry the tuning that was there before is best."""
        answers = {}
        result = self.device.create_buffer(4, label="autotune")
        self._readback = self.device.create_readback(result, 4, 4, 1)
        self._handles += [self._readback, result]
        for n_rows in dict.fromkeys(question.n_rows for question in asked):
            repeats, least = await self._before(tuning, n_rows)
            for question in (question for question in asked if question.n_rows == n_rows):
                for name, candidate in question.candidates(tuning).items():
                    if candidate == tuning or self.spent >= DEADLINE_S:
                        continue
                    seconds = await self._seconds(candidate, n_rows, repeats, least)
                    if seconds < WORTH * least:
                        answers[question.name], least = name, seconds
                tuning = question.candidates(tuning).get(answers.get(question.name), tuning)
        return answers

    async def _before(self, tuning: Tuning, n_rows: int) -> tuple[int, float]:
        """How often to repeat a candidate's dispatches, and how long the tuning so far takes for that.

        A submit and a wait take a while themselves; and a device that was idle becomes faster in the first milliseconds.
        """
        repeats, least = 1, await self._seconds(tuning, n_rows, 1)
        while least < RUN_S and repeats < MOST_REPEATS and self.spent < DEADLINE_S:
            repeats *= 4
            least = await self._seconds(tuning, n_rows, repeats)
        return repeats, least

    async def _seconds(self, tuning: Tuning, n_rows: int, repeats: int, bound: float | None = None) -> float:
        """The shortest of some runs, after one that is not counted; a run far above ``bound`` is the last."""
        dispatches = [*await self.load(tuning, n_rows)] * repeats
        program = self.device.create_program(dispatches, self.params, self._readback)
        self._handles.append(program)
        block, times = _block_of(n_rows), []
        for _ in range(1 + RUNS):
            begin = self.clock()
            await self.device.run(program, block, 1)
            times.append(self.clock() - begin)
            self.spent += times[-1]
            if bound is not None and len(times) > 1 and times[-1] > 2 * bound:
                break
        return min(times[1:])


def _block_of(n_rows: int) -> bytes:
    """As much of a parameter block as products read."""
    return pack_head([0] * n_rows, 0, [], (n_rows,), (0, 0)).tobytes()


def _answers(text: str | None) -> dict[str, str] | None:
    """What an entry says; None where there is none or it is no such thing."""
    try:
        found = json.loads(text) if text else None
    except ValueError:
        return None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        return None
    return found
