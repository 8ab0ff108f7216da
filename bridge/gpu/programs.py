"""What a session has on its device: buffers, the bind groups of its kernel calls, and a program for each kind of batch.

A program, the list of dispatches for a bucket of tokens and of output rows, is made when it is first needed and kept: it is a
list of what exists already, so that no GPU object is made per batch.
"""

from __future__ import annotations

from typing import Any

from bridge.gpu.calls import Call, Operand, quads
from bridge.gpu.device import Device, Dispatch
from bridge.gpu.formats import grid_bytes
from bridge.gpu.kernels import Kernels
from bridge.gpu.memory import FLOAT_BYTES, Memory
from bridge.gpu.pacing import Work
from bridge.gpu.selection import READBACK_WORDS
from bridge.gpu.tuning import Tuning
from bridge.gpu.weights import Placement
from bridge.gpu.work import work_of
from bridge.graph.graph import LOGITS, OUTPUTS, TOKENS
from bridge.plan.plan import Plan, Step, constant


class Programs:
    """Made empty; ``create`` makes all that a batch needs, ``free`` destroys it. ``buffers`` are by what they hold, ``params``
    is that of the parameter block."""

    def __init__(self, device: Device, plan: Plan, placement: Placement, kernels: Kernels, memory: Memory, *,
                 n_ubatch: int, max_outputs: int) -> None:
        self.buffers: dict[Operand, Any] = {}
        self.params: Any = None
        self._device, self._plan, self._placement, self._kernels, self._memory = device, plan, placement, kernels, memory
        self._n_ubatch, self._max_outputs = n_ubatch, max_outputs
        self._bind_groups: list[Any] = []
        self._readbacks: dict[str, Any] = {}
        self._programs: dict[tuple[int, int, int, str], tuple[Any, Work]] = {}
        self._handles: list[Any] = []

    def create(self) -> None:
        """Raises DeviceError; what the device finds wrong later, its ``check`` tells."""
        self._create_buffers()
        self._create_bind_groups()

    def free(self) -> None:
        programs = [program for program, _ in self._programs.values()]
        self._device.free([*programs, *self._bind_groups, *self._handles, *self.buffers.values()])
        for held in (self._programs, self._bind_groups, self._handles, self.buffers):
            held.clear()

    def _create_buffers(self) -> None:
        device, memory = self._device, self._memory
        for operand, nbytes in memory.buffers.items():
            self.buffers[operand] = device.create_buffer(nbytes, label=_label(operand))
        for operand in dict.fromkeys(operand for call in self._kernels.calls for operand in call.operands):
            if operand.kind in ("grid", "constant"):
                data = grid_bytes(operand.key) if operand.kind == "grid" else constant(operand.key).tobytes()
                self.buffers[operand] = device.create_buffer(len(data), label=_label(operand))
                device.write_buffer(self.buffers[operand], 0, data)
        self.params = device.create_buffer(memory.params, label="params")
        self._handles.append(self.params)
        for name, result in self._plan.results.items():
            self._create_readback(name, Operand("slot", result.slot), 4 * result.width, 16 * quads(result.width),
                                  self._max_outputs)
        for name in READBACK_WORDS.keys() & memory.readbacks.keys():
            self._create_readback(name, Operand("selection", "record"), FLOAT_BYTES, FLOAT_BYTES, READBACK_WORDS[name])

    def _create_readback(self, name: str, operand: Operand, row_nbytes: int, row_stride: int, n_rows: int) -> None:
        self._readbacks[name] = self._device.create_readback(self.buffers[operand], row_nbytes, row_stride, n_rows)
        self._handles.append(self._readbacks[name])

    def _create_bind_groups(self) -> None:
        """Of every call, with its dimensions in one buffer for all."""
        device, alignment = self._device, self._device.limits.min_uniform_buffer_offset_alignment
        stride = -(-max(len(call.dims) for call in self._kernels.calls) // alignment) * alignment
        dims = device.create_buffer(stride * len(self._kernels.calls), uniform=True, label="dims")
        self._handles.append(dims)
        device.write_buffer(dims, 0, b"".join(call.dims.ljust(stride, b"\0") for call in self._kernels.calls))
        for i, call in enumerate(self._kernels.calls):
            size = -(-len(call.dims) // 16) * 16
            entries = [(dims, i * stride, size), (self.params, 0, None),
                       *((self.buffers[operand], 0, None) for operand in call.operands)]
            self._bind_groups.append(device.create_bind_group(call.choices[0].pipeline.bindings, entries, call.name))

    def program(self, result: str, n_tokens: int, n_outputs: int, n_keys: int,
                selection: str | None = None) -> tuple[Any, Work]:
        """The program for a batch of that size whose last token sees ``n_keys`` positions, and what its dispatches cost.

        ``selection`` names the readback through which the best tokens come instead of their logits.
        """
        n_tokens, n_outputs = _bucket(n_tokens, self._n_ubatch), _bucket(n_outputs, self._max_outputs)
        n_splits, readback = self.splits_of(n_tokens, n_keys), selection or result
        key = n_tokens, n_outputs, n_splits, readback
        found = self._programs.get(key)
        if found is None:
            wanted = self.dispatches(n_tokens, n_outputs, result, n_splits, selecting=selection is not None)
            dispatches = [dispatch for _, _, dispatch in wanted]
            program = self._device.create_program(dispatches, self.params, self._readbacks[readback])
            found = self._programs[key] = program, Work([d.cost for d in dispatches])
        return found

    def splits_of(self, n_tokens: int, n_keys: int) -> int:
        """Into how many shares the positions are split for a batch whose last token sees ``n_keys`` of them."""
        return self._kernels.tuning.splits_of(n_keys) if n_tokens == 1 else 1

    @property
    def n_dispatches(self) -> int:
        """Dispatches for one token and its logits, which two more look through."""
        unused = self._unused(LOGITS, selecting=False)
        return sum(i not in unused and call.takes(1) for i, call in zip(self._kernels.step_of_call, self._kernels.calls))

    def dispatches(self, n_tokens: int, n_outputs: int, result: str = LOGITS, n_splits: int = 1,
                   selecting: bool = False) -> list[tuple[Step, Call, Dispatch]]:
        """What a batch of so many tokens and output rows consists of, in order."""
        unused = self._unused(result, selecting)
        rows = {TOKENS: n_tokens, OUTPUTS: n_outputs}
        return [(step, call, self._dispatch(step, call, bind_group, rows[call.rows]))
                for i, call, bind_group in zip(self._kernels.step_of_call, self._kernels.calls, self._bind_groups)
                if i not in unused and call.takes(rows[call.rows], n_splits) for step in [self._kernels.steps[i]]]

    async def heaviest_products(self, tuning: Tuning, n_rows: int) -> list[Dispatch]:
        """What a search for a tuning measures: see Kernels.heaviest_products."""
        indices = self._kernels.heaviest_products(n_rows)
        calls = await self._kernels.compiled(tuning, indices, n_rows)
        return [self._dispatch(self._plan.steps[self._kernels.step_of_call[i]], call, self._bind_groups[i], n_rows)
                for i, call in zip(indices, calls)]

    def _unused(self, result: str, selecting: bool) -> frozenset[int]:
        """The steps that lead to something else."""
        return self._plan.results[result].unused | (frozenset() if selecting else {len(self._plan.steps)})

    def _dispatch(self, step: Step, call: Call, bind_group: Any, n_rows: int) -> Dispatch:
        pipeline, x, y = call.choose(n_rows)
        most = self._device.limits.max_compute_workgroups_per_dimension
        cost = work_of(self._plan, self._placement, step, call, n_rows)
        return Dispatch(self._kernels.pipelines[pipeline], bind_group, (min(x, most), y, -(-x // most)), cost)


def _label(operand: Operand) -> str:
    """What an error calls a buffer: a tensor's name, "k cache 3", "slot 2"."""
    if operand.kind in ("matrix", "vector"):
        return str(operand.key)
    kind = f"{operand.kind} cache" if operand.kind in ("k", "v") else operand.kind
    return kind if operand.kind == "constant" else f"{kind} {operand.key}"


def _bucket(n: int, most: int) -> int:
    """The power of two that holds n, but not more than ``most``; 0 for 0."""
    return min(1 << (n - 1).bit_length(), most) if n else 0
