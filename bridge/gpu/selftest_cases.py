"""The cases of the self-test (bridge.gpu.selftest): small steps of each kind that a plan has, and what they give."""

from __future__ import annotations

import json
import math
import struct
from array import array
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from operator import mul
from typing import Any

from bridge.gpu.formats import FORMATS
from bridge.graph.graph import ALL, TOKENS, KvLayer, Weight
from bridge.graph.rope import RopeTable
from bridge.plan.plan import Plan, Product, Step, product_of

N_TOKENS = 5
N_ROWS = 3
N_USED = 2
MAX_N_HEAD_KV = 2
PERIOD = 31
"""Columns after which the inputs repeat."""
ENDS = 8
"""Elements at each end of a decoded row that are compared; products cover the others."""
NORM = 0.5
"""Every weight of the norms."""
ACTIVATION_OF: Mapping[str, Callable[[float], float]] = {
    "silu": lambda x: x / (1 + math.exp(-x)),
    "gelu": lambda x: x * (1 + math.tanh(0.7978845608 * (x + 0.044715 * x**3))) / 2,
    "gelu_quick": lambda x: x / (1 + math.exp(-1.702 * x)),
    "relu": lambda x: max(x, 0.0),
    "relu2": lambda x: max(x, 0.0)**2,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "softplus": lambda x: math.log1p(math.exp(x)),
    "tanh": math.tanh,
    "exp": math.exp,
    "sqrt": lambda x: math.sqrt(max(x, 0.0)),
}


def input_value(token: int, column: int) -> float:
    """The inputs of every case: multiples of 1/128, exact in halves, too, and in bytes: 32 neighbours have 127/128."""
    return (8 * ((column * 7 + token * 13) % PERIOD) - 113) / 128


def chosen_experts(token: int) -> list[int]:
    """Which weight rows stand for the experts of a token."""
    return [(token + e) % N_ROWS for e in range(N_USED)]


@dataclass(frozen=True)
class Case:
    """Steps over slots of their own; the last one's output must have the ``expected`` rows in the given columns.

    ``layers`` are those of the cache, by the numbers that the steps have for them.
    """

    what: str
    steps: tuple[Step, ...]
    inputs: Mapping[int, bytes]
    columns: Sequence[int]
    expected: Sequence[Sequence[float]]
    vectors: Mapping[str, Sequence[float]] = field(default_factory=dict)
    layers: Mapping[int, KvLayer] = field(default_factory=dict)


def rope_table(head_dim: int) -> RopeTable:
    """Whole turns, so that the answers do not depend on positions."""
    return RopeTable(head_dim, 1.0, freq_scale=2 * math.pi)


@cache
def answers() -> dict[str, Any]:
    return json.loads(files("bridge.gpu").joinpath("selftest.json").read_text())


def rows_of(type_name: str, n_in: int) -> bytes:
    """The rows of a format, each repeated until it has ``n_in`` elements."""
    found = answers()["formats"][type_name]
    data, times = b64decode(found["rows"]), n_in // found["n_in"]
    size = len(data) // N_ROWS
    return b"".join(data[row * size:(row + 1) * size] * times for row in range(N_ROWS))


def cases_of(plan: Plan) -> list[Case]:
    """Each with slots of its own."""
    made: list[Case] = []
    for types, normed, act, gated in dict.fromkeys(_product_variants(plan)):
        for type_name in types:
            made.append(_matmul_case(type_name, normed, act, gated, 10 * len(made)))
            if len(types) == 2 and not any(FORMATS[name].grid for name in types):
                made.append(_mixed_case(types, type_name, normed, 10 * len(made)))
    used = dict.fromkeys((s.kernel, s.weights[0].type) for s in plan.steps
                         if s.kernel in _FORMAT_CASES and s.attrs.get("of", "tokens") == "tokens")
    for kernel, type_name in used:
        made.append(_FORMAT_CASES[kernel](type_name, 10 * len(made)))
    steps = [step for step in plan.steps if step.kernel == "attention"]
    written = {s.attrs["layer"]: (s.attrs["style"], bool(s.weights)) for s in plan.steps if s.kernel == "write_heads"}
    for heads, writer in dict.fromkeys((_heads_of(step), written.get(step.attrs["layer"])) for step in steps):
        number = len(made)
        made.append(_written_case(heads, *writer, number) if writer else _attention_case(heads, number))
    for variant in dict.fromkeys(_text_variant(step) for step in plan.steps if step.kernel == "text_attention"):
        made.append(_text_attention_case(*variant, 10 * len(made)))
    return made


def _product_variants(plan: Plan) -> list[tuple[tuple[str, ...], bool, str | None, bool]]:
    """What tells the pipelines of products apart: block formats, norm before (which may be apart), activation after."""
    products = [product_of(step) for step in plan.steps if step.kernel == "matmul"]
    return [(tuple(dict.fromkeys(matrix.type for matrix in p.matrices)), normed, p.act, p.gated)
            for p in products for normed in ((False, True) if p.norm else (False,))]


