"""What a graph is: nodes over activations of shape [rows, width], weights by name, and the state they touch.

Every activation is a matrix. Its row count is symbolic: ``TOKENS`` rows (one per token of the batch) or ``OUTPUTS`` rows
(one per token whose logits are wanted). Heads are runs of ``head_dim`` columns, so no node ever reshapes or transposes.
A graph knows nothing about kernels, buffers or block formats.

The vocabulary (inputs -> output; weights; attributes):

====================  =====================================================================================
``embed``             -> [T, n_embd]; the rows of the weight that the batch's ``of`` "tokens" or "positions" name, or its
                      "first" for every token; times ``scale``
``matmul``            x -> x @ weight.T (+ bias); weight is [n_out, n_in], bias [n_out]
``rms_norm``          x -> x / sqrt(mean(x²) + eps) (* weight), over runs of ``group`` columns (a row, or one head); the
                      weight has ``group`` elements, or one for every column
``layer_norm``        the same of x - mean(x), (* weight (+ bias))
``rope``              x -> x with pairs of columns rotated by the batch's ``table``; ``head_dim``, ``n_rot``,
                      ``style`` "norm" (pairs 2i, 2i+1) or "neox" (pairs i, i + n_rot/2); other columns pass through
``attention``         q, k, v -> softmax(scale * q kᵀ) v over the cache of layer ``layer``, after k and v were stored
                      there at the batch's positions (q and an earlier attention: its cache is only read);
                      ``n_head``, ``n_head_kv``, ``head_dim``, ``head_dim_v``, ``scale``, ``softcap`` (0: none; else
                      c·tanh(s/c)), ``window`` (0: all earlier positions; n: the last n, itself included); with a weight
                      [n_head], the sinks, each head's softmax has one more term, which has no value
``scale_by_position`` x -> x * (1 + ``scale`` · ln(⌊position / ``period``⌋ + 1))
``text_attention``    q, k, v -> softmax(scale * q kᵀ + bias) v among the tokens of the same text, which must all be in
                      the batch; no cache. A token sees ``before`` tokens before it and ``after`` after it (ALL: no
                      limit). The bias depends on the distance d = key - query: -|d| times the head's of ``slopes``,
                      or row ``buckets[d]`` of the weight [n_buckets · n_head] (d is clamped to the span of
                      ``buckets``, whose middle is 0), or nothing; else as ``attention``
``text_mean``         x [T, w] -> [O, w]: the mean of the rows of the text that the output's token is in, as far as they
                      are in this batch
``softmax``           x -> e^x / sum(e^x) of a row
``activate``          x -> act(x), ``act`` one of ACTIVATIONS
``glu``               gate, up -> act(gate) * up
``add``               a, b -> a + b
``mul``               a, b -> a * b; b may be narrower: then each column of it multiplies a run of columns of a
``dot``               a, b -> [rows, w / group]: the dot products of every run of ``group`` columns
``mix_runs``          x [rows, n·w], c [rows, m·n] -> [rows, m·w]: run o is the sum of c[o·n + i] times run i of x
``add_vector``        x -> x + weight, the weight repeated over the columns if it is narrower
``mul_vector``        x -> x * weight, likewise
``softcap``           x -> cap * tanh(x / cap)
``scale``             x -> x * scale + offset
``clamp``             x -> min(max(x, low), high)
``columns``           x -> ``count`` columns from ``first`` on of every run of ``group`` columns, side by side
``concat``            a, b -> for each of ``n_head`` heads its columns of a, then its columns of b (``shared``: all of b)
``route``             router logits -> [rows, 2·n_used]: the ids of the ``n_used`` experts that are chosen, best first,
                      then their weights: p, divided by their sum if ``normalise``, times ``scale``, times a weight of
                      one factor for each expert if ``scaled``. p is the logits' ``gate`` "softmax" or "sigmoid"; the
                      largest p are chosen, ties to the lower id, or the largest p + a weight if ``biased``. With
                      ``n_group`` > 1 all come from the ``n_group_used`` groups whose two best together are largest
``matmul_experts``    x, route -> each chosen expert's x @ weight[id].T (+ bias[id]), side by side [rows, n_used·n_out];
                      weight is [n_expert, n_out, n_in]; x is [rows, n_in] for all, or [rows, n_used·n_in] when
                      ``per_expert``
``matmul_heads``      x [rows, n_head·n_in] -> [rows, n_head·n_out]: each head's columns times a matrix of its own; weight is
                      [n_head, n_out, n_in]
``combine_experts``   x [rows, n_used·n], route -> [rows, n]: the sum of the experts' parts times their weights
``select_outputs``    x [T, w] -> [O, w]: the rows whose logits are wanted
``token_shift``       x [T, w] -> [T, m·w]: for each row of the weight [m, w], x + (the row before - x) * weight
``conv``              x -> y[t, c] = sum over i of weight[c, i] * x[t - taps + 1 + i, c] (+ bias[c]); weight [w, taps]
``selective_scan``    x [T, n_head·d], dt [T, n_head], bc [T, 2·n_group·d_state] (B of all groups, then C); weights
                      A [n_head, 1 or d_state], D [n_head]. With Δ = softplus(dt), for every column c of head h:
                      S[:, c] <- exp(Δ A[h]) * S[:, c] + Δ x[c] B -> C · S[:, c] + D[h] x[c]
``gated_delta``       q, k [T, n_head_k·d], v [T, n_head·d_v], g, beta [T, n_head] -> [T, n_head·d_v]. For every head:
                      S <- exp(g) S; S <- S + k (beta (v - kᵀ S))ᵀ -> scale · qᵀ S; its key head is h·n_head_k div n_head
                      (``interleaved``: h mod n_head_k)
``wkv7``              r, w, k, v [T, n_head·head_dim], ab [T, 2·n_head·head_dim] (a, then b) -> for every head
                      S <- S diag(w) + (S a) bᵀ + v kᵀ -> S r
====================  =====================================================================================

``token_shift``, ``conv``, ``selective_scan``, ``gated_delta`` and ``wkv7`` go through a batch in order and carry
``state``, one of the graph's ``states``: earlier rows, or S. It counts as zeros at position 0, and is that of the last
token afterwards. Layouts, which backends share: earlier rows [taps - 1, w], oldest first; S [d_state, n_head·d],
[n_head, d, d_v] and, for ``wkv7``, [n_head, columns, rows].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bridge.graph.rope import RopeTable

TOKENS = "tokens"
OUTPUTS = "outputs"
ALL = 1 << 30
"""More tokens than any text has."""
LOGITS, EMBEDDINGS = "logits", "embeddings"

ACTIVATIONS = ("silu", "gelu", "gelu_quick", "relu", "relu2", "sigmoid", "softplus", "tanh", "exp", "sqrt")
"""``gelu`` is the tanh form (Hendrycks & Gimpel, arXiv 1606.08415) and ``gelu_quick`` x·sigmoid(1.702·x) of the same
paper; ``relu2`` is max(x, 0)² (So et al., arXiv 2109.08668). The CPU kernels number them in this order."""


@dataclass(frozen=True)
class Weight:
    """A tensor of the file by its GGUF name; ``shape`` is row-major, ``type`` the block format's name ("Q4_K")."""

    name: str
    shape: tuple[int, ...]
    type: str


