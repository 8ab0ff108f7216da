"""GLM 4: norms before and after each half, heads rotated in part, gate and up in one tensor.

Source: GLM Team, arXiv 2406.12793, and the GLM-4-0414 release.
"""

from __future__ import annotations

from bridge.errors import UnsupportedError
from bridge.graph import Graph, GraphBuilder
from bridge.models.blocks import fused_gated_mlp, output_head, rms_norm, self_attention, sequential_layers
from bridge.models.hparams import HParams


def build(h: HParams, g: GraphBuilder) -> Graph:
    h = h.without_predictors()
    if h.keys.has("rope.dimension_sections"):
        raise UnsupportedError("this glm4 file rotates by sections of dimensions, as models that see images do; "
                               "supported are those of text, without the key glm4.rope.dimension_sections")
    rope = g.rope_table("rope", h.rope_table())

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    x = sequential_layers(
        g, h, x, rms_norm(g, h), after=("post_attention_norm", "post_ffw_norm"),
        attention=lambda i, x: self_attention(g, h, i, x, rope=rope, style="norm"),
        mlp=lambda i, x: fused_gated_mlp(g, h, i, x, "silu"))
    return g.finish(output_head(g, h, x), h.n_embd)
