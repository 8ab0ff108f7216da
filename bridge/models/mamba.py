"""Mamba: no attention and no MLP; every column is a small linear system whose steps depend on the token.

Source: Gu & Dao, arXiv 2312.00752. With ``ssm.dt_b_c_rms`` (Falcon Mamba, Zuo et al., arXiv 2410.05355) steps, inputs
and read-outs are normalised, without weights.
"""

from __future__ import annotations

from bridge.graph import Graph, GraphBuilder, Node
from bridge.models.blocks import output_head
from bridge.models.hparams import HParams
from bridge.models.state_space import StateSpace, convolved

RECURRENT_LAYERS = "all"


def build(h: HParams, g: GraphBuilder) -> Graph:
    ssm = StateSpace.read(h)
    g.require_biases("ssm_conv1d", "ssm_dt")
    normalised = h.keys.boolean("ssm.dt_b_c_rms", False)

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    for i in range(h.n_layer):
        y = _mixed(g, h, ssm, i, g.rms_norm(x, f"blk.{i}.attn_norm", h.rms_eps), normalised)
        if i == h.n_layer - 1:
            x, y = g.select_outputs(x), g.select_outputs(y)
        x = g.add(g.matmul(y, f"blk.{i}.ssm_out", h.n_embd), x)
    return g.finish(output_head(g, h, x), h.n_embd)


def _mixed(g: GraphBuilder, h: HParams, ssm: StateSpace, i: int, x: Node, normalised: bool) -> Node:
    """Gated outputs [T, d_inner] of layer ``i``'s systems."""
    name = f"blk.{i}.ssm"
    parts = g.matmul(x, f"{name}_in", 2 * ssm.d_inner)
    u, z = g.columns(parts, 0, ssm.d_inner), g.columns(parts, ssm.d_inner, ssm.d_inner)
    u = convolved(g, u, f"{name}_conv1d", ssm.taps)
    parts = g.matmul(u, f"{name}_x", ssm.dt_rank + 2 * ssm.d_state)
    dt, bc = g.columns(parts, 0, ssm.dt_rank), g.columns(parts, ssm.dt_rank, 2 * ssm.d_state)
    if normalised:
        dt, bc = g.rms_norm(dt, None, h.rms_eps), g.rms_norm(bc, None, h.rms_eps, group=ssm.d_state)
    dt = g.matmul(dt, f"{name}_dt", ssm.d_inner)
    return g.glu(z, g.selective_scan(u, dt, bc, name, ssm.d_state, scalar_decay=False), "silu")
