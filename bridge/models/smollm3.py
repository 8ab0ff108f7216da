"""SmolLM 3: Llama's layer, but every fourth one does not rotate queries and keys (no metadata key says so).

Source: Hugging Face, "SmolLM3"; layers without positions are those of Yang et al., arXiv 2501.18795.
"""

from __future__ import annotations

from bridge.graph import Graph, GraphBuilder
from bridge.models.blocks import gated_mlp, output_head, rms_norm, self_attention, sequential_layers
from bridge.models.hparams import HParams

UNROTATED_PERIOD = 4


def build(h: HParams, g: GraphBuilder) -> Graph:
    rope = g.rope_table("rope", h.rope_table())

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    x = sequential_layers(
        g, h, x, rms_norm(g, h),
        attention=lambda i, x: self_attention(g, h, i, x, rope=None if (i + 1) % UNROTATED_PERIOD == 0 else rope, style="norm"),
        mlp=lambda i, x: gated_mlp(g, h, i, x, "silu"))
    return g.finish(output_head(g, h, x), h.n_embd)
