"""Mamba 2: Mamba with heads, each of one step and one decay, and grouped inputs and read-outs as in attention.

Source: Dao & Gu, arXiv 2405.21060.
"""

from __future__ import annotations

from bridge.graph import Graph, GraphBuilder
from bridge.models.blocks import output_head
from bridge.models.hparams import HParams
from bridge.models.state_space import StateSpace, mamba2_mixed

RECURRENT_LAYERS = "all"


def build(h: HParams, g: GraphBuilder) -> Graph:
    ssm = StateSpace.read(h)
    ssm.check_heads()
    g.require_biases("ssm_conv1d")

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    for i in range(h.n_layer):
        y = mamba2_mixed(g, h, ssm, i, g.rms_norm(x, f"blk.{i}.attn_norm", h.rms_eps))
        if i == h.n_layer - 1:
            x, y = g.select_outputs(x), g.select_outputs(y)
        x = g.add(g.matmul(y, f"blk.{i}.ssm_out", h.n_embd), x)
    return g.finish(output_head(g, h, x), h.n_embd)