def without_leading_ones(shape: Sequence[int]) -> tuple[int, ...]:
    """A row-major shape as files write it: they need not have the dimensions of one in front."""
    first = next((i for i, n in enumerate(shape[:-1]) if n != 1), len(shape) - 1)
    return tuple(shape[first:])


@dataclass(frozen=True, eq=False)
class Node:
    """One operation; ``rows`` is TOKENS or OUTPUTS, ``width`` the columns of its result."""

    op: str
    inputs: tuple[Node, ...] = field(repr=False)  # the whole graph before it
    weights: tuple[Weight, ...]
    attrs: Mapping[str, Any]
    rows: str
    width: int
    name: str


@dataclass(frozen=True)
class KvLayer:
    """The cache of one attention layer: columns per position of K and V, and its window (0: the whole context)."""

    k_width: int
    v_width: int
    window: int


@dataclass(frozen=True)
class Graph:
    """Nodes in an order of evaluation, and what they are computed for.

    ``results`` are nodes with one row per output: "logits" [O, n_vocab], "embeddings" [O, width], or both. ``pooling`` says
    what an embedding stands for (see bridge.models.pooling), ``pooled_row`` which row stands for a text: "none", "mean" (any
    of them), "cls" (its first) or "last"; ``n_positions`` is the longest context there can be: of
    the position embeddings, and of an encoder as it was trained; None without such a bound. ``states`` are the floats of each
    recurrent state.
    """

    nodes: tuple[Node, ...]
    results: Mapping[str, Node]
    rope_tables: Mapping[str, RopeTable]
    kv_layers: tuple[KvLayer, ...]
    states: tuple[int, ...]
    n_vocab: int
    n_embd: int
    pooling: str = "none"
    pooled_row: str = "none"
    n_positions: int | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def output(self) -> Node:
        """The logits, of a model that has none the embeddings."""
        return self.results.get(LOGITS) or self.results[EMBEDDINGS]

    @property
    def reads_whole_texts(self) -> bool:
        """Whether a text can only be evaluated in one batch: tokens see later ones."""
        return any(node.op == "text_attention" for node in self.nodes)

    def weights(self) -> dict[str, Weight]:
        """Every weight the nodes use, by name, in order of first use."""
        return {w.name: w for node in self.nodes for w in node.weights}


def reachable(nodes: Iterable[Node]) -> set[Node]:
    """The nodes and everything they are computed from."""
    found: set[Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.inputs
    return found
