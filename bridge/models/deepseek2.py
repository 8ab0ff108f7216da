"""DeepSeek V2 and V3: attention over a compressed cache, and experts chosen within groups beside a shared one.

Multi-head latent attention (arXiv 2405.04434): keys and values are products with one latent vector per token. Newer
files have those products apart; they move to the queries and to the result, and the cache holds latent vectors alone.
Older files (``attn_kv_b``) compute keys and values of every head. Routing: arXiv 2412.19437; the scale of the scores
under YaRN is llama.cpp's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bridge.errors import ModelError, UnsupportedError
from bridge.graph import Graph, GraphBuilder, Node
from bridge.models.blocks import (
    gated_mlp, mixture_of_experts, output_head, rms_norm, sequential_layers, shared_expert, split,
)
from bridge.models.hparams import HParams

GATES = {1: "softmax", 2: "sigmoid"}
LITE_LAYERS = (26, 27)
"""Models told by these layer counts have no query rank, whatever the file says; nor one with 48 and that vocabulary."""
LITE_48_VOCABULARY = 128256
GLM_LITE_LAYERS, GLM_LITE_VOCABULARY = (47, 48), 154880
CONVERTED_MULTIPLIER = 0.1
"""llama.cpp's converter has multiplied ``yarn_log_multiplier`` by it."""


def build(h: HParams, g: GraphBuilder) -> Graph:
    h = h.without_predictors()
    n_dense = h.keys.integer("leading_dense_block_count", 0, low=0)
    mla, router, norm = Latent.read(h, g), _router(h), rms_norm(g, h)
    if n_dense < h.n_layer:
        h.require_experts()

    def mlp(i: int, x: Node) -> Node:
        if i < n_dense:
            return gated_mlp(g, h, i, x, "silu")
        n_ff, bias = h.n_ff_expert(i), f"blk.{i}.exp_probs_b.bias"
        y = mixture_of_experts(g, h, i, x, "silu", n_ff=n_ff, bias=bias if g.has(bias) else None, **router)
        return g.add(y, shared_expert(g, h, i, x, "silu", n_ff * h.keys.integer("expert_shared_count")))

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    x = sequential_layers(g, h, x, norm, lambda i, x: mla.attention(g, h, i, x), mlp)
    return g.finish(output_head(g, h, x), h.n_embd)


def _router(h: HParams) -> dict[str, object]:
    glm_lite = h.n_layer in GLM_LITE_LAYERS and h.n_vocab == GLM_LITE_VOCABULARY
    gate = h.keys.integer("expert_gating_func", 2 if glm_lite else 1, low=0) or (2 if glm_lite else 1)
    if gate not in GATES:
        raise UnsupportedError(f"metadata key {h.architecture}.expert_gating_func is {gate}; supported are 1 (softmax) "
                               "and 2 (sigmoid)")
    return {"gate": GATES[gate], "normalise": h.keys.boolean("expert_weights_norm", False),
            "scale": h.keys.number("expert_weights_scale", 0.0) or 1.0, **h.expert_groups()}


@dataclass(frozen=True)
class Latent:
    """``rank`` columns of a token's latent vector; heads of queries and keys have ``nope`` columns that are not rotated
    and ``h.n_rot`` that are, heads of values ``value``. ``absorbed``: the cache holds latent vectors.
    """

    rank: int
    q_rank: int
    nope: int
    value: int
    absorbed: bool
    rope: str
    scale: float
    temperature: tuple[float, int]

    @classmethod
    def read(cls, h: HParams, g: GraphBuilder) -> Latent:
        keys = h.keys
        absorbed = keys.has("attention.key_length_mla") and keys.has("attention.value_length_mla")
        head_dim, value = h.head_dim, h.head_dim_v
        if absorbed:
            head_dim, value = keys.integer("attention.key_length_mla"), keys.integer("attention.value_length_mla")
        if head_dim <= h.n_rot:
            raise ModelError(f"a key of {head_dim} columns must be wider than the {h.n_rot} that are rotated "
                             f"({h.architecture}.rope.dimension_count)")
        lite = h.n_layer in LITE_LAYERS or (h.n_layer == 48 and h.n_vocab == LITE_48_VOCABULARY)
        multiplier = keys.number("rope.scaling.yarn_log_multiplier", 0.0, low=0.0) / CONVERTED_MULTIPLIER
        table = h.rope_table(yarn_multipliers=(multiplier if multiplier not in (0.0, 1.0) else 1.0, multiplier))
        log_factor = math.log(1.0 / table.freq_scale)
        sharpness = table.magnitude * (1.0 + 0.1 * log_factor) * (1.0 + 0.1 * multiplier * log_factor)
        return cls(rank=keys.integer("attention.kv_lora_rank"),
                   q_rank=0 if lite else keys.integer("attention.q_lora_rank", low=0),
                   nope=head_dim - h.n_rot, value=value, absorbed=absorbed,
                   rope=g.rope_table("rope", table), scale=sharpness**2 / math.sqrt(head_dim),
                   temperature=(keys.number("attention.temperature_scale", 0.0),
                                keys.integer("attention.temperature_length", h.n_ctx_orig, high=1 << 31)))

    def attention(self, g: GraphBuilder, h: HParams, i: int, x: Node) -> Node:
        n_head, n_rot = h.n_head[i], h.n_rot
        q = self._queries(g, h, i, x)
        nope, rotated = g.columns(q, 0, self.nope, self.nope + n_rot), g.columns(q, self.nope, n_rot, self.nope + n_rot)
        latent, k_rotated = split(g, g.matmul(x, f"blk.{i}.attn_kv_a_mqa", self.rank + n_rot), self.rank, n_rot)
        latent = g.rms_norm(latent, f"blk.{i}.attn_kv_a_norm", h.rms_eps)
        rotated, k_rotated = (g.rope(part, self.rope, n_rot, "norm") for part in (rotated, k_rotated))
        if self.absorbed:
            q = g.concat(g.matmul_heads(nope, f"blk.{i}.attn_k_b", n_head, self.rank), rotated, n_head)
            k, v, n_head_kv = g.concat(latent, k_rotated), latent, 1
        else:
            width = self.nope + self.value
            kv = g.matmul(latent, f"blk.{i}.attn_kv_b", n_head * width)
            q = g.concat(nope, rotated, n_head)
            k = g.concat(g.columns(kv, 0, self.nope, width), k_rotated, n_head, shared=True)
            v, n_head_kv = g.columns(kv, self.nope, self.value, width), n_head
        if self.temperature[0]:
            q = g.scale_by_position(q, *self.temperature)
        heads = g.attention(q, k, v, n_head=n_head, n_head_kv=n_head_kv, head_dim=k.width // n_head_kv,
                            head_dim_v=v.width // n_head_kv, scale=self.scale)
        if i == h.n_layer - 1:
            heads = g.select_outputs(heads)
        if self.absorbed:
            heads = g.matmul_heads(heads, f"blk.{i}.attn_v_b", n_head, self.value)
        return g.matmul(heads, f"blk.{i}.attn_output", h.n_embd)

    def _queries(self, g: GraphBuilder, h: HParams, i: int, x: Node) -> Node:
        width = h.n_head[i] * (self.nope + h.n_rot)
        if not self.q_rank:
            return g.matmul(x, f"blk.{i}.attn_q", width)
        x = g.rms_norm(g.matmul(x, f"blk.{i}.attn_q_a", self.q_rank), f"blk.{i}.attn_q_a_norm", h.rms_eps)
        return g.matmul(x, f"blk.{i}.attn_q_b", width)
