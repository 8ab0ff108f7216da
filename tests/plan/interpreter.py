"""A plan run in numpy over real slots, poisoned before each write: shows that lowering kept the graph's meaning."""

from __future__ import annotations

import numpy as np

from bridge.graph.reference import OPERATIONS, Batch, ReferenceSession
from bridge.plan import BatchLayout, Plan

F32 = np.float32


class PlanInterpreter(ReferenceSession):
    """Replays steps instead of nodes; reads tokens, outputs and rope tables from the packed parameter block."""

    def __init__(self, graph, plan: Plan, weights, n_ctx: int) -> None:
        super().__init__(graph, weights, n_ctx=n_ctx, kv_dtype=F32)
        self.plan = plan
        factors = {t.factors_tensor: weights[t.factors_tensor] for t in plan.rope_tables.values() if t.factors_tensor}
        self.layout = BatchLayout(plan, factors)

    def replay(self, tokens, start, outputs, *, with_outputs=True, result="logits", texts=()):
        block = self.layout.pack(tokens, start, outputs, texts)
        assert len(block) <= self.layout.nbytes(len(tokens), len(outputs))
        batch = self._unpack(block)
        slots: list[np.ndarray | None] = [None] * len(self.plan.slots)
        for step in self.plan.steps_for(result) if with_outputs else self.plan.without_outputs():
            assert step.output not in step.inputs
            values = [slots[i] for i in step.inputs]
            value = self._run(step, batch, values)
            if step.output is not None:
                slot = self.plan.slots[step.output]
                assert slot.rows == step.rows and slot.width >= step.width
                slots[step.output] = value
        return slots[self.plan.results[result].slot]

    def _run(self, step, batch, values):
        weights = [self._weights[w.name].reshape(w.shape) for w in step.weights]
        if step.kernel == "kv_write":
            end = batch.start + len(batch.tokens)
            self.k[step.attrs["layer"]][batch.start:end] = values[0]
            self.v[step.attrs["layer"]][batch.start:end] = values[1]
            return None
        if step.kernel == "matmul":
            return OPERATIONS["matmul"](self, batch, values[:1], weights, step.attrs) + (values[1] if values[1:] else 0)
        return OPERATIONS[step.kernel](self, batch, values, weights, step.attrs)

    def _unpack(self, block: bytes) -> Batch:
        words, floats = np.frombuffer(block, "<u4"), np.frombuffer(block, "<f4")
        n, start, m, at_tokens, at_outputs = (int(w) for w in words[:5])
        tables = {}
        for key, i in self.layout.table_index.items():
            offset, width = int(words[5 + i]), self.plan.rope_tables[key].n_rot
            tables[key] = floats[offset:offset + n * width].reshape(n, width // 2, 2)
        ends = words[words[13]:words[13] + 2 * n].reshape(n, 2)
        texts = [int(end - first) for first, end in np.unique(ends, axis=0)]
        return Batch(words[at_tokens:at_tokens + n], start, words[at_outputs:at_outputs + m], tables, texts)
