"""What decoders are made of: the halves of a layer, and the ways in which layers put them together."""

from __future__ import annotations

import math
from collections.abc import Callable

from bridge.graph import GraphBuilder, Node
from bridge.models.hparams import HParams

CONTEXT_MULTIPLE = 256

Norm = Callable[[Node, str], Node]
"""Normalises with the weights of that name."""
Half = Callable[[int, Node], Node]
"""Attention or MLP of a layer. In the last layer attention gives [O, n_embd], only the rows whose logits are wanted."""


def rms_norm(g: GraphBuilder, h: HParams) -> Norm:
    return lambda x, name: g.rms_norm(x, name, h.rms_eps)


def layer_norm(g: GraphBuilder, h: HParams) -> Norm:
    return lambda x, name: g.layer_norm(x, name, h.norm_eps)


def sequential_layers(g: GraphBuilder, h: HParams, x: Node, norm: Norm, attention: Half, mlp: Half, *,
                      before: tuple[str, ...] = ("attn_norm", "ffn_norm"), after: tuple[str, ...] = (),
                      residual_scale: float = 1.0) -> Node:
    """All layers: x + attention(x), then x + mlp(x), with the norms of these names before and after each half.

    ``residual_scale`` multiplies what is added. Returns [O, n_embd].
    """
    for i in range(h.n_layer):
        for n, half in enumerate((attention, mlp)):
            y = half(i, norm(x, f"blk.{i}.{before[n]}") if before else x)
            if after:
                y = norm(y, f"blk.{i}.{after[n]}")
            if residual_scale != 1.0:
                y = g.scale(y, residual_scale)
            if n == 0 and i == h.n_layer - 1:
                x = g.select_outputs(x)
            x = g.add(y, x)
    return x


def parallel_layer(g: GraphBuilder, h: HParams, i: int, x: Node, y: Node, attention: Node, mlp: Half) -> Node:
    """x + attention + mlp(y): both halves see the same input. In the last layer the result is [O, n_embd]."""
    if i == h.n_layer - 1:
        x, y = g.select_outputs(x), g.select_outputs(y)
    return g.add(mlp(i, y), g.add(attention, x))


def self_attention(g: GraphBuilder, h: HParams, i: int, x: Node, *, rope: str | None, style: str = "neox",
                   scale: float | None = None, qk_norm: bool | Norm = False, softcap: float = 0.0,
                   window: int = 0, sinks: str | None = None) -> Node:
    """Queries, keys and values of layer ``i`` from x [T, n_embd], attention over the cache, output projection.

    ``rope`` is a table or None; ``scale`` defaults to 1/sqrt(head_dim); ``qk_norm`` normalises queries and keys before
    the rotation, True each head's by root mean square. In the last layer only the rows whose logits are wanted go on
    from the heads: the result is [O, n_embd].
    """
    q, k, v = projections(g, h, i, x)
    if qk_norm:
        norm = qk_norm if callable(qk_norm) else head_norm(g, h)
        q, k = norm(q, f"blk.{i}.attn_q_norm"), norm(k, f"blk.{i}.attn_k_norm")
    if rope is not None:
        q, k = (g.rope(part, rope, h.head_dim, style) for part in (q, k))
    return attended(g, h, i, q, k, v, scale=scale, softcap=softcap, window=window, sinks=sinks)


def projections(g: GraphBuilder, h: HParams, i: int, x: Node, per_query: int = 1) -> tuple[Node, Node, Node]:
    """Queries, keys and values, from one tensor ``attn_qkv`` or three; their biases may be apart in either case.

    Queries are ``per_query`` times as wide as heads are.
    """
    widths = (per_query * h.n_head[i] * h.head_dim, h.n_head_kv[i] * h.head_dim, h.n_head_kv[i] * h.head_dim_v)
    if g.has(f"blk.{i}.attn_qkv.weight") or not g.has(f"blk.{i}.attn_q.weight") and not g.has(f"blk.{i}.attn_k.weight"):
        parts = zip((f"blk.{i}.attn_{letter}.bias" for letter in "qkv"),
                    split(g, g.matmul(x, f"blk.{i}.attn_qkv", sum(widths)), *widths))
        return tuple(g.add_vector(part, bias) if g.has(bias) else part for bias, part in parts)
    return tuple(g.matmul(x, f"blk.{i}.attn_{letter}", width) for letter, width in zip("qkv", widths))


def split(g: GraphBuilder, x: Node, *widths: int) -> tuple[Node, ...]:
    """The columns of x in runs of these widths."""
    return tuple(g.columns(x, sum(widths[:n]), width) for n, width in enumerate(widths))


def head_norm(g: GraphBuilder, h: HParams) -> Norm:
    """Root mean square of each head, with one weight for all."""
    return lambda x, name: g.rms_norm(x, name, h.rms_eps, group=h.head_dim)


