"""GPT-OSS: experts with biases and a clamped SwiGLU, attention sinks, a window in every other layer, YaRN in all.

Source: OpenAI, arXiv 2508.10925. ``post_attention_norm`` is the norm before the experts.
"""

from __future__ import annotations

from bridge.graph import Graph, GraphBuilder, Node
from bridge.models.blocks import output_head, rms_norm, self_attention, sequential_layers
from bridge.models.hparams import HParams

SWIGLU_LIMIT = 7.0


def build(h: HParams, g: GraphBuilder) -> Graph:
    g.require_biases("attn_output", "ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
    h.require_experts()
    window = h.keys.integer("attention.sliding_window", low=1)
    windowed = h.keys.windowed(h.n_layer, default_period=2)
    full = g.rope_table("rope", h.rope_table())
    swa = g.rope_table("rope_swa", h.rope_table(base_key="rope.freq_base_swa"))

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    x = sequential_layers(
        g, h, x, rms_norm(g, h), before=("attn_norm", "post_attention_norm"),
        attention=lambda i, x: self_attention(g, h, i, x, rope=swa if windowed[i] else full, style="neox",
                                              window=window if windowed[i] else 0, sinks=f"blk.{i}.attn_sinks.weight"),
        mlp=lambda i, x: _experts(g, h, i, x))
    return g.finish(output_head(g, h, x, may_be_tied=False), h.n_embd)


def _experts(g: GraphBuilder, h: HParams, i: int, x: Node) -> Node:
    """down(g · sigmoid(1.702 g) · (u + 1)) with g at most 7 and u from -7 to 7."""
    n_ff = h.n_ff_expert(i)
    route = g.route(g.matmul(x, f"blk.{i}.ffn_gate_inp", h.n_expert), h.n_expert_used, normalise=True)
    gate = g.matmul_experts(x, route, f"blk.{i}.ffn_gate_exps", n_ff)
    up = g.matmul_experts(x, route, f"blk.{i}.ffn_up_exps", n_ff)
    gate = g.clamp(gate, -float("inf"), SWIGLU_LIMIT)
    up = g.scale(g.clamp(up, -SWIGLU_LIMIT, SWIGLU_LIMIT), 1.0, 1.0)
    down = g.matmul_experts(g.glu(gate, up, "gelu_quick"), route, f"blk.{i}.ffn_down_exps", h.n_embd, per_expert=True)
    return g.combine_experts(down, route)
