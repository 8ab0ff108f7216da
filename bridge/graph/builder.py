"""The builder model files write with: one method per operation, weights looked up and checked by name and shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from bridge.errors import ModelError, UnsupportedError
from bridge.graph.graph import (
    ACTIVATIONS, ALL, EMBEDDINGS, LOGITS, OUTPUTS, TOKENS, Graph, KvLayer, Node, Weight, reachable, without_leading_ones)
from bridge.graph.rope import RopeTable


MAX_NAME = 64


class GraphBuilder:
    """Builds a graph over the tensors of one file.

    ``tensors`` maps GGUF names to objects with ``shape`` (row-major) and ``type.name``. ``causal``: tokens see no later
    ones; where they do, a window is ``symmetric`` or limits only what lies before. ``keep_rows``: every token's row is
    wanted up to the end, so that nothing is selected on the way.
    Raises ModelError naming the tensor when one is missing or has another shape than the model needs.
    """

    def __init__(self, tensors: Mapping[str, Any], *, causal: bool = True, symmetric: bool = False,
                 keep_rows: bool = False) -> None:
        self._tensors = tensors
        self._causal, self._symmetric, self._keep_rows = causal, symmetric, keep_rows
        self._n_positions: int | None = None
        self._biased: frozenset[str] = frozenset()
        self._nodes: list[Node] = []
        self._kv_layers: list[KvLayer] = []
        self._states: list[int] = []
        self._rope_tables: dict[str, RopeTable] = {}

    # weights

    def has(self, name: str) -> bool:
        return name in self._tensors

    def n_rows(self, name: str) -> int:
        """How many rows the tensor has, for those whose number no key gives."""
        info = self._tensors.get(name)
        if info is None:
            raise ModelError(f"the file has no tensor {name}")
        return info.shape[0] if len(info.shape) > 1 else 1

    def weight(self, name: str, *shape: int) -> Weight:
        """The tensor of that name, which must have that row-major shape; the file may leave out dimensions of one in front."""
        info = self._tensors.get(name)
        if info is None:
            raise ModelError(f"the file has no tensor {name}, which should have the shape {_dims(shape)}")
        if without_leading_ones(info.shape) != without_leading_ones(shape):
            needed = shape if len(info.shape) >= len(shape) else without_leading_ones(shape)
            raise ModelError(f"tensor {name} has the shape {_dims(info.shape)}; this model needs {_dims(needed)}")
        return Weight(name, shape, info.type.name)

    def optional(self, name: str, *shape: int) -> tuple[Weight, ...]:
        """The tensor as a tuple of one, or an empty tuple when the file does not have it."""
        return (self.weight(name, *shape),) if self.has(name) else ()

    def vector(self, name: str, *shape: int) -> Weight:
        """The tensor of that name and shape as one row of elements."""
        weight = self.weight(name, *shape)
        return Weight(name, (prod(shape),), weight.type)

    def require_biases(self, *kinds: str) -> None:
        """From now on products, convolutions and norms whose names end in one of these must have a bias."""
        self._biased = frozenset(kinds)

    def _bias(self, name: str, *shape: int) -> tuple[Weight, ...]:
        if name.rpartition(".")[2] in self._biased or self.has(f"{name}.bias"):
            return (self.vector(f"{name}.bias", *shape),)
        return ()

    # operations

    def embed(self, name: str, n_vocab: int, n_embd: int, scale: float = 1.0) -> Node:
        weight = self.weight(name, n_vocab, n_embd)
        return self._add("embed", (), (weight,), TOKENS, n_embd, name, of="tokens", scale=scale)

    def embed_positions(self, name: str, n_positions: int, n_embd: int) -> Node:
        weight = self.weight(name, n_positions, n_embd)
        self._n_positions = min(n_positions, self._n_positions or n_positions)
        return self._add("embed", (), (weight,), TOKENS, n_embd, name, of="positions", scale=1.0)

    def embed_first(self, name: str, n_rows: int, n_embd: int) -> Node:
        """The first row of a weight, for every token."""
        weight = self.weight(name, n_rows, n_embd)
        return self._add("embed", (), (weight,), TOKENS, n_embd, name, of="first", scale=1.0)

    def matmul(self, x: Node, name: str, n_out: int, bias: str | None = None) -> Node:
        """x @ W.T with W = ``name``.weight; adds the tensor ``bias``, or else ``name``.bias when the file has it."""
        weight = self.weight(f"{name}.weight", n_out, x.width)
        added = (self.weight(bias, n_out),) if bias else self._bias(name, n_out)
        return self._add("matmul", (x,), (weight, *added), x.rows, n_out, name)

    def rms_norm(self, x: Node, name: str | None, eps: float, group: int | None = None, *,
                 per_head: bool = False) -> Node:
        """Of every run of ``group`` columns (default: the row); without a name there is no weight.

        ``per_head``: each run has a weight of its own, ``name``.weight is [runs, group].
        """
        return self._norm("rms_norm", x, name, eps, group, per_head)

    def layer_norm(self, x: Node, name: str | None, eps: float, group: int | None = None, *,
                   per_head: bool = False) -> Node:
        """Like rms_norm, of x less its mean; adds ``name``.bias when the file has it."""
        return self._norm("layer_norm", x, name, eps, group, per_head)

    def _norm(self, op: str, x: Node, name: str | None, eps: float, group: int | None, per_head: bool) -> Node:
        group = group or x.width
        shape = (x.width // group, group) if per_head else (group,)
        weights: tuple[Weight, ...] = ()
        if name is not None:
            weights = (self.vector(f"{name}.weight", *shape),)
            if op == "layer_norm":
                weights += self._bias(name, *shape)
        return self._add(op, (x,), weights, x.rows, x.width, name or f"{op} {x.name}", eps=eps, group=group)

    def rope(self, x: Node, table: str, head_dim: int, style: str) -> Node:
        n_rot = self._rope_tables[table].n_rot
        return self._add("rope", (x,), (), x.rows, x.width, f"rope {x.name}",
                         table=table, head_dim=head_dim, n_rot=n_rot, style=style)

    def attention(self, q: Node, k: Node, v: Node, *, n_head: int, n_head_kv: int, head_dim: int, head_dim_v: int,
                  scale: float, softcap: float = 0.0, window: int = 0, sinks: str | None = None) -> Node:
        """Causal attention with a cache of its own for this layer; in a model that is not causal, without one."""
        if not self._causal:
            if sinks is not None:
                raise UnsupportedError("attention with sinks in both directions is not supported; this file has sinks, and "
                                       "says that its attention is not causal")
            before, after = (window // 2, window // 2) if self._symmetric else (window - 1, ALL)
            return self.text_attention(q, k, v, n_head=n_head, n_head_kv=n_head_kv, head_dim=head_dim, scale=scale,
                                       head_dim_v=head_dim_v, softcap=softcap, before=before if window else ALL,
                                       after=after if window else ALL)
        layer = len(self._kv_layers)
        self._kv_layers.append(KvLayer(k.width, v.width, window))
        weights = (self.weight(sinks, n_head),) if sinks is not None else ()
        return self._add("attention", (q, k, v), weights, q.rows, n_head * head_dim_v, f"attention {layer}",
                         layer=layer, n_head=n_head, n_head_kv=n_head_kv, head_dim=head_dim, head_dim_v=head_dim_v,
                         scale=scale, softcap=softcap, window=window)

    def attention_again(self, q: Node, earlier: Node, *, n_head: int, window: int = 0) -> Node:
        """Attention over the cache that an ``earlier`` attention of the same batch has filled, and that lasts for both."""
        if not self._causal:
            raise UnsupportedError("layers that share keys and values are supported in causal models only; this file says "
                                   "that its attention is not causal")
        kv = self._kv_layers[earlier.attrs["layer"]]
        reach = max(kv.window, window) if kv.window and window else 0
        self._kv_layers[earlier.attrs["layer"]] = replace(kv, window=reach)
        attrs = {**earlier.attrs, "n_head": n_head, "window": window}
        return self._add("attention", (q, earlier), (), q.rows, n_head * attrs["head_dim_v"], f"again {earlier.name}",
                         **attrs)

    def text_attention(self, q: Node, k: Node, v: Node, *, n_head: int, n_head_kv: int, head_dim: int, head_dim_v: int,
                       scale: float, softcap: float = 0.0, before: int = ALL, after: int = ALL,
                       slopes: Sequence[float] = (), bias: str | None = None, buckets: Sequence[int] = ()) -> Node:
        """Attention within each text of the batch; ``bias`` names the [n_buckets, n_head] values of ``buckets``."""
        weights = ()
        if bias is not None:
            weights = (self.vector(bias, max(buckets) + 1, n_head),)
        return self._add("text_attention", (q, k, v), weights, q.rows, n_head * head_dim_v, f"text attention {q.name}",
                         n_head=n_head, n_head_kv=n_head_kv, head_dim=head_dim, head_dim_v=head_dim_v, scale=scale,
                         softcap=softcap, before=before, after=after, slopes=tuple(slopes), buckets=tuple(buckets))

    def text_mean(self, x: Node) -> Node:
        return self._add("text_mean", (x,), (), OUTPUTS, x.width, f"mean {x.name}")

    def softmax(self, x: Node) -> Node:
        return self._add("softmax", (x,), (), x.rows, x.width, f"softmax {x.name}")

    def scale_by_position(self, x: Node, scale: float, period: int) -> Node:
        return self._add("scale_by_position", (x,), (), x.rows, x.width, f"scale {x.name}", scale=scale, period=period)

    def activate(self, x: Node, act: str) -> Node:
        return self._add("activate", (x,), (), x.rows, x.width, f"{act} {x.name}", act=_known(act))

    def glu(self, gate: Node, up: Node, act: str) -> Node:
        return self._add("glu", (gate, up), (), gate.rows, gate.width, f"glu {gate.name}", act=_known(act))

    def add(self, a: Node, b: Node) -> Node:
        return self._add("add", (a, b), (), a.rows, a.width, f"{a.name} + {b.name}")

    def mul(self, a: Node, b: Node) -> Node:
        if a.width % b.width:
            raise ValueError(f"{b.width} columns cannot multiply {a.width} columns in equal runs")
        return self._add("mul", (a, b), (), a.rows, a.width, f"{a.name} * {b.name}")

    def dot(self, a: Node, b: Node, group: int) -> Node:
        return self._add("dot", (a, b), (), a.rows, a.width // group, f"{a.name} · {b.name}", group=group)

    def mix_runs(self, x: Node, coefficients: Node, n_in: int) -> Node:
        """Sums of the ``n_in`` runs of columns of x, with coefficients of their own in every row."""
        width = coefficients.width // n_in * (x.width // n_in)
        return self._add("mix_runs", (x, coefficients), (), x.rows, width, f"mix {x.name}", n_in=n_in)

    def add_vector(self, x: Node, name: str, *shape: int) -> Node:
        return self._vector("add_vector", x, name, shape)

    def mul_vector(self, x: Node, name: str, *shape: int) -> Node:
        """``shape`` of the tensor ``name`` (default: an element for every column)."""
        return self._vector("mul_vector", x, name, shape)

    def _vector(self, op: str, x: Node, name: str, shape: tuple[int, ...]) -> Node:
        weight = self.vector(name, *(shape or (x.width,)))
        if x.width % weight.shape[0]:
            raise ValueError(f"a vector of {weight.shape[0]} elements does not repeat evenly over {x.width} columns")
        return self._add(op, (x,), (weight,), x.rows, x.width, name)

    def columns(self, x: Node, first: int, count: int, group: int | None = None) -> Node:
        """``count`` columns from ``first`` on of every run of ``group`` columns (default: of the row)."""
        group = group or x.width
        if x.width % group or not 0 <= first < first + count <= group:
            raise ValueError(f"columns {first} to {first + count - 1} of {group} are not in rows of {x.width}")
        return self._add("columns", (x,), (), x.rows, x.width // group * count, f"columns {x.name}",
                         first=first, count=count, group=group)

    def concat(self, a: Node, b: Node, n_head: int = 1, *, shared: bool = False) -> Node:
        width = a.width + (n_head * b.width if shared else b.width)
        return self._add("concat", (a, b), (), a.rows, width, f"{a.name}, {b.name}", n_head=n_head, shared=shared)

    def route(self, logits: Node, n_used: int, *, normalise: bool, gate: str = "softmax", scale: float = 1.0,
              bias: str | None = None, scales: str | None = None, n_group: int = 1, n_group_used: int = 1) -> Node:
        """``bias`` names the tensor that is added for the choice, ``scales`` the one that multiplies the weights."""
        weights = tuple(self.weight(name, logits.width) for name in (bias, scales) if name is not None)
        return self._add("route", (logits,), weights, logits.rows, 2 * n_used, f"route {logits.name}",
                         n_expert=logits.width, n_used=n_used, normalise=normalise, gate=gate, scale=scale,
                         biased=bias is not None, scaled=scales is not None, n_group=n_group, n_group_used=n_group_used)

    def matmul_experts(self, x: Node, route: Node, name: str, n_out: int, *, per_expert: bool = False) -> Node:
        n_expert, n_used = route.attrs["n_expert"], route.attrs["n_used"]
        n_in = x.width // n_used if per_expert else x.width
        weights = (self.weight(f"{name}.weight", n_expert, n_out, n_in), *self._bias(name, n_expert, n_out))
        return self._add("matmul_experts", (x, route), weights, x.rows, n_used * n_out, name,
                         n_used=n_used, per_expert=per_expert)

    def matmul_heads(self, x: Node, name: str, n_head: int, n_out: int) -> Node:
        weight = self.weight(f"{name}.weight", n_head, n_out, x.width // n_head)
        return self._add("matmul_heads", (x,), (weight,), x.rows, n_head * n_out, name)

    def combine_experts(self, x: Node, route: Node) -> Node:
        n_used = route.attrs["n_used"]
        return self._add("combine_experts", (x, route), (), x.rows, x.width // n_used, f"combine {x.name}", n_used=n_used)

    def scale(self, x: Node, scale: float, offset: float = 0.0) -> Node:
        return self._add("scale", (x,), (), x.rows, x.width, f"scale {x.name}", scale=scale, offset=offset)

    def clamp(self, x: Node, low: float, high: float) -> Node:
        return self._add("clamp", (x,), (), x.rows, x.width, f"clamp {x.name}", low=low, high=high)

    def softcap(self, x: Node, cap: float) -> Node:
        return self._add("softcap", (x,), (), x.rows, x.width, f"softcap {x.name}", cap=cap)

    def select_outputs(self, x: Node) -> Node:
        """Only the rows that are wanted; all of them where something follows that needs all."""
        return x if self._keep_rows else self.selected(x)

    def selected(self, x: Node) -> Node:
        """Only the rows that are wanted, and nothing that follows needs the others."""
        return self._add("select_outputs", (x,), (), OUTPUTS, x.width, f"outputs {x.name}") if x.rows == TOKENS else x

    # recurrences

    def token_shift(self, x: Node, name: str, *shape: int) -> Node:
        """``shape`` of the tensor ``name``, whose elements are [m, w]."""
        weight = self.vector(name, *shape)
        return self._add("token_shift", (x,), (weight,), x.rows, weight.shape[0], name, state=self._state(x.width))

    def conv(self, x: Node, name: str, taps: int) -> Node:
        """Causal, of every column by itself; ``name``.weight is [w, taps]; adds ``name``.bias when the file has it."""
        weight = self.vector(f"{name}.weight", x.width, taps)
        bias = self._bias(name, x.width)
        return self._add("conv", (x,), (weight, *bias), x.rows, x.width, name, taps=taps,
                         state=self._state((taps - 1) * x.width))

    def selective_scan(self, x: Node, dt: Node, bc: Node, name: str, d_state: int, *, scalar_decay: bool) -> Node:
        """A and D are the tensors ``name``_a and ``name``_d; with ``scalar_decay`` both are [n_head, 1]."""
        n_head = dt.width
        a = self.vector(f"{name}_a", n_head, 1 if scalar_decay else d_state)
        d = self.vector(f"{name}_d", n_head, *[1] * scalar_decay)
        return self._add("selective_scan", (x, dt, bc), (a, d), x.rows, x.width, f"scan {name}", n_head=n_head,
                         d_state=d_state, n_group=bc.width // (2 * d_state), scalar_decay=scalar_decay,
                         state=self._state(d_state * x.width))

    def gated_delta(self, q: Node, k: Node, v: Node, gate: Node, beta: Node, *, n_head_k: int, interleaved: bool,
                    scale: float) -> Node:
        n_head, head_dim = gate.width, k.width // n_head_k
        return self._add("gated_delta", (q, k, v, gate, beta), (), v.rows, v.width, f"gated delta {v.name}",
                         n_head=n_head, n_head_k=n_head_k, head_dim=head_dim, head_dim_v=v.width // n_head,
                         interleaved=interleaved, scale=scale, state=self._state(head_dim * v.width))

    def wkv7(self, r: Node, w: Node, k: Node, v: Node, ab: Node, head_dim: int) -> Node:
        return self._add("wkv7", (r, w, k, v, ab), (), r.rows, r.width, f"wkv7 {r.name}", head_dim=head_dim,
                         state=self._state(head_dim * r.width))

    def _state(self, width: int) -> int:
        self._states.append(width)
        return len(self._states) - 1

    # tables

    def rope_table(self, key: str, table: RopeTable) -> str:
        """Declare a rope table under ``key`` and return the key."""
        if table.factors_tensor is not None:
            self.weight(table.factors_tensor, table.n_rot // 2)
        self._rope_tables[key] = table
        return key

    def finish(self, logits: Node, n_embd: int) -> Graph:
        """The graph of a model that predicts tokens; its embeddings are what its output matrix is multiplied with."""
        if logits is not self._nodes[-1] or not (logits.rows == OUTPUTS or self._keep_rows):
            raise ValueError("the logits must be the last node and have one row per output")
        product = logits
        while product.op != "matmul" and len(product.inputs) == 1:
            product = product.inputs[0]
        results = {LOGITS: logits} if logits.rows == OUTPUTS else {}
        if product.op == "matmul":
            results[EMBEDDINGS] = product.inputs[0]
        return self._graph(results, logits.width, n_embd)

    def finish_encoder(self, x: Node, n_vocab: int) -> Graph:
        """The graph of a model that gives a vector for each token; token ids are below ``n_vocab``."""
        return self._graph({EMBEDDINGS: x}, n_vocab, x.width)

    def with_embeddings(self, graph: Graph, embeddings: Node, pooling: str, pooled_row: str = "") -> Graph:
        """A finished graph with other embeddings, made of nodes added since; what no result needs any more is left out."""
        if embeddings.rows != OUTPUTS:
            raise ValueError("embeddings must have one row per output")
        results = {**graph.results, EMBEDDINGS: embeddings}
        wanted = reachable(results.values())
        return replace(graph, nodes=tuple(node for node in self._nodes if node in wanted), results=results,
                       pooling=pooling, pooled_row=pooled_row or pooling)

    def _graph(self, results: Mapping[str, Node], n_vocab: int, n_embd: int) -> Graph:
        return Graph(tuple(self._nodes), results, dict(self._rope_tables), tuple(self._kv_layers), tuple(self._states),
                     n_vocab, n_embd, n_positions=self._n_positions)

    def _add(self, op: str, inputs: tuple[Node, ...], weights: tuple[Weight, ...], rows: str, width: int, name: str,
             **attrs: Any) -> Node:
        if len(name) > MAX_NAME:  # made of the names of nodes that are made of others
            name = f"{name[:MAX_NAME - 1]}…"
        node = Node(op, inputs, weights, attrs, rows, width, name)
        self._nodes.append(node)
        return node


def _known(act: str) -> str:
    if act not in ACTIVATIONS:
        raise ValueError(f"{act!r} is none of the activations {', '.join(ACTIVATIONS)}")
    return act


def _dims(shape: Any) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"
