"""The kernels of a session: the calls of a plan's steps under a tuning, and their pipelines, compiled and tested."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from bridge.errors import DeviceError
from bridge.gpu.calls import Call, CallBuilder, Choice, Pipeline
from bridge.gpu.device import Device
from bridge.gpu.selection import selection_calls, selection_step
from bridge.gpu.selftest import self_test
from bridge.gpu.steps import calls_of
from bridge.gpu.tuning import Tuning, without_features
from bridge.gpu.weights import Placement
from bridge.gpu.wgsl import kernel_source
from bridge.gpu.work import work_of
from bridge.graph.cache import CacheLayout
from bridge.graph.graph import LOGITS, OUTPUTS, TOKENS
from bridge.plan.plan import Plan

MEASURED_WORK = 5e8
"""Of the products that kernels are chosen by, in units of bridge.gpu.work: 50 MB of weights read for a token."""


class Kernels:
    """``steps`` are the plan's and the selection of tokens from its logits, ``calls`` what they consist of,
    ``step_of_call`` of which step each is, and ``pipelines`` are compiled.

    Tunings that differ only in the shapes of products have the same calls but for pipelines and grids, so that one may
    take the other's place when bind groups exist already.
    """

    def __init__(self, device: Device, plan: Plan, placement: Placement, cache: CacheLayout, tuning: Tuning, *,
                 n_ctx: int, n_ubatch: int, max_outputs: int) -> None:
        self.tuning = tuning
        self.pipelines: dict[Pipeline, Any] = {}
        self.steps = [*plan.steps, *([selection_step(plan)] if LOGITS in plan.results else ())]
        self._device, self._plan, self._placement, self._cache, self._n_ctx = device, plan, placement, cache, n_ctx
        self._most_rows = {TOKENS: n_ubatch, OUTPUTS: max_outputs}
        calls = self._numbered_calls(tuning)
        self.step_of_call, self.calls = [i for i, _ in calls], [call for _, call in calls]

    async def use_what_works(self) -> bool:
        """Make the kernels ready; False if those of features that the driver promises had to be done without.

        Raises DeviceError when others do not compile, or compute something else than they should.
        """
        try:
            await self._use(self.tuning)
            return True
        except DeviceError:
            plain = without_features(self.tuning)
            if self._device.lost or plain == self.tuning:
                raise
            await self._use(plain)
            return False

    async def may_use(self, tuning: Tuning) -> bool:
        """Whether another tuning's kernels work, which then take the place of those there are."""
        try:
            await self._use(tuning)
            return True
        except DeviceError:
            if self._device.lost:
                raise
            return False

    def heaviest_products(self, n_rows: int) -> list[int]:
        """The calls of products of one shape that are most of the work of a batch, as many as MEASURED_WORK allows."""
        alike: dict[tuple[Pipeline, int, int], list[tuple[float, int]]] = {}
        for i, call in enumerate(self.calls):
            step = self.steps[self.step_of_call[i]]
            if step.kernel == "matmul" and step.rows == TOKENS and call.takes(n_rows):
                work, _ = work_of(self._plan, self._placement, step, call, n_rows)
                alike.setdefault(call.choose(n_rows), []).append((work, i))
        heaviest = max(alike.values(), key=lambda found: sum(work for work, _ in found), default=[])
        most = max(1, int(MEASURED_WORK // max((work for work, _ in heaviest), default=1)))
        return [i for _, i in heaviest[:most]]

    async def compiled(self, tuning: Tuning, indices: Sequence[int], n_rows: int) -> list[Call]:
        """Some of the calls as another tuning has them, their pipelines for ``n_rows`` rows compiled."""
        calls = self._numbered_calls(tuning)
        found = [calls[i][1] for i in indices]
        await self._compile(call.choose(n_rows)[0] for call in found)
        return found

    def _numbered_calls(self, tuning: Tuning) -> list[tuple[int, Call]]:
        builder = CallBuilder(self._plan, self._placement, tuning, cache=self._cache,
                              max_workgroups=self._device.limits.max_compute_workgroups_per_dimension)
        calls = [(i, call) for i, step in enumerate(self._plan.steps) for call in calls_of(builder, step)]
        if LOGITS in self._plan.results:
            calls += [(len(self._plan.steps), call) for call in selection_calls(builder)]
        return calls

    async def _use(self, tuning: Tuning) -> None:
        calls = [call for _, call in self._numbered_calls(tuning)]
        await self._compile(choice.pipeline for call in calls for choice in self._reachable(call))
        await self_test(self._device, self._plan, tuning, self.pipelines, self._cache.types, self._n_ctx)
        self.tuning, self.calls = tuning, calls

    def _reachable(self, call: Call) -> Sequence[Choice]:
        """The choices that some batch takes; a few rows of results, or short batches, never fill a tile."""
        most = self._most_rows[call.rows]
        if call.rows_from > most:
            return ()
        if call.once or call.repeat > 1:
            return call.choices
        return call.between(call.rows_from, min(call.rows_below, most + 1)).choices

    async def _compile(self, wanted: Iterable[Pipeline]) -> None:
        """All at once; those that are there already stay."""
        new = [key for key in dict.fromkeys(wanted) if key not in self.pipelines]
        made = await asyncio.gather(*(
            self._device.create_pipeline(kernel_source(key.file, dict(key.values)), key.label, key.bindings) for key in new
        ))
        self.pipelines.update(zip(new, made))
