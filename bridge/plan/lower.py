"""Lowering: graph -> plan. Fuses neighbours, splits attention, drops dead nodes, and assigns slots by lifetime."""

from __future__ import annotations

from bridge.graph.graph import Graph, Node, reachable
from bridge.plan.plan import Plan, Result, Slot, Step


def lower(graph: Graph) -> Plan:
    """The plan of a graph. Slots are reused first-fit among those of the same row kind, growing in width if need be."""
    readers = _count_readers(graph)
    fused = _residuals(graph, readers)
    builder = _Lowering(_last_uses(graph, fused))
    for position, node in enumerate(graph.nodes):
        if node in fused.absorbed:
            continue
        builder.lower(position, node, fused.residual.get(node))
    results = {}
    for name, node in graph.results.items():
        wanted = reachable([node])
        unused = frozenset(i for i, source in enumerate(builder.node_of_step) if source not in wanted)
        results[name] = Result(builder.slot_of[node], node.width, unused)
    return Plan(tuple(builder.steps), tuple(builder.slots), results, graph.n_vocab, graph.rope_tables, graph.kv_layers,
                graph.states)


class _Fused:
    """``residual[add] = (matmul, other)``: the add node is computed by the matmul's step; ``absorbed`` emit nothing."""

    def __init__(self) -> None:
        self.residual: dict[Node, tuple[Node, Node]] = {}
        self.absorbed: set[Node] = set()


def _count_readers(graph: Graph) -> dict[Node, int]:
    readers = dict.fromkeys(graph.nodes, 0)
    for node in graph.nodes:
        for source in node.inputs:
            readers[source] += 1
    for node in graph.results.values():
        readers[node] += 1
    return readers


def _residuals(graph: Graph, readers: dict[Node, int]) -> _Fused:
    """matmul followed by an add that alone reads it: one step."""
    fused = _Fused()
    order = {node: i for i, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        if node.op != "add":
            continue
        a, b = node.inputs
        for product, other in ((a, b), (b, a)):
            if (product.op == "matmul" and readers[product] == 1 and product not in fused.absorbed
                    and product is not other and order[other] < order[node]):
                fused.residual[node] = (product, other)
                fused.absorbed.add(product)
                break
    return fused


def _inputs_after_fusion(node: Node, fused: _Fused) -> tuple[Node, ...]:
    if node in fused.residual:
        product, other = fused.residual[node]
        return (*product.inputs, other)
    return node.inputs


def _last_uses(graph: Graph, fused: _Fused) -> dict[Node, int]:
    last: dict[Node, int] = {}
    for position, node in enumerate(graph.nodes):
        if node in fused.absorbed:
            continue
        last[node] = position
        for source in _inputs_after_fusion(node, fused):
            last[source] = position
    last |= dict.fromkeys(graph.results.values(), len(graph.nodes))
    return last


class _Lowering:
    def __init__(self, last_use: dict[Node, int]) -> None:
        self.steps: list[Step] = []
        self.node_of_step: list[Node] = []
        self.slots: list[Slot] = []
        self.slot_of: dict[Node, int] = {}
        self._free: list[int] = []
        self._last_use = last_use

    def lower(self, position: int, node: Node, fused: tuple[Node, Node] | None) -> None:
        inputs, kernel, weights, attrs = node.inputs, node.op, node.weights, node.attrs
        if fused is not None:
            product, other = fused
            inputs, kernel, weights, attrs = (*product.inputs, other), "matmul", product.weights, product.attrs
        if kernel == "attention" and len(inputs) == 3:
            self._step("kv_write", inputs[1:], None, (), {"layer": attrs["layer"]}, node)
            reads = inputs[:1]
        else:
            reads = inputs
        output = self._allocate(node)
        self._step(kernel, reads, output, weights, attrs, node)
        self.slot_of[node] = output
        for value in dict.fromkeys((*inputs, node)):
            if self._last_use[value] == position:
                self._free.append(self.slot_of[value])

    def _step(self, kernel, inputs, output, weights, attrs, node: Node) -> None:
        slots = tuple(self.slot_of[source] for source in inputs)
        self.node_of_step.append(node)
        widths = tuple(source.width for source in inputs)
        self.steps.append(Step(kernel, slots, output, weights, attrs, node.rows, node.width, node.name, widths))

    def _allocate(self, node: Node) -> int:
        fitting = [s for s in self._free if self.slots[s].rows == node.rows]
        if fitting:
            # The narrowest slot that is wide enough, else the widest, which then grows.
            wide = [s for s in fitting if self.slots[s].width >= node.width]
            slot = min(wide, key=lambda s: self.slots[s].width) if wide else max(fitting, key=lambda s: self.slots[s].width)
            self._free.remove(slot)
            self.slots[slot] = Slot(node.rows, max(node.width, self.slots[slot].width))
            return slot
        self.slots.append(Slot(node.rows, node.width))
        return len(self.slots) - 1
