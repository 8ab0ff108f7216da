"""Hyper-parameters common to all architectures, read once from the metadata and checked.

Key names and defaults are those of the GGUF specification and of llama.cpp's loader.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bridge.errors import ModelError, UnsupportedError
from bridge.graph import RopeTable

MAX_LAYERS = 1024
MAX_WIDTH = 1 << 20
MAX_EPSILON = 1.0
ROPE_BASE = 10000.0
MIN_YARN_FACTOR = 0.01


class Keys:
    """Typed access to the metadata keys of one architecture (``name`` is looked up as ``<architecture>.name``)."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        self._prefix = metadata["general.architecture"] + "."

    def integer(self, name: str, default: int | None = None, *, low: int = 1, high: int = MAX_WIDTH) -> int:
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ModelError(f"metadata key {self._prefix}{name} is {_shown(value)}; "
                             f"it must be an integer from {low} to {high}")
        return value

    def number(self, name: str, default: float | None = None, *, low: float = -math.inf, high: float = math.inf,
               above: float = -math.inf) -> float:
        """A finite number from ``low`` to ``high`` and larger than ``above``."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ModelError(f"metadata key {self._prefix}{name} is {_shown(value)}; it must be a finite number")
        if not low <= value <= high or value <= above:
            bounds = [f"{word} {bound:g}" for word, bound in (("at least", low), ("above", above), ("at most", high))
                      if math.isfinite(bound)]
            raise ModelError(f"metadata key {self._prefix}{name} is {value:g}; it must be {' and '.join(bounds)}")
        return float(value)

    def flags(self, name: str, n_layer: int) -> tuple[bool, ...]:
        """One truth value for each layer."""
        values = _sequence(self._value(name, None))
        if values is None or len(values) < n_layer or any(value not in (0, 1) for value in values):
            raise ModelError(f"metadata key {self._prefix}{name} is {_shown(self._value(name, None))}; "
                             f"it must be a list of {n_layer} truth values")
        return tuple(bool(value) for value in values[:n_layer])

    def string(self, name: str, default: str) -> str:
        value = self._value(name, default)
        if not isinstance(value, str):
            raise ModelError(f"metadata key {self._prefix}{name} is {_shown(value)}; it must be a string")
        return value

    def boolean(self, name: str, default: bool) -> bool:
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise ModelError(f"metadata key {self._prefix}{name} is {_shown(value)}; it must be true or false")
        return value

    def count(self, name: str) -> int:
        """How many values a list has; 0 without it."""
        value = self._value(name, ())
        values = _sequence(value)
        if values is None:
            raise ModelError(f"metadata key {self._prefix}{name} is {_shown(value)}; it must be a list")
        return len(values)

    def per_layer(self, name: str, n_layer: int, default: int | tuple[int, ...] | None = None, *,
                  low: int = 1) -> tuple[int, ...]:
        """One integer for each layer; the file may hold a single one for all."""
        value = self._value(name, default)
        if isinstance(value, int):
            return (self.integer(name, default, low=low),) * n_layer
        values = _sequence(value)
        if values is None or len(values) < n_layer or not all(
                isinstance(v, int) and low <= v <= MAX_WIDTH for v in values):
            raise ModelError(f"metadata key {self._prefix}{name} is {_shown(value)}; "
                             f"it must be an integer or a list of {n_layer} integers from {low} to {MAX_WIDTH}")
        return tuple(values[:n_layer])

    def windowed(self, n_layer: int, default_period: int, *, full_first: bool = False) -> tuple[bool, ...]:
        """Which layers have a sliding window: a list of booleans, or every layer but the last of each ``period``.

        ``full_first``: but the first of each.
        """
        name = "attention.sliding_window_pattern"
        value = self._value(name, default_period)
        values = _sequence(value)
        if values is not None:
            if len(values) < n_layer:
                raise ModelError(f"metadata key {self._prefix}{name} has {len(values)} entries for {n_layer} layers")
            return tuple(bool(v) for v in values[:n_layer])
        period = self.integer(name, default_period, low=0)
        full = 0 if full_first else period - 1
        return tuple(period == 0 or i % period != full for i in range(n_layer))

    def has(self, name: str) -> bool:
        return self._prefix + name in self._metadata

    def _value(self, name: str, default: Any) -> Any:
        value = self._metadata.get(self._prefix + name, default)
        if value is None:
            raise ModelError(f"the metadata key {self._prefix}{name} is missing")
        return value


@dataclass(frozen=True)
class HParams:
    """``head_dim`` is the width of a query or key head, ``head_dim_v`` of a value head; tuples have one entry per layer."""

    keys: Keys
    architecture: str
    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    n_embd: int
    n_layer: int
    n_ff: tuple[int, ...]
    n_head: tuple[int, ...]
    n_head_kv: tuple[int, ...]
    head_dim: int
    head_dim_v: int
    n_rot: int
    n_expert: int
    n_expert_used: int

    @classmethod
    def read(cls, metadata: Mapping[str, Any], tensors: Mapping[str, Any], n_ctx: int,
             recurrent_layers: str = "none") -> HParams:
        """``recurrent_layers``: where "some" are, a layer may have no key/value heads; where "all" are, nothing of
        attention need be there.
        """
        keys = Keys(metadata)
        attends = recurrent_layers != "all"
        low, default = (1, None) if attends else (0, 0)
        n_embd = keys.integer("embedding_length")
        n_layer = keys.integer("block_count", high=MAX_LAYERS)
        n_head = keys.per_layer("attention.head_count", n_layer, default, low=low)
        per_head = n_embd // max(n_head) if attends else 0
        head_dim = keys.integer("attention.key_length", per_head, low=low)
        h = cls(
            keys=keys,
            architecture=metadata["general.architecture"],
            n_ctx=n_ctx,
            n_ctx_train=keys.integer("context_length", high=1 << 31),
            n_vocab=_vocabulary_size(metadata, keys, tensors),
            n_embd=n_embd,
            n_layer=n_layer,
            n_ff=keys.per_layer("feed_forward_length", n_layer, default, low=low),
            n_head=n_head,
            n_head_kv=keys.per_layer("attention.head_count_kv", n_layer, n_head,
                                     low=int(recurrent_layers == "none")),
            head_dim=head_dim,
            head_dim_v=keys.integer("attention.value_length", per_head, low=low),
            n_rot=keys.integer("rope.dimension_count", head_dim, low=low),
            n_expert=keys.integer("expert_count", 0, low=0),
            n_expert_used=keys.integer("expert_used_count", 0, low=0),
        )
        h.check()
        return h

    def check(self, n_rot_key: str = "rope.dimension_count") -> None:
        """Raise ModelError when widths and counts do not go together; ``n_rot_key`` is where ``n_rot`` comes from."""
        for heads, kv_heads in zip(self.n_head, self.n_head_kv):
            if kv_heads and heads % kv_heads:
                raise ModelError(f"{heads} attention heads cannot share {kv_heads} key/value heads evenly")
        if self.n_rot > self.head_dim or self.n_rot % 2:
            raise ModelError(f"{n_rot_key} is {self.n_rot}; it must be even and at most {self.head_dim}")
        if self.head_dim % 2 or self.head_dim_v % 2:
            raise ModelError(f"attention heads of width {self.head_dim} and {self.head_dim_v} must both be even")
        if self.n_expert and not 1 <= self.n_expert_used <= self.n_expert:
            raise ModelError(f"{self.architecture}.expert_used_count is {self.n_expert_used}; "
                             f"it must be from 1 to the {self.n_expert} experts there are")

    def rope_base(self, key: str = "rope.freq_base", default: float = ROPE_BASE) -> float:
        return self.keys.number(key, default, above=1.0)

    def rope_table(self, *, base_key: str = "rope.freq_base", factors_tensor: str | None = None,
                   yarn_multipliers: tuple[float, float] = (1.0, 0.0)) -> RopeTable:
        """The table of the file's ``rope.*`` keys: none, linear, YaRN or LongRoPE scaling (llama.cpp's rules).

        ``base_key`` names the key of the base, which defaults to ``rope.freq_base`` and that to 10000. YaRN's rotation
        is multiplied by the first and divided by the second of 1 + 0.1 · multiplier · ln(factor).
        """
        keys = self.keys
        kind = keys.string("rope.scaling.type", "linear")
        if kind not in ("none", "linear", "yarn", "longrope"):
            raise UnsupportedError(f"rope scaling {kind!r} is not supported; supported are none, linear, yarn, longrope")
        factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 0.0, low=0.0), low=0.0)
        freq_base = self.rope_base(base_key, self.rope_base())
        scale = 1.0 if factor == 0.0 or kind == "none" else 1.0 / factor
        yarn = kind == "yarn"
        magnitude = keys.number("rope.scaling.attn_factor", 1.0)
        if yarn and 0.0 < factor < MIN_YARN_FACTOR:
            raise ModelError(f"metadata key {self.architecture}.rope.scaling.factor is {factor:g}; with YaRN it must be "
                             f"at least {MIN_YARN_FACTOR:g}")
        if yarn:
            magnitude *= _yarn_magnitude(1.0 / scale, *yarn_multipliers)
        return RopeTable(
            n_rot=self.n_rot, freq_base=freq_base, freq_scale=scale, ext_factor=1.0 if yarn else 0.0,
            magnitude=magnitude, n_ctx_orig=self.n_ctx_orig, factors_tensor=factors_tensor)

    def without_predictors(self) -> HParams:
        """Without the layers behind the model's own, which predict further tokens."""
        n_further = self.keys.integer("nextn_predict_layers", 0, low=0, high=self.n_layer - 1)
        return replace(self, n_layer=self.n_layer - n_further)

    def require_experts(self) -> None:
        if not self.n_expert:
            raise ModelError(f"metadata key {self.architecture}.expert_count is missing or 0; this model needs experts")

    def expert_groups(self) -> dict[str, int]:
        """How many groups experts come in, and from how many of them a token's experts may be."""
        n_group = self.keys.integer("expert_group_count", 0, low=0)
        if n_group <= 1:
            return {"n_group": 1, "n_group_used": 1}
        n_used = self.keys.integer("expert_group_used_count", 0, low=0)
        size = self.n_expert // n_group
        if self.n_expert % n_group or not 0 < n_used <= n_group or self.n_expert_used > n_used * size:
            raise ModelError(f"{self.n_expert_used} of {self.n_expert} experts cannot come from {n_used} of {n_group} "
                             f"groups ({self.architecture}.expert_group_used_count, expert_group_count)")
        return {"n_group": n_group, "n_group_used": n_used}

    def n_ff_expert(self, i: int, default: int | None = None) -> int:
        """Columns of an expert of layer ``i``."""
        return self.keys.per_layer("expert_feed_forward_length", self.n_layer, default)[i]

    @property
    def rms_eps(self) -> float:
        return self.keys.number("attention.layer_norm_rms_epsilon", low=0.0, high=MAX_EPSILON)

    @property
    def norm_eps(self) -> float:
        """Of layer norms."""
        return self.keys.number("attention.layer_norm_epsilon", low=0.0, high=MAX_EPSILON)

    @property
    def causal(self) -> bool:
        """Whether tokens see only those before them."""
        return self.keys.boolean("attention.causal", True)

    @property
    def n_ctx_orig(self) -> int:
        """The context length before rope scaling was applied in training."""
        return self.keys.integer("rope.scaling.original_context_length", self.n_ctx_train, high=1 << 31)


def _yarn_magnitude(factor: float, multiplier: float, divisor: float) -> float:
    """What is left to multiply after the 1 + 0.1 ln(factor) that the rotation itself applies."""
    def scale(m: float) -> float:
        return 1.0 if factor <= 1.0 else 1.0 + 0.1 * m * math.log(factor)

    return scale(multiplier) / scale(divisor) / (1.0 + 0.1 * math.log(factor))


def _vocabulary_size(metadata: Mapping[str, Any], keys: Keys, tensors: Mapping[str, Any]) -> int:
    tokens = metadata.get("tokenizer.ggml.tokens")
    if tokens is not None:
        return len(tokens)
    if keys.has("vocab_size"):
        return keys.integer("vocab_size", high=1 << 31)
    embedding = tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelError("the file has no vocabulary, no vocab_size key and no tensor token_embd.weight")
    return embedding.shape[0]


def _sequence(value: Any) -> list | None:
    if isinstance(value, str | bytes) or not hasattr(value, "__len__"):
        return None
    return list(value)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return f"the string {value[:40]!r}"
    values = _sequence(value)
    return f"a list of {len(values)} values" if values is not None else repr(value)
