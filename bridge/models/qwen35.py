"""Qwen 3.5: Qwen 3 Next without experts, whose positions have three parts, all equal for text.

Source of the delta rule: Yang et al., arXiv 2412.06464; names, shapes and defaults are llama.cpp's.
"""

from __future__ import annotations

from bridge.errors import UnsupportedError
from bridge.graph import Graph, GraphBuilder, Node
from bridge.models.blocks import gated_mlp, output_head, rms_norm, sequential_layers
from bridge.models.delta_net import DeltaNet, delta_mixed, gated_attention, recurrent_layers
from bridge.models.hparams import HParams

RECURRENT_LAYERS = "some"


def build(h: HParams, g: GraphBuilder) -> Graph:
    h, net = h.without_predictors(), DeltaNet.read(h)
    _check_sections(h)
    recurrent, rope = recurrent_layers(h), g.rope_table("rope", h.rope_table())

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    x = sequential_layers(
        g, h, x, rms_norm(g, h), before=("attn_norm", "post_attention_norm"),
        attention=lambda i, x: _delta(g, h, net, i, x) if recurrent[i] else gated_attention(g, h, i, x, rope),
        mlp=lambda i, x: gated_mlp(g, h, i, x, "silu"))
    return g.finish(output_head(g, h, x), h.n_embd)


def _delta(g: GraphBuilder, h: HParams, net: DeltaNet, i: int, x: Node) -> Node:
    qkv, z = net.projected(g, i, x)
    beta, alpha = (g.matmul(x, f"blk.{i}.ssm_{part}", net.n_head) for part in ("beta", "alpha"))
    return delta_mixed(g, h, net, i, qkv, z, beta, alpha, interleaved=True)


def _check_sections(h: HParams) -> None:
    """Pairs of columns take turns with the parts of a position; beyond a part's share they would not rotate with text."""
    shares = h.keys.per_layer("rope.dimension_sections", 4, low=0)
    turns = [pair % max(1, sum(shares)) for pair in range(h.n_rot // 2)]
    loose = sum(turn >= 3 * shares[turn % 3] for turn in turns)
    if loose:
        raise UnsupportedError(f"rope.dimension_sections {list(shares)} leave {loose} of {len(turns)} pairs of columns "
                               "to a fourth part of the position, which is not supported")
