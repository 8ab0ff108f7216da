"""A model on the GPU: its weights, cache and scratch, and the replay of its plan for each batch.

Life of a session: ``create`` checks that the kernels can run the plan on this device, before anything is downloaded, and
starts compiling; ``load_weights`` streams the file into buffers meanwhile, while the fastest kernels are found
(bridge.gpu.autotune); ``evaluate`` replays the program for a batch (bridge.gpu.programs).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from bridge.errors import Cancelled, DeviceError, InputError, UnsupportedError
from bridge.gpu.autotune import Autotune
from bridge.gpu.calls import Operand
from bridge.gpu.costs import Costs
from bridge.gpu.device import Device
from bridge.gpu.kernels import Kernels
from bridge.gpu.memory import FLOAT_BYTES, ROW_MULTIPLE, memory_of
from bridge.gpu.programs import Programs
from bridge.gpu.selection import (
    CHAINS,
    MAX_AHEAD,
    MAX_SELECTED,
    SELECTION,
    Chain,
    Flight,
    can_select,
    pack_selection,
    read_record,
    record_words,
)
from bridge.gpu.selftest_selection import selection_is_right
from bridge.gpu.tuning import Tuning, tuning_for
from bridge.gpu.weights import place_weights, segments_of, to_floats
from bridge.graph.cache import CacheLayout, CacheReach, cache_types
from bridge.graph.graph import EMBEDDINGS, LOGITS
from bridge.graph.states import StateCopies
from bridge.plan.batch import BatchLayout
from bridge.plan.plan import Plan
from bridge.sampling.selection import Selected, Selection

LONGEST_DISPATCH_S = 0.25
"""A dispatch cannot be cut; of longer ones the batch is taken in parts."""


class GpuSession:
    """See bridge.runtime.backend.Session. The device is the caller's; everything made on it here is freed by ``close``."""

    name = "webgpu"

    def __init__(self, device: Device, plan: Plan, *, n_ctx: int, n_ubatch: int, kv_type: str, max_outputs: int,
                 tuning: Tuning, exact: bool, autotune: bool) -> None:
        """Use ``create``."""
        self.n_ctx, self.n_ubatch, self.max_outputs = n_ctx, n_ubatch, max_outputs
        self.notes = list(device.notes)
        self._device, self._plan = device, plan
        self.cache = CacheLayout(plan.kv_layers, n_ctx, n_ubatch, *cache_types(kv_type))
        self.reach = CacheReach(self.cache.margin)
        self._placement = place_weights(plan, device.limits)
        self.memory = memory_of(plan, self._placement, self.cache, tuning, n_ubatch=n_ubatch, max_outputs=max_outputs)
        self._exact, self._autotune = exact, autotune
        self._kernels = Kernels(device, plan, self._placement, self.cache, tuning, n_ctx=n_ctx, n_ubatch=n_ubatch,
                                max_outputs=max_outputs)
        self.states = StateCopies(bool(plan.states))
        self.programs = Programs(device, plan, self._placement, self._kernels, self.memory, n_ubatch=n_ubatch,
                                 max_outputs=max_outputs)
        self._reads_whole_texts = any(step.kernel in ("text_attention", "text_mean") for step in plan.steps)
        self._preparation: asyncio.Task | None = None
        self._may_measure = asyncio.Event()
        self._selects = True
        self._flights: dict[str, Flight] = {}  # by readback
        self._n_flights = 0
        self._layout: BatchLayout | None = None
        self._closed = self._is_interrupted = False

    @classmethod
    async def create(cls, device: Device, plan: Plan, *, n_ctx: int, n_ubatch: int, kv_type: str = "f16",
                     max_outputs: int = 8, tuning: Tuning | None = None, exact: bool = True,
                     autotune: bool | None = None) -> GpuSession:
        """A session for a plan, still without weights.

        ``autotune``: whether to look for a faster tuning (None: not on software adapters), whose products must be of floats
        if ``exact``.
        Raises UnsupportedError for what the kernels cannot do and InputError for sizes the device cannot hold.
        """
        n_ubatch = min(n_ubatch, n_ctx)
        session = cls(device, plan, n_ctx=n_ctx, n_ubatch=n_ubatch, kv_type=kv_type,
                      max_outputs=min(max_outputs, n_ubatch), tuning=tuning or tuning_for(device.info, exact=exact),
                      exact=exact, autotune=not device.info.is_software if autotune is None else autotune)
        session._check_sizes()
        session._preparation = asyncio.ensure_future(session._prepare())
        return session

    @property
    def adapter(self) -> Mapping[str, str]:
        info = self._device.info
        return {"vendor": info.vendor, "architecture": info.architecture, "device": info.device,
                "description": info.description}

    async def load_weights(self, source: Any, tensors: Mapping[str, Any], progress: Any, cancel: Any) -> None:
        """Stream the plan's tensors from ``source`` to the device, in one pass in file order.

        All memory is allocated first, so that a device that has too little says so before the download.
        """
        try:
            self.programs.create()
            await self._device.check()
            self._may_measure.set()
        except DeviceError as error:
            raise DeviceError(f"the model and its context take {self.memory.nbytes} bytes in buffers on the device, which "
                              f"could not all be made: {error}") from error
        segments = segments_of(self._placement, tensors, {
            (operand.key, operand.part) if operand.kind == "matrix" else operand.key: buffer
            for operand, buffer in self.programs.buffers.items() if operand.kind in ("matrix", "vector")
        })
        upload = asyncio.ensure_future(self._device.upload(source, segments, progress, cancel))
        try:
            await _first_failure(upload, self._preparation)
        finally:
            await _settled(upload)
        host = upload.result()
        for tensor, vector in self._placement.vectors.items():
            if tensor in host:
                values = to_floats(host[tensor], vector.weight.type)
                buffer = self.programs.buffers[Operand("vector", vector.name)]
                self._device.write_buffer(buffer, FLOAT_BYTES * vector.at, values)
        factors = {name: to_floats(host[name], tensors[name].type.name) for name in self._placement.host}
        self._layout = BatchLayout(self._plan, factors)
        await self._device.check()
        progress(source.size, source.size)

    async def evaluate(self, tokens: Sequence[int], start: int, outputs: Sequence[int],
                       selection: Selection | None = None) -> memoryview | Selected | None:
        if selection is None or len(outputs) != 1 or not self._can_select(selection):
            return await self._run(LOGITS, tokens, start, outputs)
        record = await self._run(LOGITS, tokens, start, outputs, selection=selection)
        selected = read_record(record.cast("B").cast("I"), self._n_logits, selection)
        if selected is None:  # the sampler says what is wrong with them, or finds its way
            buffer = self.programs.buffers[Operand("slot", self._plan.results[LOGITS].slot)]
            return memoryview(await self._device.read_buffer(buffer, 0, FLOAT_BYTES * self._n_logits)).cast("f")
        return selected

    def tokens_ahead(self, selection: Selection) -> int:
        if self.states.is_recurrent or not self._can_select(selection):
            return 1
        return max(1, min(MAX_AHEAD, MAX_SELECTED - selection.k - len(selection.also)))

    async def decode_ahead(self, token: int, start: int, selections: Sequence[Selection]) -> Flight:
        self._check_batch([token], 1, start, start + len(selections))
        n_splits = [self.programs.splits_of(1, start + 1 + i) for i in range(len(selections))]
        n = next((i for i, n in enumerate(n_splits) if n != n_splits[0]), len(n_splits))  # as many as one program does
        chain, readback = Chain(selections[:n]), CHAINS[self._n_flights % len(CHAINS)]
        if readback in self._flights:
            await self._flights.pop(readback).settle()
        program, _ = self.programs.program(LOGITS, 1, 1, start + n, readback)
        params = [self._layout.pack([token], start + i, [0], selection=packed) for i, packed in enumerate(chain.packed())]
        self.reach.begin(start)
        under_way = self._device.begin_chain(program, params, chain.n_words, chain.link())
        self.reach.end(start + n)
        self._n_flights += 1
        self._flights[readback] = Flight(self._device, under_way, chain, self._n_logits)
        return self._flights[readback]

    async def embed(self, tokens: Sequence[int], start: int, outputs: Sequence[int],
                    texts: Sequence[int] = ()) -> memoryview | None:
        return await self._run(EMBEDDINGS, tokens, start, outputs, texts)

    async def _run(self, result: str, tokens: Sequence[int], start: int, outputs: Sequence[int],
                   texts: Sequence[int] = (), selection: Selection | None = None) -> memoryview | None:
        n = len(tokens)
        self._check_batch(tokens, len(outputs), start, start + n)
        size, rows, self._is_interrupted = self._part_size(result, n, outputs, start + n), None, False
        for begin in range(0, n, size):
            if self._is_interrupted:
                raise Cancelled("the batch was interrupted")
            part = tokens[begin:begin + size]
            wanted = [i - begin for i in outputs if begin <= i < begin + size]
            rows = await self._run_part(result, part, start + begin, wanted, texts, selection if wanted else None)
        return rows

    def interrupt(self) -> None:
        self._is_interrupted = True
        self._device.interrupt()

    def _check_batch(self, tokens: Sequence[int], m: int, start: int, end: int) -> None:
        self._require_open()
        n = len(tokens)
        if not 0 < n <= self.n_ubatch or m > self.max_outputs:
            raise InputError(f"a batch has {n} tokens and {m} output rows; this session takes 1 to {self.n_ubatch} tokens "
                             f"and at most {self.max_outputs} output rows")
        if not 0 <= min(tokens) <= max(tokens) < self._plan.n_token_ids:
            wrong = next(token for token in tokens if not 0 <= token < self._plan.n_token_ids)
            raise InputError(f"token {wrong} is not in the vocabulary; tokens are 0 to {self._plan.n_token_ids - 1}")
        if start < 0 or end > self.n_ctx:
            raise InputError(f"positions {start} to {end - 1} do not fit a context of {self.n_ctx}")

    def _can_select(self, selection: Selection) -> bool:
        return self._selects and can_select(selection, self._n_logits)

    @property
    def _n_logits(self) -> int:
        return self._plan.results[LOGITS].width

    async def _run_part(self, result: str, tokens: Sequence[int], start: int, outputs: Sequence[int],
                        texts: Sequence[int], selection: Selection | None) -> memoryview | None:
        end, n_rows, packed = start + len(tokens), len(outputs), b""
        if selection:
            n_rows, packed = record_words(selection), pack_selection(selection)
        program, _ = self.programs.program(result, len(tokens), len(outputs), end, SELECTION if selection else None)
        self.reach.begin(start)
        copies = self.states.begin(start)
        params = self._layout.pack(tokens, start, outputs, texts, copies, packed)
        try:
            rows = await self._device.run(program, params, n_rows, end)
        finally:
            self.reach.end(end)  # a batch that was not run to its end has written there, too
        self.states.end(copies[1], end)
        return rows

    def _part_size(self, result: str, n: int, outputs: Sequence[int], n_keys: int) -> int:
        """How many of a batch's tokens to run at once: all, unless a single dispatch would then keep the device too long.

        Where tokens see later ones they cannot be parted, nor where more than the last part has outputs.
        """
        size = n
        while size > ROW_MULTIPLE and not self._reads_whole_texts:
            half = -(-size // 2)
            if outputs and outputs[0] < (n - 1) // half * half:
                break
            _, work = self.programs.program(result, size, len(outputs), n_keys)
            if self._device.pacer.seconds(max(work.units(n_keys))) <= LONGEST_DISPATCH_S:
                break
            size = half
        return size

    @property
    def state_nbytes(self) -> int:
        return FLOAT_BYTES * sum(self._plan.states)

    async def read_kv(self, n_tokens: int) -> bytes:
        self._require_open()
        if not n_tokens:
            return b""
        copy = self.states.holding(n_tokens) if self.states.is_recurrent else 0
        parts = self._saved(n_tokens, copy)
        return b"".join([await self._device.read_buffer(buffer, offset, nbytes) for buffer, offset, nbytes in parts])

    async def write_kv(self, data: bytes, n_tokens: int, earliest: int = 0) -> None:
        self._require_open()
        start = 0
        for buffer, offset, nbytes in self._saved(n_tokens, 0) if n_tokens else ():
            self._device.write_buffer(buffer, offset, memoryview(data)[start:start + nbytes])
            start += nbytes
        self.states.restore(n_tokens)
        self.reach.restore(n_tokens, earliest)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._preparation is not None:
            await _settled(self._preparation)
        for flight in self._flights.values():
            await flight.settle()
        self._flights.clear()
        self.programs.free()

    def _require_open(self) -> None:
        if self._layout is None or self._closed:
            raise DeviceError("the session has no weights" if not self._closed else "the session was closed")

    def _saved(self, n_tokens: int, copy: int) -> list[tuple[Any, int, int]]:
        """What read_kv gives, in its order: buffer, offset and bytes."""
        buffers = self.programs.buffers
        caches = [(buffers[Operand(part.kind, part.layer)], first * part.row_nbytes, count * part.row_nbytes)
                  for part in self.cache.parts for first, count in part.saved(n_tokens)]
        widths = [FLOAT_BYTES * width for width in self._plan.states]
        return caches + [(buffers[Operand("state", i)], copy * nbytes, nbytes) for i, nbytes in enumerate(widths)]

    # preparation

    def _check_sizes(self) -> None:
        limits = self._device.limits
        most = min(limits.max_storage_buffer_binding_size, limits.max_buffer_size)
        for part in self.cache.parts:
            if part.width % 2:
                raise UnsupportedError(f"a cache row has {part.width} columns; the WebGPU backend needs an even number")
            if part.nbytes > most:
                raise InputError(f"a context of {self.n_ctx} tokens takes {part.nbytes} bytes in one cache "
                                 f"buffer; this device allows {most}, which is {most // part.row_nbytes} tokens")
        for slot, nbytes in zip(self._plan.slots, self.memory.slots.values(), strict=True):
            if nbytes > most:
                raise InputError(f"a batch of {self.n_ubatch} tokens with rows of {slot.width} floats is larger than the "
                                 f"{most} bytes this device allows in one buffer; use a smaller n_ubatch")
        if self.n_ubatch > limits.max_compute_workgroups_per_dimension:
            raise InputError(f"n_ubatch is {self.n_ubatch}; this device allows {limits.max_compute_workgroups_per_dimension}")

    async def _prepare(self) -> None:
        """Make all kernels that a batch may need, see that they compute what they should, and find faster ones."""
        kernels = self._kernels
        if not await kernels.use_what_works():
            self.notes.append("gpu_features_unusable:core_kernels_used")
        elif self._autotune:
            await self._may_measure.wait()
            programs = self.programs
            search = Autotune(self._device, self._plan.steps, programs.heaviest_products, programs.params, exact=self._exact,
                              n_ubatch=self.n_ubatch)
            if not await kernels.may_use(await search.best(kernels.tuning)):
                self.notes.append("gpu_tuning_unusable:default_used")
        if LOGITS in self._plan.results:
            self._selects = await selection_is_right(self._device, kernels.tuning, kernels.pipelines)
            if not self._selects:
                self.notes.append("gpu_selection_unusable:logits_read")

    @property
    def tuning(self) -> Tuning:
        """What its kernels were chosen by, once the weights are there."""
        return self._kernels.tuning

    def parameters(self, tokens: Sequence[int], start: int, outputs: Sequence[int]) -> bytes:
        """The parameter block of a batch; of its logits the best is wanted."""
        self._require_open()
        return self._layout.pack(tokens, start, outputs, selection=pack_selection(Selection(1)))

    @property
    def costs(self) -> Costs:
        """What each of the session's calls cannot do without."""
        return Costs(self._plan, self._placement, self.cache)

async def _first_failure(*futures: asyncio.Future) -> None:
    """Wait for all; when one fails, raise its error at once."""
    done, _ = await asyncio.wait(futures, return_when=asyncio.FIRST_EXCEPTION)
    for future in done:
        future.result()


async def _settled(future: asyncio.Future) -> None:
    """Cancel what is not done and swallow how it ended."""
    future.cancel()
    await asyncio.wait([future])
    if not future.cancelled():
        future.exception()
