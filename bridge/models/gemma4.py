"""Gemma 4: Gemma 3 with norms on values, caches that later layers share, and another embedding for each layer.

Windowed layers have heads of a width of their own, and only the others divide their angles by ``rope_freqs``. A layer
without ``attn_v`` takes its projected keys as values; the last ``shared_kv_layers`` have queries alone. Layers with a
router have experts beside their MLP. Source: Gemma Team, "Gemma 4" (2026); names and defaults are llama.cpp's.
"""

from __future__ import annotations

import math
from dataclasses import replace

from bridge.errors import ModelError
from bridge.graph import Graph, GraphBuilder, Node, RopeTable
from bridge.models.blocks import gated_experts, gated_mlp, output_head, projections, rms_norm
from bridge.models.gemma3 import ROPE_BASE_SWA
from bridge.models.hparams import HParams

FINAL_SOFTCAP = 30.0


def build(h: HParams, g: GraphBuilder) -> Graph:
    attention, norm = SharedAttention(h, g), rms_norm(g, h)
    d_layer = h.keys.integer("embedding_length_per_layer_input", low=0)

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd, scale=math.sqrt(h.n_embd))
    per_layer = layer_embeddings(g, h, x, d_layer) if d_layer else None
    for i in range(h.n_layer):
        last = i == h.n_layer - 1
        y = attention.output(i, norm(x, f"blk.{i}.attn_norm"))
        if last:
            x = g.select_outputs(x)
        x = g.add(norm(y, f"blk.{i}.post_attention_norm"), x)
        x = g.add(norm(_mlp(g, h, i, x), f"blk.{i}.post_ffw_norm"), x)
        if per_layer is not None:
            own = g.columns(per_layer, i * d_layer, d_layer)
            x = g.add(layer_input(g, h, i, x, g.select_outputs(own) if last else own), x)
        if g.has(f"blk.{i}.layer_output_scale.weight"):
            x = g.mul_vector(x, f"blk.{i}.layer_output_scale.weight", 1)
    logits = output_head(g, h, x)
    cap = h.keys.number("final_logit_softcapping", FINAL_SOFTCAP)
    return g.finish(g.softcap(logits, cap) if cap else logits, h.n_embd)


def layer_embeddings(g: GraphBuilder, h: HParams, x: Node, d_layer: int) -> Node:
    """[T, n_layer · d_layer]: for each layer its own embedding of the token and a product of the common one."""
    own = g.embed("per_layer_token_embd.weight", h.n_vocab, d_layer * h.n_layer, scale=math.sqrt(d_layer))
    common = g.scale(g.matmul(x, "per_layer_model_proj", d_layer * h.n_layer), 1.0 / math.sqrt(h.n_embd))
    common = g.rms_norm(common, "per_layer_proj_norm", h.rms_eps, group=d_layer)
    return g.scale(g.add(common, own), math.sqrt(0.5))


def layer_input(g: GraphBuilder, h: HParams, i: int, x: Node, own: Node) -> Node:
    """What layer ``i`` adds for its own embedding of the token, through a gate that depends on x."""
    gated = g.glu(g.matmul(x, f"blk.{i}.inp_gate", own.width), own, "gelu")
    return g.rms_norm(g.matmul(gated, f"blk.{i}.proj", h.n_embd), f"blk.{i}.post_norm", h.rms_eps)


def _mlp(g: GraphBuilder, h: HParams, i: int, x: Node) -> Node:
    norm = rms_norm(g, h)
    mlp = gated_mlp(g, h, i, norm(x, f"blk.{i}.ffn_norm"), "gelu")
    if not h.n_expert or not any(g.has(f"blk.{i}.{name}.weight") for name in ("ffn_gate_inp", "ffn_down_exps")):
        return mlp
    seen = g.scale(g.rms_norm(x, None, h.rms_eps), 1.0 / math.sqrt(h.n_embd))
    logits = g.matmul(g.mul_vector(seen, f"blk.{i}.ffn_gate_inp.scale"), f"blk.{i}.ffn_gate_inp", h.n_expert)
    scales = f"blk.{i}.ffn_down_exps.scale"
    route = g.route(logits, h.n_expert_used, normalise=True, scales=scales if g.has(scales) else None)
    experts = gated_experts(g, h, i, norm(x, f"blk.{i}.pre_ffw_norm_2"), route, "gelu", h.n_ff_expert(i))
    return g.add(norm(mlp, f"blk.{i}.post_ffw_norm_1"), norm(experts, f"blk.{i}.post_ffw_norm_2"))


