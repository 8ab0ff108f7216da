"""A model on the CPU: its weights, cache and activations in one WebAssembly memory, and the replay of its program.

Life of a session: ``create`` lowers the plan to a program and lays out the memory, so that what does not fit or cannot
be computed is refused before anything is downloaded; ``load_weights`` streams the file into its place; ``evaluate``
hands over a parameter block and replays. The host (memory and threads) is the caller's and outlives the session.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from bridge.errors import DeviceError, InputError, UnsupportedError
from bridge.graph.cache import CacheLayout, CacheReach, cache_types
from bridge.graph.graph import EMBEDDINGS, LOGITS
from bridge.graph.states import StateCopies
from bridge.plan.batch import pack_head
from bridge.plan.plan import Plan, constant
from bridge.simd.host import Host, Job
from bridge.simd.memory import check_fits, constants_of, plan_memory
from bridge.simd.ops import Region, stride
from bridge.simd.program import EDITION, MAX_OPS, encode
from bridge.simd.steps import programs_of
from bridge.simd.weights import grids_of, spans_of

PRECISIONS = ("fast", "exact")
"""fast: activations of products with quantised weights are rounded to bytes, 32 at a time, as llama.cpp does;
exact: nothing is rounded below float32."""


class SimdSession:
    """See bridge.runtime.backend.Session."""

    name = "simd"
    adapter: Mapping[str, str] = {}

    def __init__(self, host: Host, plan: Plan, *, n_ctx: int, n_ubatch: int, kv_type: str, max_outputs: int,
                 threads: int, threads_batch: int, precision: str) -> None:
        """Use ``create``."""
        if host.edition != EDITION:
            raise DeviceError("the CPU kernels were built for another version of the engine; "
                              "load the page again without its cached files, or build both again")
        self.n_ctx, self.n_ubatch, self.max_outputs = n_ctx, n_ubatch, max_outputs
        self.threads, self.threads_batch = threads, threads_batch
        self._host, self._plan = host, plan
        self.cache = CacheLayout(plan.kv_layers, n_ctx, n_ubatch, *cache_types(kv_type))
        self.reach = CacheReach(self.cache.margin)
        made = programs_of(plan, cache=self.cache, exact=precision == "exact", has_relaxed=host.has_relaxed,
                           dot_mode=host.dot_mode)
        self._ops, self._formats = made.ops, made.formats
        most = max(map(len, self._ops.values()))
        if most > MAX_OPS:
            raise UnsupportedError(f"the model takes {most} operations; the CPU backend takes {MAX_OPS}")
        self._grids = grids_of(self._formats)
        self._memory = plan_memory(
            plan, self._ops, self._formats, made.packed, {name: len(data) for name, data in self._grids.items()},
            cache=self.cache, n_ubatch=n_ubatch, max_outputs=max_outputs, host_threads=host.n_threads,
            n_threads=max(threads, threads_batch),
        )
        check_fits(self._memory, host.max_bytes, n_ctx)
        self.states = StateCopies(bool(plan.states))
        self._has_weights = False
        self._jobs: dict[str, Job] = {}
        self._closed = False
        expanded = dict.fromkeys(format.type.name for format in self._formats.values() if format.is_expanded)
        self.notes: list[str] = [f"weights_expanded:{name}" for name in expanded]

    @property
    def compute(self) -> Mapping[str, Any]:
        """How it computes: threads for single tokens and for prompts, threads at hand, and the module in use."""
        return {"threads": self.threads, "threads_batch": self.threads_batch, "thread_pool": self._host.n_threads,
                "variant": self._host.variant}

    @classmethod
    async def create(cls, host: Host, plan: Plan, *, n_ctx: int, n_ubatch: int, kv_type: str = "f16",
                     max_outputs: int = 8, threads: int | None = None, threads_batch: int | None = None,
                     precision: str = "fast") -> SimdSession:
        """A session for a plan, still without weights.

        ``threads`` compute single tokens, ``threads_batch`` (as many by default) prompts; None takes all the host has,
        and more than that is capped. Raises UnsupportedError for what the kernels cannot do, InputError for what does
        not fit, and DeviceError when the memory is refused.
        """
        if precision not in PRECISIONS:
            raise InputError(f"precision is {precision!r}; it must be one of {', '.join(PRECISIONS)}")
        n_ubatch = min(n_ubatch, n_ctx)
        wanted = threads or host.n_threads
        wanted_batch = threads_batch or wanted
        session = cls(host, plan, n_ctx=n_ctx, n_ubatch=n_ubatch, kv_type=kv_type,
                      max_outputs=min(max_outputs, n_ubatch), threads=min(wanted, host.n_threads),
                      threads_batch=min(wanted_batch, host.n_threads), precision=precision)
        session.notes += _caps(host, wanted, wanted_batch)
        await session._prepare()
        return session

    async def load_weights(self, source: Any, tensors: Mapping[str, Any], progress: Any, cancel: Any) -> None:
        """Stream the plan's tensors from ``source`` into the memory, in one pass in file order."""
        memory = self._memory
        spans = spans_of(self._plan, self._formats, tensors, memory.regions)
        await self._host.upload(source, spans, memory.staging.address, memory.staging.nbytes, progress, cancel)
        for key, table in self._plan.rope_tables.items():
            factors = None
            if table.factors_tensor:
                area = memory.regions[Region("vector", table.factors_tensor)]
                factors = array("f", self._host.read(area.address, 2 * table.n_rot))
            self._host.write(memory.regions[Region("angles", key)].address, array("d", table.frequencies(factors)[0]))
        self._has_weights = True
        progress(source.size, source.size)

    async def evaluate(self, tokens: Sequence[int], start: int, outputs: Sequence[int], selection: Any = None) -> Any:
        return await self._run(LOGITS, tokens, start, outputs)  # in a page they select themselves: bridge.simd.js_host.Rows

    def interrupt(self) -> None:
        """Batches are run to their end."""

    def tokens_ahead(self, selection: Any) -> int:
        return 1

    async def embed(self, tokens: Sequence[int], start: int, outputs: Sequence[int], texts: Sequence[int] = ()) -> Any:
        return await self._run(EMBEDDINGS, tokens, start, outputs, texts)

    async def _run(self, result: str, tokens: Sequence[int], start: int, outputs: Sequence[int],
                   texts: Sequence[int] = ()) -> Any:
        self._require_open()
        n, m = len(tokens), len(outputs)
        if not 0 < n <= self.n_ubatch or m > self.max_outputs:
            raise InputError(f"a batch has {n} tokens and {m} output rows; this session takes 1 to {self.n_ubatch} tokens "
                             f"and at most {self.max_outputs} output rows")
        if not 0 <= min(tokens) <= max(tokens) < self._plan.n_token_ids:
            wrong = next(token for token in tokens if not 0 <= token < self._plan.n_token_ids)
            raise InputError(f"token {wrong} is not in the vocabulary; tokens are 0 to {self._plan.n_token_ids - 1}")
        if start < 0 or start + n > self.n_ctx:
            raise InputError(f"positions {start} to {start + n - 1} do not fit a context of {self.n_ctx}")
        self.reach.begin(start)
        copies = self.states.begin(start)
        params = pack_head(tokens, start, outputs, texts or (n,), copies)
        threads = self.threads if n == 1 else self.threads_batch
        rows = await self._host.run(self._jobs[result], params.tobytes(), threads, m)
        self.states.end(copies[1], start + n)
        self.reach.end(start + n)
        return rows

    @property
    def state_nbytes(self) -> int:
        return 4 * sum(self._plan.states)

    async def read_kv(self, n_tokens: int) -> bytes:
        self._require_open()
        if not n_tokens:
            return b""
        copy = self.states.holding(n_tokens) if self.states.is_recurrent else 0
        return b"".join(self._host.read(address, nbytes) for address, nbytes in self._saved(n_tokens, copy))

    async def write_kv(self, data: bytes, n_tokens: int, earliest: int = 0) -> None:
        self._require_open()
        start = 0
        for address, nbytes in self._saved(n_tokens, 0) if n_tokens else ():
            end = start + nbytes
            self._host.write(address, memoryview(data)[start:end])
            start = end
        self.states.restore(n_tokens)
        self.reach.restore(n_tokens, earliest)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._host.release()

    def _require_open(self) -> None:
        if not self._has_weights or self._closed:
            raise DeviceError("the session has no weights" if not self._closed else "the session was closed")

    def _saved(self, n_tokens: int, copy: int) -> list[tuple[int, int]]:
        """What read_kv gives, in its order: addresses and bytes; ``copy`` is that of the recurrent states."""
        regions, parts = self._memory.regions, []
        for part in self.cache.parts:
            address = regions[Region(part.kind, part.layer)].address
            parts += [(address + first * part.row_nbytes, count * part.row_nbytes) for first, count in part.saved(n_tokens)]
        states = [(regions[Region("state", i)].address, 4 * width) for i, width in enumerate(self._plan.states)]
        return parts + [(address + nbytes * copy, nbytes) for address, nbytes in states]

    async def _prepare(self) -> None:
        memory = self._memory
        await self._host.reserve(memory.nbytes)
        if "64" in self._host.variant:
            self.notes.append("core_mem64_active")
        elif self._host.prefers_memory64:
            self.notes += ["core_mem64_unavailable", "core_wasm32_active"]
        for name, data in self._grids.items():
            self._host.write(memory.regions[Region("grid", name)].address, data)
        for region in constants_of(self._ops):
            self._host.write(memory.regions[region].address, constant(region.key))
        for name, ops in self._ops.items():
            result, program = self._plan.results[name], memory.programs[name]
            self._host.write(program.address, encode(ops, memory.regions))
            self._jobs[name] = Job(
                program=program.unit, n_ops=len(ops), mail=memory.mail.unit,
                params=memory.params.unit, scratch=memory.scratch.unit, scratch_units=memory.scratch_units,
                result=memory.regions[Region("slot", result.slot)].address,
                row_nbytes=4 * result.width, row_stride=4 * stride(result.width), selected=memory.selected.address,
            )


def _caps(host: Host, threads: int, threads_batch: int) -> list[str]:
    """Notes on threads that were asked for and are not there."""
    if not host.is_shared:
        return ["threads_capped_no_coi"] if max(threads, threads_batch) > 1 else []
    wanted = {"threads_capped_pool": threads, "threads_batch_capped_pool": threads_batch}
    return [f"{note}:{host.n_threads}" for note, count in wanted.items() if count > host.n_threads]
