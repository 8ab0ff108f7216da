"""Granite 4: Granite whose layers without key/value heads are Mamba 2's, most of them; an MLP or experts follow each.

Source: IBM Granite team, "Granite 4.0"; Dao & Gu, arXiv 2405.21060; names, shapes and defaults are llama.cpp's.
"""

from __future__ import annotations

from bridge.graph import Graph, GraphBuilder, Node
from bridge.models import granite
from bridge.models.hparams import HParams
from bridge.models.state_space import StateSpace, mamba2_mixed

RECURRENT_LAYERS = "some"


def build(h: HParams, g: GraphBuilder) -> Graph:
    ssm = StateSpace.read(h)
    ssm.check_heads()

    def mamba2(i: int, x: Node) -> Node:
        y = mamba2_mixed(g, h, ssm, i, x)
        return g.matmul(g.select_outputs(y) if i == h.n_layer - 1 else y, f"blk.{i}.ssm_out", h.n_embd)

    return granite.build(h, g, without_heads=mamba2)
