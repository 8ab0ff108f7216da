"""Attention with sinks, with a cache that another layer has filled, and with heads of a latent width; queries by position."""

from __future__ import annotations

from tests.graph.elementwise import vectors

N_HEAD, N_HEAD_KV, HEAD_DIM, HEAD_DIM_V = 6, 2, 8, 12
WIDTH = 20
BATCHES = [([1, 2, 3, 4, 5, 6, 7], 0), ([8, 9], 7), ([10], 9), ([11, 12, 13, 14, 15], 10)]


def _projected(b, x, tensors, rng, n_head_kv=N_HEAD_KV, head_dim=HEAD_DIM, head_dim_v=HEAD_DIM_V):
    widths = {"q": N_HEAD * head_dim, "k": n_head_kv * head_dim, "v": n_head_kv * head_dim_v}
    vectors(tensors, rng, **{f"{name}__weight": (width, WIDTH) for name, width in widths.items()})
    q, k, v = (b.matmul(x, name, width) for name, width in widths.items())
    return (q, k, v), {"n_head": N_HEAD, "n_head_kv": n_head_kv, "head_dim": head_dim, "head_dim_v": head_dim_v,
                       "scale": head_dim**-0.5 / 4}


def projected(**attrs):
    def build(b, x, tensors, rng):
        qkv, heads = _projected(b, x, tensors, rng)
        return b.attention(*qkv, **heads, **attrs)

    return build


def sinks(**attrs):
    def build(b, x, tensors, rng):
        qkv, heads = _projected(b, x, tensors, rng)
        vectors(tensors, rng, sinks=N_HEAD)
        return b.attention(*qkv, **heads, **attrs, sinks="sinks")

    return build


def _again(b, x, tensors, rng):
    (q, k, v), heads = _projected(b, x, tensors, rng)
    first = b.attention(q, k, v, **heads, window=4)
    q_again = b.scale(q, -0.5)
    return b.add(b.attention_again(q_again, first, n_head=N_HEAD, window=6), b.attention_again(q, first, n_head=N_HEAD))


def _latent(b, x, tensors, rng):
    qkv, heads = _projected(b, x, tensors, rng, n_head_kv=1, head_dim=576, head_dim_v=512)
    return b.attention(*qkv, **heads)


CASES = {
    "sinks": sinks(),
    "sinks and a window": sinks(window=3),
    "a cache filled by another layer": _again,
    "heads of a latent width": _latent,
    "scale_by_position": lambda b, x, tensors, rng: b.scale_by_position(x, 0.7, 4),
}
