"""The encoder of T5: scores that a learned value for the distance of two tokens adds to, and no other sense of position.

Scores are not scaled; the layers share the values of the first unless they have their own. T5 has a ReLU in its MLPs, version
1.1 a GELU gate. Source: Raffel et al., arXiv 1910.10683; the buckets follow llama.cpp (``llama_relative_position_bucket``).
"""

from __future__ import annotations

import math

from bridge.errors import ModelError
from bridge.graph import Graph, GraphBuilder, Node
from bridge.models.hparams import HParams

CAUSAL = False
MAX_DISTANCE = 128


def build(h: HParams, g: GraphBuilder) -> Graph:
    is_gated = any(g.has(f"enc.blk.{i}.ffn_gate.weight") for i in range(h.n_layer))
    buckets = relative_buckets(h.keys.integer("attention.relative_buckets_count"))

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    for i in range(h.n_layer):
        layer = f"enc.blk.{i}"
        attn = _attention(h, g, i, g.rms_norm(x, f"{layer}.attn_norm", h.rms_eps), buckets)
        if i == h.n_layer - 1:
            attn, x = g.select_outputs(attn), g.select_outputs(x)
        x = g.add(g.matmul(attn, f"{layer}.attn_o", h.n_embd), x)
        y = g.rms_norm(x, f"{layer}.ffn_norm", h.rms_eps)
        up = g.matmul(y, f"{layer}.ffn_up", h.n_ff[i])
        if is_gated:
            y = g.glu(g.matmul(y, f"{layer}.ffn_gate", h.n_ff[i]), up, "gelu")
        else:
            y = g.activate(up, "relu")
        x = g.add(g.matmul(y, f"{layer}.ffn_down", h.n_embd), x)
    return g.finish_encoder(g.rms_norm(x, "enc.output_norm", h.rms_eps), h.n_vocab)


def _attention(h: HParams, g: GraphBuilder, i: int, x: Node, buckets: tuple[int, ...]) -> Node:
    layer, n_head_kv = f"enc.blk.{i}", h.n_head_kv[i]
    q = g.matmul(x, f"{layer}.attn_q", h.n_head[i] * h.head_dim)
    k = g.matmul(x, f"{layer}.attn_k", n_head_kv * h.head_dim)
    v = g.matmul(x, f"{layer}.attn_v", n_head_kv * h.head_dim_v)
    own = f"{layer}.attn_rel_b.weight"
    return g.text_attention(q, k, v, n_head=h.n_head[i], n_head_kv=n_head_kv, head_dim=h.head_dim, head_dim_v=h.head_dim_v,
                            scale=1.0, buckets=buckets, bias=own if g.has(own) else "enc.blk.0.attn_rel_b.weight")


def relative_buckets(n_buckets: int) -> tuple[int, ...]:
    """The bucket of each distance key - query from -MAX_DISTANCE to MAX_DISTANCE; farther ones share those at the ends.

    Half of the buckets are for keys before the query and half for those after it; in each, half are for single distances
    and the others grow by equal factors up to MAX_DISTANCE.
    """
    n_side = n_buckets // 2
    n_exact = n_side // 2
    if not n_exact or n_side > MAX_DISTANCE:
        raise ModelError(f"metadata key t5encoder.attention.relative_buckets_count is {n_buckets}; it must be from 4 to "
                         f"{2 * MAX_DISTANCE}")

    def side(distance: int) -> int:
        if distance < n_exact:
            return distance
        octaves = math.log(distance / n_exact) / math.log(MAX_DISTANCE / n_exact)
        # What falls on a boundary belongs to the bucket that begins there, whichever way the logarithms round.
        return min(n_side - 1, int(n_exact + octaves * (n_side - n_exact) + 1e-6))

    return tuple(side(abs(d)) + (n_side if d > 0 else 0) for d in range(-MAX_DISTANCE, MAX_DISTANCE + 1))
