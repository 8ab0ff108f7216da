"""OLMo 2 and 3: norms after each half instead of before, and one on all of a token's queries and one on its keys.

OLMo 3: three layers of four see a sliding window and rotate without scaling. Sources: OLMo Team, arXiv 2501.00656 and
"Olmo 3" (2025).
"""

from __future__ import annotations

from bridge.graph import Graph, GraphBuilder, RopeTable
from bridge.models.blocks import gated_mlp, output_head, rms_norm, self_attention, sequential_layers
from bridge.models.hparams import HParams


def build(h: HParams, g: GraphBuilder) -> Graph:
    window = h.keys.integer("attention.sliding_window", 0, low=0)
    windowed = h.keys.windowed(h.n_layer, default_period=4) if window else (False,) * h.n_layer
    table, norm = h.rope_table(), rms_norm(g, h)
    full = g.rope_table("rope", table)
    local = g.rope_table("rope_swa", RopeTable(h.n_rot, table.freq_base)) if window else full

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    x = sequential_layers(
        g, h, x, norm, before=(), after=("post_attention_norm", "post_ffw_norm"),
        attention=lambda i, x: self_attention(g, h, i, x, rope=local if windowed[i] else full, style="neox",
                                              qk_norm=norm, window=window if windowed[i] else 0),
        mlp=lambda i, x: gated_mlp(g, h, i, x, "silu"))
    return g.finish(output_head(g, h, x, may_be_tied=False), h.n_embd)
