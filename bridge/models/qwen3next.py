"""Qwen 3 Next: three layers of four remember by the gated delta rule, the fourth attends with a gate; all with experts.

A shared expert sees every token, as much as its own gate lets through. Source of the delta rule: Yang et al.,
arXiv 2412.06464; names, shapes and defaults are llama.cpp's.
"""

from __future__ import annotations

from bridge.graph import Graph, GraphBuilder, Node
from bridge.models.blocks import mixture_of_experts, output_head, rms_norm, sequential_layers, shared_expert
from bridge.models.delta_net import DeltaNet, delta_mixed, gated_attention, recurrent_layers
from bridge.models.hparams import HParams

RECURRENT_LAYERS = "some"


def build(h: HParams, g: GraphBuilder) -> Graph:
    h, net = h.without_predictors(), DeltaNet.read(h)
    recurrent, rope = recurrent_layers(h), g.rope_table("rope", h.rope_table())

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    x = sequential_layers(
        g, h, x, rms_norm(g, h), before=("attn_norm", "post_attention_norm"),
        attention=lambda i, x: _delta(g, h, net, i, x) if recurrent[i] else gated_attention(g, h, i, x, rope),
        mlp=lambda i, x: _mixture(g, h, i, x))
    return g.finish(output_head(g, h, x), h.n_embd)


def _delta(g: GraphBuilder, h: HParams, net: DeltaNet, i: int, x: Node) -> Node:
    per_key = net.n_head // net.n_head_k
    ba = g.matmul(x, f"blk.{i}.ssm_ba", 2 * net.n_head)  # for each key head the betas, then the alphas, of its heads
    beta, alpha = (g.columns(ba, first, per_key, group=2 * per_key) for first in (0, per_key))
    older = g.has(f"blk.{i}.ssm_in.weight") and not g.has(f"blk.{i}.attn_qkv.weight")
    qkv, z = _by_key_head(g, net, i, x) if older else net.projected(g, i, x)
    return delta_mixed(g, h, net, i, qkv, z, beta, alpha, interleaved=False)


def _by_key_head(g: GraphBuilder, net: DeltaNet, i: int, x: Node) -> tuple[Node, Node]:
    """Older files: one product, with the query, key, values and gates of each key head side by side."""
    d_k, d_v = net.d_head, net.n_head // net.n_head_k * net.d_head
    group = 2 * d_k + 2 * d_v
    parts = g.matmul(x, f"blk.{i}.ssm_in", net.n_head_k * group)
    q, k = (g.columns(parts, first, d_k, group=group) for first in (0, d_k))
    v, z = (g.columns(parts, first, d_v, group=group) for first in (2 * d_k, 2 * d_k + d_v))
    return g.concat(g.concat(q, k), v), z


def _mixture(g: GraphBuilder, h: HParams, i: int, x: Node) -> Node:
    n_ff = h.keys.per_layer("expert_feed_forward_length", h.n_layer, h.n_ff[i] // h.n_expert_used)[i]
    n_shared = h.keys.integer("expert_shared_feed_forward_length", 0, low=0) or h.n_ff[i]
    y = mixture_of_experts(g, h, i, x, "silu", normalise=True, n_ff=n_ff)
    gate = g.activate(g.matmul(x, f"blk.{i}.ffn_gate_inp_shexp", 1), "sigmoid")
    return g.add(y, g.mul(shared_expert(g, h, i, x, "silu", n_shared), gate))
