"""GLM 4: norms before and after each half, heads rotated in part, gate and up in one tensor.

Models that see images, too, rotate by sections of dimensions, one for each coordinate; the coordinates of text are all its
position. Their pairs are halves instead of neighbours. Source: GLM Team, arXiv 2406.12793 and the GLM-4-0414 release.
"""

from __future__ import annotations

from bridge.errors import UnsupportedError
from bridge.graph import Graph, GraphBuilder
from bridge.models.blocks import fused_gated_mlp, output_head, rms_norm, self_attention, sequential_layers
from bridge.models.hparams import HParams


def build(h: HParams, g: GraphBuilder) -> Graph:
    h = h.without_predictors()
    rope, style = g.rope_table("rope", h.rope_table()), "neox" if _has_sections(h) else "norm"

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    x = sequential_layers(
        g, h, x, rms_norm(g, h), after=("post_attention_norm", "post_ffw_norm"),
        attention=lambda i, x: self_attention(g, h, i, x, rope=rope, style=style),
        mlp=lambda i, x: fused_gated_mlp(g, h, i, x, "silu"))
    return g.finish(output_head(g, h, x), h.n_embd)


def _has_sections(h: HParams) -> bool:
    if not h.keys.has("rope.dimension_sections"):
        return False
    sections = h.keys.per_layer("rope.dimension_sections", 4, low=0)
    if sections[3]:
        raise UnsupportedError(f"rope.dimension_sections {list(sections)} give {sections[3]} pairs of columns to a fourth "
                               "coordinate, which text does not have")
    return sections[0] > 0 and sections[1] > 0