def _floats(text: str, width: int) -> list[Sequence[float]]:
    values = array("f", b64decode(text))
    return [values[i:i + width] for i in range(0, len(values), width)]


def _values(token: int, width: int) -> list[float]:
    period = [input_value(token, i) for i in range(PERIOD)]
    return (period * (width // PERIOD + 1))[:width]


def _inputs(width: int) -> bytes:
    return _slot([_values(t, width) for t in range(N_TOKENS)])


def _slot(rows: Sequence[Sequence[float]]) -> bytes:
    """Rows as a slot holds them, each a whole number of vec4s."""
    return b"".join(array("f", [*row, *[0.0] * (-len(row) % 4)]).tobytes() for row in rows)


def _embed_case(type_name: str, slot: int) -> Case:
    found = answers()["formats"][type_name]
    n_in, ends = found["n_in"], _floats(found["ends"], 2 * ENDS)
    weight = Weight(f"embed {type_name}", (N_ROWS, n_in), type_name)
    step = Step("embed", (), slot, (weight,), {"of": "tokens", "scale": 1.0}, TOKENS, n_in, weight.name)
    columns = [*range(ENDS), *range(n_in - ENDS, n_in)]
    return Case(f"{type_name} rows", (step,), {}, columns, [ends[t % N_ROWS] for t in range(N_TOKENS)])


def _matmul_case(type_name: str, normed: bool, act: str | None, gated: bool, slot: int) -> Case:
    """Norms and activations are applied to the products that numpy computed; gate and up are the same rows."""
    found = answers()["formats"][type_name]
    n_in, products = found["n_in"], _floats(found["products"], N_ROWS)
    names = [f"{part} {normed} {act} {type_name}" for part in (("gate", "up") if gated else ("matmul",))]
    matrices = tuple(Weight(name, (N_ROWS, n_in), type_name) for name in names)
    norm = Weight(f"norm of {names[0]}", (n_in,), "F32") if normed else None
    product = Product(matrices, (None,) * len(matrices), norm, 0.0, act, gated)
    step = Step("matmul", (slot,), slot + 1, product.weights, {"product": product}, TOKENS, N_ROWS, names[0])
    expected = []
    for t, row in enumerate(products):
        mean = sum(value**2 for value in _values(t, n_in)) / n_in
        values = [value * (NORM / math.sqrt(mean) if normed else 1.0) for value in row]
        expected.append([ACTIVATION_OF[act](value) * (value if gated else 1.0) for value in values] if act else values)
    return Case(f"{type_name} products", (step,), {slot: _inputs(n_in)}, range(N_ROWS), expected,
                {norm.name: [NORM] * n_in} if norm else {})


def _mixed_case(types: Sequence[str], checked: str, normed: bool, slot: int) -> Case:
    """Matrices of two formats in one product, of which one is checked; the inputs past its answers' columns are 0."""
    found = answers()["formats"]
    n_in, n_known = max(found[name]["n_in"] for name in types), found[checked]["n_in"]
    matrices = tuple(Weight(f"{name} for {checked} {normed} beside {types}", (N_ROWS, n_in), name) for name in types)
    norm = Weight(f"norm of {matrices[0].name}", (n_in,), "F32") if normed else None
    product = Product(matrices, (None,) * len(matrices), norm)
    width, first = N_ROWS * len(types), N_ROWS * list(types).index(checked)
    step = Step("matmul", (slot,), slot + 1, product.weights, {"product": product}, TOKENS, width, matrices[0].name)
    expected = []
    for t, row in enumerate(_floats(found[checked]["products"], N_ROWS)):
        mean = sum(value**2 for value in _values(t, n_known)) / n_in
        expected.append([value * (NORM / math.sqrt(mean) if normed else 1.0) for value in row])
    rows = [_values(t, n_known) + [0.0] * (n_in - n_known) for t in range(N_TOKENS)]
    return Case(f"{checked} products beside others", (step,), {slot: _slot(rows)}, range(first, first + N_ROWS),
                expected, {norm.name: [NORM] * n_in} if norm else {})


def _experts_case(type_name: str, slot: int) -> Case:
    found = answers()["formats"][type_name]
    weight = Weight(f"experts {type_name}", (N_ROWS, 1, found["n_in"]), type_name)
    step = Step("matmul_experts", (slot, slot + 1), slot + 2, (weight,), {"n_used": N_USED, "per_expert": False}, TOKENS,
                N_USED, weight.name)
    route = b"".join(struct.pack("<4f", *chosen_experts(t), 0.5, 0.5) for t in range(N_TOKENS))
    products = _floats(found["products"], N_ROWS)
    return Case(f"{type_name} experts", (step,), {slot: _inputs(found["n_in"]), slot + 1: route}, range(N_USED),
                 [[products[t][row] for row in chosen_experts(t)] for t in range(N_TOKENS)])


@dataclass(frozen=True)
class _Heads:
    """What tells the pipelines of attention apart, besides how the bias of texts is given."""

    n_head_kv: int
    shared_by: int
    head_dim: int
    head_dim_v: int

    @property
    def attrs(self) -> dict[str, Any]:
        return {"n_head": self.n_head, "n_head_kv": self.n_head_kv, "head_dim": self.head_dim,
                "head_dim_v": self.head_dim_v, "scale": 1.0, "softcap": 0.0}

    @property
    def n_head(self) -> int:
        return self.n_head_kv * self.shared_by

    @property
    def widths(self) -> tuple[int, int, int]:
        """Of queries, keys and values."""
        return self.n_head * self.head_dim, self.n_head_kv * self.head_dim, self.n_head_kv * self.head_dim_v

    @property
    def layer(self) -> KvLayer:
        return KvLayer(self.widths[1], self.widths[2], 0)

    @property
    def answers(self) -> tuple[list[int], list[list[float]]]:
        """Causal attention with scale 1 over the inputs: the columns of some heads, and them for each token."""
        checked = sorted({head + n for head in range(0, self.n_head, self.shared_by) for n in (0, self.shared_by - 1)})
        q, k, v = ([_values(t, width) for t in range(N_TOKENS)] for width in self.widths)
        rows: list[list[float]] = [[] for _ in range(N_TOKENS)]
        for head in checked:
            of_kv = head // self.shared_by
            at, k_at, v_at = head * self.head_dim, of_kv * self.head_dim, of_kv * self.head_dim_v
            for t in range(N_TOKENS):
                query = q[t][at:at + self.head_dim]
                scores = [sum(map(mul, query, k[s][k_at:k_at + self.head_dim])) for s in range(t + 1)]
                weights = [math.exp(score - max(scores)) for score in scores]
                seen = [v[s][v_at:v_at + self.head_dim_v] for s in range(t + 1)]
                rows[t] += [sum(map(mul, weights, column)) / sum(weights) for column in zip(*seen)]
        return [head * self.head_dim_v + i for head in checked for i in range(self.head_dim_v)], rows


def _heads_of(step: Step) -> _Heads:
    n_head, n_head_kv = step.attrs["n_head"], step.attrs["n_head_kv"]
    return _Heads(min(n_head_kv, MAX_N_HEAD_KV), n_head // n_head_kv, step.attrs["head_dim"], step.attrs["head_dim_v"])


def _attention_case(heads: _Heads, number: int) -> Case:
    q, k, v, y = range(10 * number, 10 * number + 4)
    attrs = {**heads.attrs, "layer": number, "window": 0}
    steps = (Step("kv_write", (k, v), None, (), {"layer": number}, TOKENS, 0, "kv_write"),
             Step("attention", (q,), y, (), attrs, TOKENS, heads.n_head * heads.head_dim_v, "attention"))
    inputs = {slot: _inputs(width) for slot, width in zip((q, k, v), heads.widths)}
    return Case("attention", steps, inputs, *heads.answers, layers={number: heads.layer})


def _written_case(heads: _Heads, style: str, normed: bool, number: int) -> Case:
    """Rotations are whole turns, and the epsilon of the norms outweighs what is normed: the same answer again."""
    x, q, y = range(10 * number, 10 * number + 3)
    scale = 1024.0
    side = {"eps": scale**2 if normed else None, "n_rot": heads.head_dim, "table": heads.head_dim}
    norms = tuple(Weight(f"{name} norm {number}", (heads.head_dim,), "F32") for name in ("q", "k") if normed)
    attrs = {**heads.attrs, "layer": number, "window": 0}
    written = {**attrs, "q": side, "k": side, "style": style}
    steps = (Step("write_heads", (x,), q, norms, written, TOKENS, heads.widths[0], "write_heads", (sum(heads.widths),)),
             Step("attention", (q,), y, (), attrs, TOKENS, heads.n_head * heads.head_dim_v, "attention"))
    rows = [[value for width in heads.widths for value in _values(t, width)] for t in range(N_TOKENS)]
    return Case("attention", steps, {x: _slot(rows)}, *heads.answers,
                vectors={norm.name: [scale] * heads.head_dim for norm in norms}, layers={number: heads.layer})


def _text_variant(step: Step) -> tuple[_Heads, bool, bool]:
    return _heads_of(step), bool(step.attrs["slopes"]), bool(step.attrs["buckets"])


def _text_attention_case(heads: _Heads, has_slopes: bool, has_buckets: bool, slot: int) -> Case:
    """With nothing seen after a token and a bias of zero the answer is that of causal attention."""
    attrs = {**heads.attrs, "before": ALL, "after": 0, "slopes": (0.0,) * heads.n_head if has_slopes else (),
             "buckets": (0,) if has_buckets else ()}
    weights = (Weight(f"bias {slot}", (heads.n_head,), "F32"),) if has_buckets else ()
    step = Step("text_attention", (slot, slot + 1, slot + 2), slot + 3, weights, attrs, TOKENS,
                heads.n_head * heads.head_dim_v, "text attention")
    inputs = {slot + i: _inputs(width) for i, width in enumerate(heads.widths)}
    return Case("text attention", (step,), inputs, *heads.answers,
                vectors={weight.name: [0.0] * heads.n_head for weight in weights})


_FORMAT_CASES = {"embed": _embed_case, "matmul_experts": _experts_case}
