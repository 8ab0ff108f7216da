"""BERT and its descendants: a norm after each half of a layer, tokens that see all others, vectors instead of logits.

BERT adds embeddings of positions (Devlin et al., arXiv 1810.04805). Nomic's rotates queries and keys instead and gates the
MLP with SiLU (Nussbaum et al., arXiv 2402.01613); the second version of Jina's has ALiBi (Press et al., arXiv 2108.12409)
and a GELU gate (Günther et al., arXiv 2310.19923). All tokens are of the first type.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bridge.graph import ALL, Graph, GraphBuilder, Node
from bridge.models.blocks import fused_gated_mlp, gated_mlp, plain_mlp, projections
from bridge.models.hparams import HParams


@dataclass(frozen=True)
class Variant:
    """How a member of the family knows positions ("embedded", "rotated" or "slopes"), and the activation of its gate."""

    positions: str
    gate: str | None = None


VARIANTS = {
    "bert": Variant("embedded"),
    "nomic-bert": Variant("rotated", gate="silu"),
    "jina-bert-v2": Variant("slopes", gate="gelu"),
}
MAX_ALIBI_BIAS = 8.0


def build(h: HParams, g: GraphBuilder) -> Graph:
    variant = VARIANTS[h.architecture]
    rope = g.rope_table("rope", h.rope_table()) if variant.positions == "rotated" else None
    slopes = [alibi_slopes(n, MAX_ALIBI_BIAS) if variant.positions == "slopes" else () for n in h.n_head]

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    if g.has("token_types.weight"):
        x = g.add(x, g.embed_first("token_types.weight", g.n_rows("token_types.weight"), h.n_embd))
    if variant.positions == "embedded":
        x = g.add(g.embed_positions("position_embd.weight", h.n_ctx_train, h.n_embd), x)
    x = _norm(h, g, x, "token_embd_norm")
    for i in range(h.n_layer):
        attn = _attention(h, g, i, x, rope, slopes[i])
        if i == h.n_layer - 1:
            x = g.select_outputs(x)
        y = _norm(h, g, g.add(attn, x), f"blk.{i}.attn_output_norm")
        if g.has(f"blk.{i}.attn_norm_2.weight"):
            y = g.layer_norm(g.add(y, x), f"blk.{i}.attn_norm_2", h.norm_eps)
        x = _norm(h, g, g.add(_mlp(h, g, i, y, variant), y), f"blk.{i}.layer_output_norm")
    return g.finish_encoder(x, h.n_vocab)


def _norm(h: HParams, g: GraphBuilder, x: Node, name: str) -> Node:
    """A layer norm that in this family always has a bias."""
    g.weight(f"{name}.bias", x.width)
    return g.layer_norm(x, name, h.norm_eps)


def _attention(h: HParams, g: GraphBuilder, i: int, x: Node, rope: str | None, slopes: tuple[float, ...]) -> Node:
    q, k, v = projections(g, h, i, x)
    if g.has(f"blk.{i}.attn_q_norm.weight"):
        q = g.layer_norm(q, f"blk.{i}.attn_q_norm", h.norm_eps)
    if g.has(f"blk.{i}.attn_k_norm.weight"):
        k = g.layer_norm(k, f"blk.{i}.attn_k_norm", h.norm_eps)
    if rope:
        q, k = (g.rope(part, rope, h.head_dim, "neox") for part in (q, k))
    heads = g.text_attention(q, k, v, n_head=h.n_head[i], n_head_kv=h.n_head_kv[i], head_dim=h.head_dim,
                             head_dim_v=h.head_dim_v, scale=1.0 / math.sqrt(h.head_dim), slopes=slopes,
                             after=0 if h.causal else ALL)
    if i == h.n_layer - 1:
        heads = g.select_outputs(heads)
    return g.matmul(heads, f"blk.{i}.attn_output", h.n_embd)


def _mlp(h: HParams, g: GraphBuilder, i: int, x: Node, variant: Variant) -> Node:
    up = f"blk.{i}.ffn_up.weight"
    if variant.gate == "silu" or any(g.has(f"blk.{j}.ffn_gate.weight") for j in range(h.n_layer)):
        return gated_mlp(g, h, i, x, variant.gate or "gelu")
    if variant.gate and g.has(up) and g.n_rows(up) == 2 * h.n_ff[i]:
        return fused_gated_mlp(g, h, i, x, variant.gate)
    return plain_mlp(g, h, i, x, "gelu")


def alibi_slopes(n_head: int, max_bias: float) -> tuple[float, ...]:
    """A geometric sequence over the largest power of two of heads, and between its members for the rest (as in ggml)."""
    power = 1 << (n_head.bit_length() - 1)
    return tuple(2.0 ** (-max_bias * (head + 1) / power) if head < power
                 else 2.0 ** (-max_bias / 2 * (2 * (head - power) + 1) / power) for head in range(n_head))
