"""A plan run in numpy over real slots, poisoned before each write: shows that lowering kept the graph's meaning."""

from __future__ import annotations

import numpy as np

from bridge.graph.reference import OPERATIONS, Batch, ReferenceSession
from bridge.plan import BatchLayout, Plan, product_of

F32 = np.float32


class PlanInterpreter(ReferenceSession):
    """Replays steps instead of nodes; reads tokens, outputs and rope tables from the packed parameter block."""

    def __init__(self, graph, plan: Plan, weights, n_ctx: int) -> None:
        super().__init__(graph, weights, n_ctx=n_ctx, kv_type="f32")
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
        weights = [self._weight(w) for w in step.weights]
        if step.kernel == "kv_write":
            return self._store(batch, step.attrs["layer"], *values)
        if step.kernel == "write_heads":
            return self._write_heads(step, batch, values[0], weights)
        if step.kernel == "matmul":
            return self._matmul(step, batch, values[0]) + (values[1] if values[1:] else 0)
        if step.kernel in ("rms_norm", "layer_norm"):
            normed = OPERATIONS[step.kernel](self, batch, values[:1], weights, step.attrs)
            return normed + (values[1] if values[1:] else 0)
        return OPERATIONS[step.kernel](self, batch, values, weights, step.attrs)

    def _weight(self, weight):
        return self._weights[weight.name].reshape(weight.shape)

    def _store(self, batch, layer, k, v) -> None:
        self.k[layer].store(batch.start, k)
        self.v[layer].store(batch.start, v)

    def _matmul(self, step, batch, x):
        product = product_of(step)
        if product.norm:
            x = self._norm(batch, x, self._weight(product.norm), product.eps, x.shape[1])
        parts = [OPERATIONS["matmul"](self, batch, [x], [self._weight(w) for w in (matrix, bias) if w], {})
                 for matrix, bias in zip(product.matrices, product.biases, strict=True)]
        row = np.concatenate(parts, axis=1)
        if product.gated:
            return OPERATIONS["glu"](self, batch, np.split(row, 2, axis=1), [], {"act": product.act})
        return OPERATIONS["activate"](self, batch, [row], [], {"act": product.act}) if product.act else row

    def _norm(self, batch, x, weight, eps, group):
        return OPERATIONS["rms_norm"](self, batch, [x], [weight], {"eps": eps, "group": group})

    def _write_heads(self, step, batch, x, norms):
        attrs, ends = step.attrs, np.cumsum([step.width, self.k[step.attrs["layer"]].part.width])
        heads = dict(zip("qkv", np.split(x, ends, axis=1), strict=True))
        norms = list(norms)
        for name in "qk":
            if attrs[name]["eps"] is not None:
                heads[name] = self._norm(batch, heads[name], norms.pop(0), attrs[name]["eps"], attrs["head_dim"])
            if attrs[name]["n_rot"]:
                rope = {**attrs[name], "style": attrs["style"], "head_dim": attrs["head_dim"]}
                heads[name] = OPERATIONS["rope"](self, batch, [heads[name]], [], rope)
        assert not norms
        self._store(batch, attrs["layer"], heads["k"], heads["v"])
        return heads["q"]

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
