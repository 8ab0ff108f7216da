"""RWKV-7 "Goose": no attention; each head carries a matrix that the generalised delta rule rewrites.

A layer mixes over time (``wkv7``), then over channels. Both look one token back (token shift), and what the low-rank
parts decay, remove, add and gate depends on the token. Source: Peng et al., arXiv 2503.14456, whose reference code has
the head norm's epsilon and the decay's bound; the shapes are llama.cpp's.
"""

from __future__ import annotations

import math

from bridge.errors import ModelError, UnsupportedError
from bridge.graph import Graph, GraphBuilder, Node
from bridge.models.hparams import HParams

RECURRENT_LAYERS = "all"

HEAD_NORM_EPS = 64e-5
STRONGEST_DECAY = -math.exp(-0.5)
"""The logarithm of the smallest factor by which a column may shrink."""
LAYER_NORM_EPS = 1e-5
TINY = 1e-24
"""Keeps a head of zeros finite when it is made a unit vector."""


def build(h: HParams, g: GraphBuilder) -> Graph:
    head_dim = h.keys.integer("wkv.head_size")
    if h.n_embd % head_dim:
        raise ModelError(f"rwkv7.embedding_length is {h.n_embd}; it must be a multiple of the wkv.head_size {head_dim}")
    shifts = h.keys.integer("token_shift_count", 2)
    if shifts != 2:
        raise UnsupportedError(f"rwkv7.token_shift_count is {shifts}; only 2, one for each half of a layer, works")
    eps = h.keys.number("attention.layer_norm_epsilon", LAYER_NORM_EPS)

    g.require_biases("token_embd_norm", "attn_norm", "attn_norm_2", "output_norm")
    x = g.layer_norm(g.embed("token_embd.weight", h.n_vocab, h.n_embd), "token_embd_norm", eps)
    first_value = None
    for i in range(h.n_layer):
        mixed, value = _time_mix(g, h, i, g.layer_norm(x, f"blk.{i}.attn_norm", eps), first_value, head_dim)
        first_value = first_value or value
        x = g.add(mixed, x)
        y = g.layer_norm(x, f"blk.{i}.attn_norm_2", eps)
        shifted = g.token_shift(y, f"blk.{i}.channel_mix_lerp_k.weight", h.n_embd)
        if i == h.n_layer - 1:
            x, shifted = g.select_outputs(x), g.select_outputs(shifted)
        key = g.activate(g.matmul(shifted, f"blk.{i}.channel_mix_key", h.n_ff[i]), "relu2")
        x = g.add(g.matmul(key, f"blk.{i}.channel_mix_value", h.n_embd), x)
    return g.finish(g.matmul(g.layer_norm(x, "output_norm", eps), "output", h.n_vocab), h.n_embd)


def _time_mix(g: GraphBuilder, h: HParams, i: int, x: Node, first_value: Node | None,
              head_dim: int) -> tuple[Node, Node]:
    """The first half of layer ``i``, and the layer's values; ``first_value`` are those of layer 0."""
    name = f"blk.{i}.time_mix_"
    shifted = g.token_shift(x, f"{name}lerp_fused.weight", 6, 1, 1, h.n_embd)
    for_r, for_w, for_k, for_v, for_a, for_g = (g.columns(shifted, j * h.n_embd, h.n_embd) for j in range(6))

    def low_rank(x: Node, part: str, rank_key: str, act: str | None = None, bias: str | None = None) -> Node:
        inner = g.matmul(x, f"{name}{part}1", h.keys.integer(f"attention.{rank_key}_lora_rank"))
        return g.matmul(g.activate(inner, act) if act else inner, f"{name}{part}2", h.n_embd, bias)

    def rate(x: Node, part: str, rank_key: str, act: str | None = None) -> Node:
        return g.activate(low_rank(x, part, rank_key, act, bias=f"{name}{part}0.weight"), "sigmoid")

    r = g.matmul(for_r, f"{name}receptance", h.n_embd)
    w = g.activate(g.scale(rate(for_w, "w", "decay", "tanh"), STRONGEST_DECAY), "exp")
    k = g.matmul(for_k, f"{name}key", h.n_embd)
    v = g.matmul(for_v, f"{name}value", h.n_embd)
    if first_value is not None:
        difference = g.add(first_value, g.scale(v, -1.0))
        v = g.add(v, g.mul(difference, rate(for_v, "v", "value_residual_mix")))
    a = rate(for_a, "a", "iclr")
    removal = g.rms_norm(g.mul_vector(k, f"{name}k_k.weight"), None, TINY, group=head_dim)
    removal = g.scale(removal, 1.0 / math.sqrt(head_dim))  # a unit vector
    k = g.add(k, g.mul(g.mul_vector(k, f"{name}k_a.weight"), g.scale(a, 1.0, -1.0)))

    y = g.wkv7(r, w, k, v, g.concat(g.scale(removal, -1.0), g.mul(removal, a)), head_dim)
    y = g.layer_norm(y, None, HEAD_NORM_EPS, group=head_dim)
    y = g.add_vector(g.mul_vector(y, f"{name}ln.weight"), f"{name}ln.bias")
    y = g.add(y, g.mul(v, g.dot(r, g.mul_vector(k, f"{name}r_k.weight"), head_dim)))
    y = g.mul(y, low_rank(for_g, "g", "gate", "sigmoid"))
    return g.matmul(y, f"{name}output", h.n_embd), v
