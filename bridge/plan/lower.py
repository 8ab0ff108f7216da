"""Lowering: graph -> plan. Fuses neighbours, splits attention, drops dead nodes, and assigns slots by lifetime."""

from __future__ import annotations

from collections.abc import Iterable

from bridge.graph.graph import Graph, Node, reachable
from bridge.plan.fusion import Rule, add_residual, fuse
from bridge.plan.plan import Plan, Result, Slot, Step, product_of


def lower(graph: Graph, rules: Iterable[Rule] = (add_residual,)) -> Plan:
    """The plan of a graph after fusion by the ``rules`` that the backend has steps for.

    Slots are reused first-fit among those of the same row kind, growing in width if need be.
    """
    graph = fuse(graph, rules)
    builder = _Lowering(_last_uses(graph))
    for position, node in enumerate(graph.nodes):
        builder.lower(position, node)
    results = {}
    for name, node in graph.results.items():
        wanted = reachable([node])
        unused = frozenset(i for i, source in enumerate(builder.node_of_step) if source not in wanted)
        results[name] = Result(builder.slot_of[node], node.width, unused)
    return Plan(tuple(builder.steps), tuple(builder.slots), results, graph.n_vocab, graph.rope_tables, graph.kv_layers,
                graph.states)


def _last_uses(graph: Graph) -> dict[Node, int]:
    last: dict[Node, int] = {}
    for position, node in enumerate(graph.nodes):
        last[node] = position
        for source in _read(node):
            last[source] = position
    return last | dict.fromkeys(graph.results.values(), len(graph.nodes))


def _read(node: Node) -> tuple[Node, ...]:
    """The inputs whose values a node reads: of attention over another layer's cache not that layer's result."""
    return node.inputs[:1] if node.op == "attention" and len(node.inputs) == 2 else node.inputs


def _scratch_width(node: Node) -> int:
    """Columns of the slot that a step has besides (see Step), 0 for none."""
    if node.op == "matmul" and product_of(node).norm:
        return node.inputs[0].width
    return node.attrs.get("group_columns", 0)


class _Lowering:
    def __init__(self, last_use: dict[Node, int]) -> None:
        self.steps: list[Step] = []
        self.node_of_step: list[Node] = []
        self.slots: list[Slot] = []
        self.slot_of: dict[Node, int] = {}
        self._free: list[int] = []
        self._last_use = last_use

    def lower(self, position: int, node: Node) -> None:
        reads = _read(node)
        if node.op == "attention" and len(reads) == 3:
            self._step("kv_write", reads[1:], None, (), {"layer": node.attrs["layer"]}, node)
            reads = reads[:1]
        output = self._allocate(node.rows, node.width)
        scratch, width = None, _scratch_width(node)
        if width:
            scratch = self._allocate(node.rows, width)
            self._free.append(scratch)
        self._step(node.op, reads, output, node.weights, node.attrs, node, scratch)
        self.slot_of[node] = output
        for value in dict.fromkeys((*_read(node), node)):
            if self._last_use[value] == position:
                self._free.append(self.slot_of[value])

    def _step(self, kernel, inputs, output, weights, attrs, node: Node, scratch: int | None = None) -> None:
        slots = tuple(self.slot_of[source] for source in inputs)
        self.node_of_step.append(node)
        widths = tuple(source.width for source in inputs)
        self.steps.append(Step(kernel, slots, output, weights, attrs, node.rows, node.width, node.name, widths,
                               scratch))

    def _allocate(self, rows: str, width: int) -> int:
        fitting = [s for s in self._free if self.slots[s].rows == rows]
        if fitting:
            # The narrowest slot that is wide enough, else the widest, which then grows.
            wide = [s for s in fitting if self.slots[s].width >= width]
            slot = min(wide, key=lambda s: self.slots[s].width) if wide else max(fitting, key=lambda s: self.slots[s].width)
            self._free.remove(slot)
            self.slots[slot] = Slot(rows, max(width, self.slots[slot].width))
            return slot
        self.slots.append(Slot(rows, width))
        return len(self.slots) - 1
