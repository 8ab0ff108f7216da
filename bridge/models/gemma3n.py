"""Gemma 3n: four streams per token, of which a layer computes one and predicts the others; embeddings for each layer.

AltUp (Baykal et al., arXiv 2301.13310): the streams lie side by side, [T, 4 · n_embd]. Laurel (Menghani et al., arXiv
2411.07501) is a branch of low rank beside attention. The first layers let only the largest activations through. Source:
Gemma Team, "Gemma 3n" (2025). No key tells the numbers below; they are llama.cpp's.
"""

from __future__ import annotations

import math

from bridge.graph import Graph, GraphBuilder, Node
from bridge.models.blocks import output_head, rms_norm
from bridge.models.gemma4 import SharedAttention, layer_embeddings, layer_input
from bridge.models.hparams import HParams

N_STREAMS = 4
D_LAYER = 256
LAUREL_RANK = 64
FIRST_SHARED = 20
SPARSE_LAYERS = 10
SPARSITY = 1.6448533535003662  # standard deviations above the mean: the 95th percentile of a normal distribution
FINAL_SOFTCAP = 30.0
TINY = 1e-30  # keeps a vector of zeros from dividing by zero


def build(h: HParams, g: GraphBuilder) -> Graph:
    attention = SharedAttention(h, g, factors=None, first_shared=min(FIRST_SHARED, h.n_layer), default_period=5,
                                keys_as_values=False)

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd, scale=math.sqrt(h.n_embd))
    per_layer = layer_embeddings(g, h, x, D_LAYER)
    others = g.matmul_heads(_times(g, x, N_STREAMS - 1), "altup_proj", N_STREAMS - 1, h.n_embd)
    streams = g.concat(x, _as_long_as(g, others, x))
    for i in range(h.n_layer):
        streams = _layer(g, h, i, streams, g.columns(per_layer, i * D_LAYER, D_LAYER), attention)
    logits = output_head(g, h, _merged(g, h, streams))
    return g.finish(g.softcap(logits, FINAL_SOFTCAP), h.n_embd)


def _layer(g: GraphBuilder, h: HParams, i: int, streams: Node, own: Node, attention: SharedAttention) -> Node:
    norm = rms_norm(g, h)
    first = g.columns(streams, 0, h.n_embd)
    coefficients = g.matmul(_modalities(g, h, i, first), f"blk.{i}.altup_predict_coef", N_STREAMS**2)
    predicted = g.add(g.mix_runs(streams, coefficients, N_STREAMS), streams)
    active = g.columns(predicted, 0, h.n_embd)

    y = norm(active, f"blk.{i}.attn_norm")
    attended = attention.output(i, y)
    if i == h.n_layer - 1:
        predicted, active, y, own = (g.select_outputs(value) for value in (predicted, active, y, own))
    laurel = g.matmul(g.matmul(y, f"blk.{i}.laurel_l", LAUREL_RANK), f"blk.{i}.laurel_r", h.n_embd)
    laurel = g.add(norm(laurel, f"blk.{i}.laurel_post_norm"), y)
    attended = g.add(norm(attended, f"blk.{i}.post_attention_norm"), active)
    x = g.scale(g.add(attended, laurel), math.sqrt(0.5))
    x = g.add(norm(_mlp(g, h, i, norm(x, f"blk.{i}.ffn_norm")), f"blk.{i}.post_ffw_norm"), x)

    coefficients = g.scale(g.matmul(_modalities(g, h, i, x), f"blk.{i}.altup_correct_coef", N_STREAMS), 1.0, 1.0)
    corrected = g.add(g.mix_runs(g.add(x, g.scale(active, -1.0)), coefficients, 1), predicted)
    first = g.columns(corrected, 0, h.n_embd)
    added = layer_input(g, h, i, g.mul_vector(first, f"blk.{i}.altup_correct_scale.weight"), own)
    others = g.columns(corrected, h.n_embd, (N_STREAMS - 1) * h.n_embd)
    return g.concat(first, g.add(_times(g, added, N_STREAMS - 1), others))


def _modalities(g: GraphBuilder, h: HParams, i: int, x: Node) -> Node:
    seen = g.scale(g.rms_norm(x, f"blk.{i}.altup_router_norm", h.rms_eps), 1.0 / h.n_embd)
    return g.activate(g.matmul(seen, f"blk.{i}.altup_router", N_STREAMS), "tanh")


def _mlp(g: GraphBuilder, h: HParams, i: int, x: Node) -> Node:
    gate = g.matmul(x, f"blk.{i}.ffn_gate", h.n_ff[i])
    if i < SPARSE_LAYERS:
        gate = _largest(g, gate)
    return g.matmul(g.glu(gate, g.matmul(x, f"blk.{i}.ffn_up", h.n_ff[i]), "gelu"), f"blk.{i}.ffn_down", h.n_embd)


def _largest(g: GraphBuilder, x: Node) -> Node:
    """max(0, x - mean - SPARSITY · s), s the standard deviation of a sample.

    With z = (x - mean) / σ and σ that of the row itself, which is x · z / n, it is σ max(0, z - SPARSITY · s / σ).
    """
    z = g.layer_norm(x, None, TINY)
    sigma = g.scale(g.dot(x, z, x.width), 1.0 / x.width)
    return g.mul(g.activate(g.scale(z, 1.0, -SPARSITY * math.sqrt(x.width / (x.width - 1))), "relu"), sigma)


def _times(g: GraphBuilder, x: Node, n: int) -> Node:
    """n copies of x side by side."""
    return g.concat(x, _times(g, x, n - 1)) if n > 1 else x


def _as_long_as(g: GraphBuilder, streams: Node, x: Node) -> Node:
    """The streams, each as long as x."""
    length = g.activate(g.scale(g.dot(x, x, x.width), 1.0 / x.width), "sqrt")
    return g.mul(g.rms_norm(streams, None, TINY, group=x.width), length)


def _merged(g: GraphBuilder, h: HParams, streams: Node) -> Node:
    """The mean of the first stream and of the others brought back."""
    first = g.columns(streams, 0, h.n_embd)
    others = g.columns(streams, h.n_embd, (N_STREAMS - 1) * h.n_embd)
    others = _as_long_as(g, g.matmul_heads(others, "altup_unembd_proj", N_STREAMS - 1, h.n_embd), first)
    for n in range(N_STREAMS - 1):
        first = g.add(first, g.columns(others, n * h.n_embd, h.n_embd))
    return g.scale(first, 1.0 / N_STREAMS)