def attended(g: GraphBuilder, h: HParams, i: int, q: Node, k: Node, v: Node, *, scale: float | None = None,
             softcap: float = 0.0, window: int = 0, sinks: str | None = None) -> Node:
    """Attention over the cache and the output projection of layer ``i``; in the last layer [O, n_embd]."""
    heads = g.attention(q, k, v, n_head=h.n_head[i], n_head_kv=h.n_head_kv[i], head_dim=h.head_dim,
                        head_dim_v=h.head_dim_v, scale=scale or 1.0 / math.sqrt(h.head_dim), softcap=softcap,
                        window=window, sinks=sinks)
    if i == h.n_layer - 1:
        heads = g.select_outputs(heads)
    return g.matmul(heads, f"blk.{i}.attn_output", h.n_embd)


def gated_mlp(g: GraphBuilder, h: HParams, i: int, x: Node, act: str) -> Node:
    """down(act(gate(x)) * up(x)) of layer ``i``."""
    gate = g.matmul(x, f"blk.{i}.ffn_gate", h.n_ff[i])
    up = g.matmul(x, f"blk.{i}.ffn_up", h.n_ff[i])
    return g.matmul(g.glu(gate, up, act), f"blk.{i}.ffn_down", h.n_embd)


def fused_gated_mlp(g: GraphBuilder, h: HParams, i: int, x: Node, act: str) -> Node:
    """The same where ``ffn_up`` holds the gate's rows and then those of up."""
    gate, up = split(g, g.matmul(x, f"blk.{i}.ffn_up", 2 * h.n_ff[i]), h.n_ff[i], h.n_ff[i])
    return g.matmul(g.glu(gate, up, act), f"blk.{i}.ffn_down", h.n_embd)


def plain_mlp(g: GraphBuilder, h: HParams, i: int, x: Node, act: str) -> Node:
    """down(act(up(x))) of layer ``i``."""
    return g.matmul(g.activate(g.matmul(x, f"blk.{i}.ffn_up", h.n_ff[i]), act), f"blk.{i}.ffn_down", h.n_embd)


def shared_expert(g: GraphBuilder, h: HParams, i: int, x: Node, act: str, n_ff: int) -> Node:
    """The gated MLP that sees every token beside the experts of layer ``i``."""
    gate = g.matmul(x, f"blk.{i}.ffn_gate_shexp", n_ff)
    up = g.matmul(x, f"blk.{i}.ffn_up_shexp", n_ff)
    return g.matmul(g.glu(gate, up, act), f"blk.{i}.ffn_down_shexp", h.n_embd)


def mixture_of_experts(g: GraphBuilder, h: HParams, i: int, x: Node, act: str, *, normalise: bool,
                       n_ff: int | None = None, **router: object) -> Node:
    """The gated MLPs of the ``n_expert_used`` experts that layer ``i``'s router likes best, weighted by it.

    ``n_ff``: columns of an expert (default: those of the layer's MLP); ``router``: see GraphBuilder.route.
    """
    route = g.route(g.matmul(x, f"blk.{i}.ffn_gate_inp", h.n_expert), h.n_expert_used, normalise=normalise, **router)
    return gated_experts(g, h, i, x, route, act, n_ff or h.n_ff[i])


def gated_experts(g: GraphBuilder, h: HParams, i: int, x: Node, route: Node, act: str, n_ff: int) -> Node:
    """The gated MLPs of the routed experts, weighted; gate and up may be in one tensor, ``ffn_gate_up_exps``."""
    if g.has(f"blk.{i}.ffn_gate_up_exps.weight"):
        both = g.matmul_experts(x, route, f"blk.{i}.ffn_gate_up_exps", 2 * n_ff)
        gate, up = (g.columns(both, first, n_ff, group=2 * n_ff) for first in (0, n_ff))
    else:
        gate = g.matmul_experts(x, route, f"blk.{i}.ffn_gate_exps", n_ff)
        up = g.matmul_experts(x, route, f"blk.{i}.ffn_up_exps", n_ff)
    down = g.matmul_experts(g.glu(gate, up, act), route, f"blk.{i}.ffn_down_exps", h.n_embd, per_expert=True)
    return g.combine_experts(down, route)


def rope_factors(h: HParams, g: GraphBuilder) -> str | None:
    """The tensor that rotations are divided by: Llama 3's, or LongRoPE's for contexts up to the original size or above.

    llama.cpp compares a context size that it has rounded up.
    """
    if g.has("rope_freqs.weight"):
        return "rope_freqs.weight"
    n_ctx = -(-h.n_ctx // CONTEXT_MULTIPLE) * CONTEXT_MULTIPLE
    name = "rope_factors_long.weight" if n_ctx > h.n_ctx_orig else "rope_factors_short.weight"
    return name if g.has(name) else None


def output_head(g: GraphBuilder, h: HParams, x: Node, norm: str = "output_norm", *, by: Norm | None = None,
                scale: float = 1.0, may_be_tied: bool = True) -> Node:
    """Final norm, ``by`` root mean square unless told otherwise, and logits [O, n_vocab] times ``scale``.

    Without ``output.weight`` the embedding is used again, unless the model never does.
    """
    x = (by or rms_norm(g, h))(x, norm)
    own = g.has("output.weight") or not may_be_tied
    logits = g.matmul(x, "output" if own else "token_embd", h.n_vocab)
    return g.scale(logits, scale) if scale != 1.0 else logits
