"""LFM2: most layers are a short gated convolution, some attention; with experts, LFM2 MoE.

A layer without key/value heads is a convolution: its input is projected to a gate before it, a gate after it and what
is convolved. Source: Liquid AI, arXiv 2511.23404; names, shapes and defaults are llama.cpp's.
"""

from __future__ import annotations

from bridge.errors import UnsupportedError
from bridge.graph import Graph, GraphBuilder, Node
from bridge.models.blocks import (
    gated_mlp, mixture_of_experts, output_head, rms_norm, self_attention, sequential_layers, split,
)
from bridge.models.hparams import HParams
from bridge.models.state_space import MIN_TAPS

RECURRENT_LAYERS = "some"

GATES = {1: "softmax", 2: "sigmoid"}


def build(h: HParams, g: GraphBuilder) -> Graph:
    taps = h.keys.integer("shortconv.l_cache", low=MIN_TAPS)
    window = 0 if h.n_expert else h.keys.integer("attention.sliding_window", 0, low=0)
    n_dense = h.keys.integer("leading_dense_block_count", 0, low=0) if h.n_expert else h.n_layer
    rope = g.rope_table("rope", h.rope_table())

    def remembers(i: int, x: Node) -> Node:
        if not h.n_head_kv[i]:
            return _short_convolution(g, h, i, x, taps)
        return self_attention(g, h, i, x, rope=rope, qk_norm=True, window=window)

    def thinks(i: int, x: Node) -> Node:
        return gated_mlp(g, h, i, x, "silu") if i < n_dense else _experts(g, h, i, x)

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    x = sequential_layers(g, h, x, rms_norm(g, h), attention=remembers, mlp=thinks)
    return g.finish(output_head(g, h, x, "token_embd_norm"), h.n_embd)


def _short_convolution(g: GraphBuilder, h: HParams, i: int, x: Node, taps: int) -> Node:
    name = f"blk.{i}.shortconv"
    before, after, x = split(g, g.matmul(x, f"{name}.in_proj", 3 * h.n_embd), h.n_embd, h.n_embd, h.n_embd)
    y = g.mul(after, g.conv(g.mul(before, x), f"{name}.conv", taps))
    if i == h.n_layer - 1:
        y = g.select_outputs(y)
    return g.matmul(y, f"{name}.out_proj", h.n_embd)


def _experts(g: GraphBuilder, h: HParams, i: int, x: Node) -> Node:
    """Experts chosen by a biased gate and weighted by the gate itself."""
    gating = h.keys.integer("expert_gating_func")
    if gating not in GATES:
        raise UnsupportedError(f"{h.architecture}.expert_gating_func is {gating}; supported are 1 (softmax) and "
                               "2 (sigmoid)")
    n_ff = h.keys.per_layer("expert_feed_forward_length", h.n_layer)[i]
    return mixture_of_experts(g, h, i, x, "silu", normalise=True, n_ff=n_ff, gate=GATES[gating],
                              bias=f"blk.{i}.exp_probs_b.bias")
