"""What state space models share: their sizes, the convolution before the scan, and Mamba 2's layer.

Sources: Gu & Dao, arXiv 2312.00752; Dao & Gu, arXiv 2405.21060.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.errors import ModelError
from bridge.graph import GraphBuilder, Node
from bridge.models.hparams import HParams

MIN_TAPS = 2


@dataclass(frozen=True)
class StateSpace:
    """``dt_rank`` is the rank of the steps in Mamba, and the number of heads in the others."""

    taps: int
    d_inner: int
    d_state: int
    dt_rank: int
    n_group: int

    @classmethod
    def read(cls, h: HParams) -> StateSpace:
        keys = h.keys
        return cls(
            taps=keys.integer("ssm.conv_kernel", low=MIN_TAPS),
            d_inner=keys.integer("ssm.inner_size"),
            d_state=keys.integer("ssm.state_size"),
            dt_rank=keys.integer("ssm.time_step_rank"),
            n_group=keys.integer("ssm.group_count", 1),
        )

    def check_heads(self) -> None:
        """Raise ModelError when the inner width is not made of equal heads in equal groups."""
        if self.d_inner % self.dt_rank or self.dt_rank % self.n_group:
            raise ModelError(f"ssm.inner_size {self.d_inner}, ssm.time_step_rank {self.dt_rank} and ssm.group_count "
                             f"{self.n_group} do not fit: each must be a multiple of the next")


def convolved(g: GraphBuilder, x: Node, name: str, taps: int) -> Node:
    """silu(conv(x))."""
    return g.activate(g.conv(x, name, taps), "silu")


def mamba2_mixed(g: GraphBuilder, h: HParams, ssm: StateSpace, i: int, x: Node) -> Node:
    """Gated, normalised outputs [T, d_inner] of a layer of Mamba 2, whose heads have one step and one decay each."""
    name, d_bc = f"blk.{i}.ssm", 2 * ssm.n_group * ssm.d_state
    parts = g.matmul(x, f"{name}_in", 2 * ssm.d_inner + d_bc + ssm.dt_rank)
    z = g.columns(parts, 0, ssm.d_inner)
    ubc = convolved(g, g.columns(parts, ssm.d_inner, ssm.d_inner + d_bc), f"{name}_conv1d", ssm.taps)
    dt = g.add_vector(g.columns(parts, 2 * ssm.d_inner + d_bc, ssm.dt_rank), f"{name}_dt.bias")
    u, bc = g.columns(ubc, 0, ssm.d_inner), g.columns(ubc, ssm.d_inner, d_bc)
    y = g.glu(z, g.selective_scan(u, dt, bc, name, ssm.d_state, scalar_decay=True), "silu")
    return g.rms_norm(y, f"{name}_norm", h.rms_eps, group=ssm.d_inner // ssm.n_group, per_head=True)
