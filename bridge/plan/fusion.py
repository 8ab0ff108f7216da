"""Fusion: patterns of a graph's nodes become one node each, before slots are assigned.

A rule looks at one node, the last of its pattern, and gives the node to compute instead, or None. It finds its pattern
by structure, never by names. Which rules are worth it is the backend's choice; each is applied to the whole graph in
turn, in the order of the backend's list, and what nobody reads afterwards is left out.

What the fused nodes mean is told in bridge.plan.plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from bridge.graph.graph import Graph, Node, reachable
from bridge.plan.plan import Product, product_of

GROUP_WORDS = 5
"""For each slot (a choice of a token): itself, and three words for each tile of slots, of which there are hardly more."""


class Uses:
    """Who reads what in a graph."""

    def __init__(self, graph: Graph) -> None:
        self.readers: dict[Node, list[Node]] = {node: [] for node in graph.nodes}
        for node in graph.nodes:
            for source in node.inputs:
                self.readers[source].append(node)
        self.results = frozenset(graph.results.values())
        self._weights = Counter(weight.name for node in graph.nodes for weight in node.weights)

    def once(self, *nodes: Node) -> bool:
        """Whether each node is read by one other, and is no result."""
        return all(len(self.readers[node]) == 1 and node not in self.results for node in nodes)

    def own_weights(self, *nodes: Node) -> bool:
        """Whether nothing else uses the weights of the nodes."""
        return all(self._weights[weight.name] == 1 for node in nodes for weight in node.weights)


Rule = Callable[[Node, Uses], Node | None]


def fuse(graph: Graph, rules: Iterable[Rule]) -> Graph:
    """The graph after each rule in turn."""
    for rule in rules:
        graph = _apply(graph, rule)
    return graph


def _apply(graph: Graph, rule: Rule) -> Graph:
    uses, made, nodes = Uses(graph), {}, []

    def rebuilt(node: Node) -> Node:
        """A node of the old graph, or one that a rule made, over nodes of the new graph."""
        if node not in made:
            inputs = tuple(rebuilt(source) for source in node.inputs)
            made[node] = node if inputs == node.inputs else replace(node, inputs=inputs)
            nodes.append(made[node])
        return made[node]

    for node in graph.nodes:
        made[node] = rebuilt(rule(node, uses) or node)
    results = {name: made[node] for name, node in graph.results.items()}
    wanted = reachable(results.values())
    return replace(graph, nodes=tuple(node for node in nodes if node in wanted), results=results)


def add_residual(node: Node, uses: Uses) -> Node | None:
    """matmul(x) + other -> matmul(x, other)."""
    return _added(node, uses, ("matmul",))


def add_after_norm(node: Node, uses: Uses) -> Node | None:
    """norm(x) + other -> norm(x, other)."""
    return _added(node, uses, ("rms_norm", "layer_norm"))


def _added(node: Node, uses: Uses, ops: tuple[str, ...]) -> Node | None:
    if node.op != "add":
        return None
    a, b = node.inputs
    for found, other in ((a, b), (b, a)):
        if found.op not in ops or len(found.inputs) > 1 or found is other or not uses.once(found):
            continue
        if found.op != "matmul" or product_of(found).act is None:
            return replace(found, inputs=(*found.inputs, other), name=node.name)
    return None


def gated_products(node: Node, uses: Uses) -> Node | None:
    """glu of two matmuls of one x, or of the halves of a matmul -> one matmul with the activation at its end."""
    if node.op != "glu":
        return None
    gate, up = node.inputs
    # A pair of rows is decoded together.
    if _side_by_side(node.inputs, uses) and gate.weights[0].type == up.weights[0].type:
        return _stacked(node.inputs, node.name, node.width, node.attrs["act"])
    whole = _cut_in_order(node.inputs, uses)
    if whole is None or not _is_plain_product(whole) or not uses.own_weights(whole):
        return None
    if uses.readers[whole] != [gate, up]:
        return None
    product = replace(product_of(whole), act=node.attrs["act"], gated=True)
    return replace(whole, attrs={"product": product}, width=node.width, name=node.name)


def activated_products(node: Node, uses: Uses) -> Node | None:
    """act(matmul(x)) -> matmul with the activation at its end."""
    if node.op != "activate" or not _is_plain_product(node.inputs[0]) or not uses.once(node.inputs[0]):
        return None
    product = replace(product_of(node.inputs[0]), act=node.attrs["act"])
    return replace(node.inputs[0], attrs={"product": product}, name=node.name)


def _is_plain_product(node: Node) -> bool:
    return node.op == "matmul" and len(node.inputs) == 1 and product_of(node).act is None


def heads(node: Node, uses: Uses) -> Node | None:
    """attention(q, k, v) of products of one x -> one matmul, one step for norms, rotation and cache, attention(q).

    q and k may pass a norm of each head and then a rotation. What is cut from one row of q, k and v needs no matmul.
    """
    if node.op != "attention" or len(node.inputs) != 3:
        return None
    attrs, (q, k, v) = node.attrs, node.inputs
    q_chain, k_chain = (_head_chain(value, attrs["head_dim"]) for value in (q, k))
    styles = {link.attrs["style"] for link in (*q_chain, *k_chain) if link.op == "rope"}
    if len(styles) > 1 or not uses.once(*q_chain[:-1], *k_chain[:-1]):
        return None
    sources = (q_chain[-1], k_chain[-1], v)
    if _side_by_side(sources, uses):
        row = _stacked(sources, sources[0].name, q.width + k.width + v.width, None)
    else:
        row = _cut_in_order(sources, uses)
        if row is None:
            return None
    written = {"q": _head_attrs(q_chain), "k": _head_attrs(k_chain), "style": next(iter(styles), "norm"),
               **{name: attrs[name] for name in ("layer", "n_head", "n_head_kv", "head_dim", "head_dim_v")}}
    norms = tuple(weight for chain in (q_chain, k_chain) for link in chain[:-1] for weight in link.weights)
    rotated = Node("write_heads", (row,), norms, written, node.rows, q.width, q.name)
    return replace(node, inputs=(rotated,))


def _head_chain(node: Node, head_dim: int) -> list[Node]:
    """[rope][, rms_norm], and what they are of, from the last to the first."""
    chain = []
    if node.op == "rope" and node.attrs["head_dim"] == head_dim:
        chain.append(node)
        node = node.inputs[0]
    if (node.op == "rms_norm" and node.attrs["group"] == head_dim and node.weights
            and node.weights[0].shape == (head_dim,)):
        chain.append(node)
        node = node.inputs[0]
    return [*chain, node]


def _head_attrs(chain: list[Node]) -> dict:
    """``eps`` of the norm (None: there is none), ``n_rot`` and ``table`` of the rotation (0: there is none)."""
    links = {link.op: link.attrs for link in chain[:-1]}
    rope = links.get("rope", {"n_rot": 0, "table": None})
    return {"eps": links["rms_norm"]["eps"] if "rms_norm" in links else None, "n_rot": rope["n_rot"],
            "table": rope["table"]}


def norm_into_products(node: Node, uses: Uses) -> Node | None:
    """matmul(rms_norm(x)) -> matmul that norms x, if only products read the norm.

    A norm that is a result, too, stays for that result.
    """
    if node.op != "matmul" or node.inputs[0].op != "rms_norm":
        return None
    norm, product = node.inputs[0], product_of(node)
    whole_rows = norm.attrs["group"] == norm.width and norm.weights and norm.weights[0].shape == (norm.width,)
    if product.norm or not whole_rows or len(norm.inputs) > 1 or norm in node.inputs[1:]:
        return None
    if any(reader.op != "matmul" for reader in uses.readers[norm]):
        return None
    product = replace(product, norm=norm.weights[0], eps=norm.attrs["eps"])
    return replace(node, inputs=(norm.inputs[0], *node.inputs[1:]), weights=product.weights, attrs={"product": product})


def grouped_experts(node: Node, uses: Uses) -> Node | None:
    """matmul_experts -> the same with room for its slots by expert."""
    if node.op != "matmul_experts" or "group_columns" in node.attrs:
        return None
    return replace(node, attrs={**node.attrs, "group_columns": GROUP_WORDS * node.attrs["n_used"]})


def _side_by_side(products: tuple[Node, ...], uses: Uses) -> bool:
    """Whether these are products of the same x that can be one, with rows of weights one after the other."""
    inputs = products[0].inputs
    return (len(inputs) == 1 and all(p.op == "matmul" and p.inputs == inputs for p in products)
            and uses.once(*products) and uses.own_weights(*products))


def _cut_in_order(parts: tuple[Node, ...], uses: Uses) -> Node | None:
    """The node that these are all the columns of, from left to right, and that nothing else needs them for."""
    whole, first = parts[0].inputs[0] if parts[0].inputs else None, 0
    for part in parts:
        if part.op != "columns" or part.inputs[0] is not whole or part.attrs["group"] != whole.width:
            return None
        if part.attrs["first"] != first or not uses.once(part):
            return None
        first += part.width
    return whole if first == whole.width else None


def _stacked(products: tuple[Node, ...], name: str, width: int, act: str | None) -> Node:
    first, parts = products[0], [product_of(p) for p in products]
    product = Product(tuple(m for p in parts for m in p.matrices), tuple(b for p in parts for b in p.biases), act=act,
                      gated=act is not None)
    return Node("matmul", first.inputs, product.weights, {"product": product}, first.rows, width, name)
