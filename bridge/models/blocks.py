"""The two halves of a transformer layer that most architectures share."""

from __future__ import annotations

from bridge.graph import GraphBuilder, Node
from bridge.models.hparams import HParams


def self_attention(g: GraphBuilder, h: HParams, i: int, x: Node, *, rope: str, style: str, scale: float,
                   qk_norm: bool = False, softcap: float = 0.0, window: int = 0) -> Node:
    """Queries, keys and values of layer ``i`` from x [T, n_embd], attention over the cache, output projection.

    In the last layer only the rows whose logits are wanted go on from the heads: the result is [O, n_embd].
    """
    n_head, n_head_kv = h.n_head[i], h.n_head_kv[i]
    q = g.matmul(x, f"blk.{i}.attn_q", n_head * h.head_dim)
    k = g.matmul(x, f"blk.{i}.attn_k", n_head_kv * h.head_dim)
    v = g.matmul(x, f"blk.{i}.attn_v", n_head_kv * h.head_dim_v)
    if qk_norm:
        q = g.rms_norm(q, f"blk.{i}.attn_q_norm", h.rms_eps, group=h.head_dim)
        k = g.rms_norm(k, f"blk.{i}.attn_k_norm", h.rms_eps, group=h.head_dim)
    q = g.rope(q, rope, h.head_dim, style)
    k = g.rope(k, rope, h.head_dim, style)
    heads = g.attention(q, k, v, n_head=n_head, n_head_kv=n_head_kv, head_dim=h.head_dim, head_dim_v=h.head_dim_v,
                        scale=scale, softcap=softcap, window=window)
    if i == h.n_layer - 1:
        heads = g.select_outputs(heads)
    return g.matmul(heads, f"blk.{i}.attn_output", h.n_embd)


def gated_mlp(g: GraphBuilder, h: HParams, i: int, x: Node, act: str) -> Node:
    """down(act(gate(x)) * up(x)) of layer ``i``."""
    gate = g.matmul(x, f"blk.{i}.ffn_gate", h.n_ff[i])
    up = g.matmul(x, f"blk.{i}.ffn_up", h.n_ff[i])
    return g.matmul(g.glu(gate, up, act), f"blk.{i}.ffn_down", h.n_embd)


def mixture_of_experts(g: GraphBuilder, h: HParams, i: int, x: Node, act: str, *, normalise: bool) -> Node:
    """The gated MLPs of the ``n_expert_used`` experts that layer ``i``'s router likes best, weighted by it."""
    route = g.route(g.matmul(x, f"blk.{i}.ffn_gate_inp", h.n_expert), h.n_expert_used, normalise=normalise)
    gate = g.matmul_experts(x, route, f"blk.{i}.ffn_gate_exps", h.n_ff[i])
    up = g.matmul_experts(x, route, f"blk.{i}.ffn_up_exps", h.n_ff[i])
    down = g.matmul_experts(g.glu(gate, up, act), route, f"blk.{i}.ffn_down_exps", h.n_embd, per_expert=True)
    return g.combine_experts(down, route)


def output_head(g: GraphBuilder, h: HParams, x: Node, norm: str = "output_norm") -> Node:
    """Final norm and logits [O, n_vocab]; without ``output.weight`` the embedding is used again."""
    x = g.rms_norm(x, norm, h.rms_eps)
    return g.matmul(x, "output" if g.has("output.weight") else "token_embd", h.n_vocab)
