"""What Qwen's hybrids share: layers of the gated delta rule, and attention with a gate on its result.

Source: Yang et al., arXiv 2412.06464; names, shapes and defaults are llama.cpp's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bridge.errors import ModelError
from bridge.graph import GraphBuilder, Node
from bridge.models.blocks import projections
from bridge.models.hparams import HParams
from bridge.models.state_space import MIN_TAPS, convolved

FULL_ATTENTION_INTERVAL = 4


@dataclass(frozen=True)
class DeltaNet:
    """``d_head``: columns of any head; ``n_head`` heads of values share ``n_head_k`` of queries and keys."""

    taps: int
    n_head: int
    n_head_k: int
    d_head: int

    @classmethod
    def read(cls, h: HParams) -> DeltaNet:
        keys = h.keys
        net = cls(taps=keys.integer("ssm.conv_kernel", low=MIN_TAPS), n_head=keys.integer("ssm.time_step_rank"),
                  n_head_k=keys.integer("ssm.group_count"), d_head=keys.integer("ssm.state_size"))
        d_inner = keys.integer("ssm.inner_size")
        if net.n_head % net.n_head_k or d_inner != net.n_head * net.d_head:
            raise ModelError(f"ssm.inner_size {d_inner} must be ssm.time_step_rank {net.n_head} times ssm.state_size "
                             f"{net.d_head}, and the second a multiple of ssm.group_count {net.n_head_k}")
        return net

    @property
    def d_qk(self) -> int:
        """Columns of the queries and keys of all heads."""
        return 2 * self.n_head_k * self.d_head

    @property
    def d_v(self) -> int:
        return self.n_head * self.d_head

    def projected(self, g: GraphBuilder, i: int, x: Node) -> tuple[Node, Node]:
        """Queries, keys and values of layer ``i`` side by side, and the gates of its result."""
        return (g.matmul(x, f"blk.{i}.attn_qkv", self.d_qk + self.d_v), g.matmul(x, f"blk.{i}.attn_gate", self.d_v))


def recurrent_layers(h: HParams) -> tuple[bool, ...]:
    """Which layers have no attention: those the file lists, or all but every fourth (or so, it may say)."""
    if h.keys.has("attention.recurrent_layers"):
        return h.keys.flags("attention.recurrent_layers", h.n_layer)
    interval = h.keys.integer("full_attention_interval", FULL_ATTENTION_INTERVAL)
    return tuple((i + 1) % interval != 0 for i in range(h.n_layer))


def delta_mixed(g: GraphBuilder, h: HParams, net: DeltaNet, i: int, qkv: Node, z: Node, beta: Node, alpha: Node, *,
                interleaved: bool) -> Node:
    """What the heads of layer ``i`` read from their memories, normalised and gated by ``z`` [T, d_v], and projected.

    In the last layer only the rows whose logits are wanted go on from the heads: the result is [O, n_embd].
    """
    name, n_qk, scale = f"blk.{i}.ssm", net.d_qk, 1.0 / math.sqrt(net.d_head)
    qkv = convolved(g, qkv, f"{name}_conv1d", net.taps)
    qk = g.rms_norm(g.columns(qkv, 0, n_qk), None, h.rms_eps / net.d_head, group=net.d_head)
    qk = g.scale(qk, scale)  # heads of length 1
    q, k, v = g.columns(qk, 0, n_qk // 2), g.columns(qk, n_qk // 2, n_qk // 2), g.columns(qkv, n_qk, net.d_v)
    step = g.activate(g.add_vector(alpha, f"{name}_dt.bias"), "softplus")
    y = g.gated_delta(q, k, v, g.mul_vector(step, f"{name}_a"), g.activate(beta, "sigmoid"), n_head_k=net.n_head_k,
                      interleaved=interleaved, scale=scale)
    y = g.glu(z, g.rms_norm(y, f"{name}_norm", h.rms_eps, group=net.d_head), "silu")
    return g.matmul(g.select_outputs(y) if i == h.n_layer - 1 else y, f"{name}_out", h.n_embd)


def gated_attention(g: GraphBuilder, h: HParams, i: int, x: Node, rope: str) -> Node:
    """Attention of layer ``i`` whose result is multiplied by the sigmoid of a gate that comes with each query."""
    n_head, n_head_kv, d = h.n_head[i], h.n_head_kv[i], h.head_dim
    queries, k, v = projections(g, h, i, x, per_query=2)
    q, gate = (g.columns(queries, first, d, group=2 * d) for first in (0, d))
    q, k = (g.rope(g.rms_norm(part, f"blk.{i}.attn_{letter}_norm", h.rms_eps, group=d), rope, d, "neox")
            for part, letter in ((q, "q"), (k, "k")))
    y = g.attention(q, k, v, n_head=n_head, n_head_kv=n_head_kv, head_dim=d, head_dim_v=h.head_dim_v,
                    scale=1.0 / math.sqrt(d))
    y = g.mul(y, g.activate(gate, "sigmoid"))
    return g.matmul(g.select_outputs(y) if i == h.n_layer - 1 else y, f"blk.{i}.attn_output", h.n_embd)