class SharedAttention:
    """Attention whose layers from ``first_shared`` on read the cache of the last layers before: in windowed layers the
    second last, in the others the last. Scores are not scaled.
    """

    def __init__(self, h: HParams, g: GraphBuilder, *, factors: str | None = "rope_freqs.weight",
                 first_shared: int | None = None, default_period: int | None = None,
                 keys_as_values: bool = True) -> None:
        keys = h.keys
        self.g, self._keys_as_values = g, keys_as_values
        self.window = keys.integer("attention.sliding_window", low=1)
        self.windowed = keys.windowed(h.n_layer, default_period)
        if first_shared is None:
            first_shared = h.n_layer - keys.integer("attention.shared_kv_layers", 0, low=0, high=h.n_layer)
        if first_shared < min(2, h.n_layer):
            raise ModelError(f"{h.n_layer - first_shared} of {h.n_layer} layers share caches; two must have their own "
                             f"({h.architecture}.attention.shared_kv_layers)")
        self.first_shared = first_shared
        self.full, self.local = h, replace(
            h, head_dim=keys.integer("attention.key_length_swa", h.head_dim),
            head_dim_v=keys.integer("attention.value_length_swa", h.head_dim_v),
            n_rot=keys.integer("rope.dimension_count_swa", h.n_rot))
        self.local.check("rope.dimension_count_swa")
        self.rope = g.rope_table("rope", h.rope_table(factors_tensor=None if all(self.windowed) else factors))
        base = h.rope_base("rope.freq_base_swa", ROPE_BASE_SWA)
        self.rope_local = g.rope_table("rope_swa", RopeTable(self.local.n_rot, base))
        self._filled: dict[int, Node] = {}

    def output(self, i: int, x: Node) -> Node:
        g, h = self.g, self.local if self.windowed[i] else self.full
        heads = self._heads(h, i, x)
        if i == h.n_layer - 1:
            heads = g.select_outputs(heads)
        return g.matmul(heads, f"blk.{i}.attn_output", h.n_embd)

    def _heads(self, h: HParams, i: int, x: Node) -> Node:
        g, window = self.g, self.window if self.windowed[i] else 0
        rope = self.rope_local if self.windowed[i] else self.rope
        q, *kv = self._projections(h, i, x)
        q = g.rope(g.rms_norm(q, f"blk.{i}.attn_q_norm", h.rms_eps, group=h.head_dim), rope, h.head_dim, "neox")
        if i >= self.first_shared:
            earlier = self._filled[self.first_shared - (2 if self.windowed[i] else 1)]
            if earlier.attrs["head_dim"] != h.head_dim or h.n_head[i] % earlier.attrs["n_head_kv"]:
                raise ModelError(f"layer {i} has {h.n_head[i]} heads of {h.head_dim} columns and shares a cache of "
                                 f"{earlier.attrs['n_head_kv']} heads of {earlier.attrs['head_dim']}")
            return g.attention_again(q, earlier, n_head=h.n_head[i], window=window)
        k, v = kv
        k = g.rope(g.rms_norm(k, f"blk.{i}.attn_k_norm", h.rms_eps, group=h.head_dim), rope, h.head_dim, "neox")
        v = g.rms_norm(v, None, h.rms_eps, group=h.head_dim_v)
        self._filled[i] = g.attention(q, k, v, n_head=h.n_head[i], n_head_kv=h.n_head_kv[i], head_dim=h.head_dim,
                                      head_dim_v=h.head_dim_v, scale=1.0, window=window)
        return self._filled[i]

    def _projections(self, h: HParams, i: int, x: Node) -> tuple[Node, ...]:
        """Queries, and keys and values if the layer has its own."""
        g, own = self.g, i < self.first_shared
        has_values = any(g.has(f"blk.{i}.{name}.weight") for name in ("attn_qkv", "attn_v"))
        if own and not has_values and self._keys_as_values:
            q = g.matmul(x, f"blk.{i}.attn_q", h.n_head[i] * h.head_dim)
            k = g.matmul(x, f"blk.{i}.attn_k", h.n_head_kv[i] * h.head_dim)
            return q, k, k
        if own or g.has(f"blk.{i}.attn_qkv.weight"):
            return projections(g, h, i, x)
        return (g.matmul(x, f"blk.{i}.attn_q", h.n_head[i] * h.head_dim),)
