"""Fusion: each rule finds its pattern, leaves alone what only looks like it, and keeps the graph's meaning."""

import asyncio
from collections import Counter

import numpy as np
import pytest

from bridge.gguf import TensorInfo
from bridge.graph import GraphBuilder, RopeTable
from bridge.graph.reference import ReferenceSession
from bridge.plan import lower, product_of
from bridge.plan.fusion import (
    activated_products,
    add_after_norm,
    add_residual,
    gated_products,
    heads,
    norm_into_products,
)
from bridge.quants import quant_type
from tests.plan.files import FILES, load
from tests.plan.interpreter import PlanInterpreter

ALL_RULES = (heads, gated_products, activated_products, add_residual, add_after_norm, norm_into_products)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("rules", [*[(rule,) for rule in ALL_RULES], ALL_RULES],
                         ids=[*[rule.__name__ for rule in ALL_RULES], "all"])
def test_a_fused_plan_computes_what_the_graph_does(name, rules):
    graph, weights = load(name)
    replay_equals_graph(graph, weights, rules)


def replay_equals_graph(graph, weights, rules, tokens=(3, 140, 59, 265, 35, 8, 97, 93)):
    reference = ReferenceSession(graph, weights, n_ctx=64, kv_type="f32")
    replayed = PlanInterpreter(graph, lower(graph, rules), weights, 64)
    for batch, start, outputs in [(tokens[:5], 0, [1, 4]), (tokens[5:], 5, [2])]:
        for result, evaluate in (("logits", reference.evaluate), ("embeddings", reference.embed)):
            expected = asyncio.run(evaluate(batch, start, outputs))
            got = replayed.replay(batch, start, outputs, result=result).reshape(-1)
            np.testing.assert_allclose(got, expected, atol=2e-6 * np.abs(expected).max())


def kernels(graph, *rules):
    """How many steps of each kernel lead to the logits."""
    return Counter(step.kernel for step in lower(graph, rules).steps_for("logits"))


def test_what_is_left_of_a_layer():
    graph, _ = load("qwen3-f16")
    n_layer = len(graph.kv_layers)
    assert kernels(graph, *ALL_RULES) == {"embed": 1, "matmul": 4 * n_layer + 1, "write_heads": n_layer,
                                          "attention": n_layer, "select_outputs": 2}
    graph, _ = load("gemma3-f16")
    n_layer = len(graph.kv_layers)
    assert kernels(graph, *ALL_RULES) == {"embed": 1, "matmul": 4 * n_layer + 1, "write_heads": n_layer,
                                          "attention": n_layer, "rms_norm": 2 * n_layer, "select_outputs": 2}


def test_experts_keep_the_norm_that_their_router_shares_with_them():
    graph, _ = load("llama-moe-q8_0")
    found = kernels(graph, *ALL_RULES)
    assert found["rms_norm"] == found["route"] == len(graph.kv_layers)


class Model:
    """Attention over products of width 32, with knobs that change its pattern."""

    def __init__(self) -> None:
        self.weights: dict[str, np.ndarray] = {}
        rng = np.random.default_rng(5)
        for name, shape in {"e": (300, 32), "q.weight": (32, 32), "k.weight": (16, 32), "v.weight": (16, 32),
                            "gate.weight": (48, 32), "up.weight": (48, 32), "down.weight": (32, 48),
                            "o.weight": (32, 32), "p.weight": (32, 32),
                            "gate_up.weight": (96, 32), "gate_up.bias": (96,),
                            "head.weight": (8,), "row.weight": (32,), "q.bias": (32,), "v.bias": (16,)}.items():
            self.weights[name] = rng.standard_normal(shape).astype(np.float32)
        self.types: dict[str, str] = {}

    def builder(self) -> GraphBuilder:
        types = {name: quant_type(self.types.get(name, "F32")) for name in self.weights}
        return GraphBuilder({name: TensorInfo(name, types[name], value.shape, 0, value.nbytes)
                             for name, value in self.weights.items()})

    def graph(self, change=lambda b, q, k, v: (q, k, v), more=lambda b, x: x):
        b = self.builder()
        b.rope_table("main", RopeTable(8, 100.0))
        b.rope_table("half", RopeTable(4, 100.0))
        x = b.embed("e", 300, 32)
        q, k, v = change(b, b.matmul(x, "q", 32), b.matmul(x, "k", 16), b.matmul(x, "v", 16))
        y = b.attention(q, k, v, n_head=4, n_head_kv=2, head_dim=8, head_dim_v=8, scale=0.3)
        last = more(b, b.select_outputs(y))
        return b.finish(b.matmul(last, "down" if last.width == 48 else "o", 32), 32)


def rope(b, x, table="main", style="neox"):
    return b.rope(x, table, 8, style)


def cut(b, x, *widths):
    """A row of runs of columns, taken apart."""
    firsts = [sum(widths[:i]) for i in range(len(widths))]
    return [b.columns(x, first, width) for first, width in zip(firsts, widths)]


@pytest.mark.parametrize("change", [
    lambda b, q, k, v: (q, k, v),
    lambda b, q, k, v: (rope(b, q), rope(b, k), v),
    lambda b, q, k, v: (rope(b, q, style="norm"), rope(b, k, "half", "norm"), v),
    lambda b, q, k, v: (b.rms_norm(q, "head", 1e-5, 8), rope(b, k), v),
    lambda b, q, k, v: (rope(b, b.rms_norm(q, "head", 1e-5, 8)), rope(b, b.rms_norm(k, "head", 1e-6, 8), "half"), v),
], ids=["plain", "rotated", "two tables", "one normed", "normed and rotated"])
def test_heads_are_one_product_however_they_are_made(change):
    model = Model()
    graph = model.graph(change)
    assert kernels(graph, heads) == {"embed": 1, "matmul": 2, "write_heads": 1, "attention": 1, "select_outputs": 1}
    replay_equals_graph(graph, model.weights, (heads,))


@pytest.mark.parametrize("change", [
    lambda b, q, k, v: (rope(b, q), rope(b, k, style="norm"), v),
    lambda b, q, k, v: (b.scale(rope(b, q), 2.0), rope(b, k), v),
    lambda b, q, k, v: (b.rms_norm(rope(b, q), "head", 1e-5, 8), rope(b, k), v),
    lambda b, q, k, v: (b.rms_norm(q, "row", 1e-5), k, v),
    lambda b, q, k, v: (q, k, b.add(v, k)),
    lambda b, q, k, v: (q, k, rope(b, v)),
    lambda b, q, k, v: (q, k, k),
    lambda b, q, k, v: (q, k, b.matmul(b.scale(q.inputs[0], 2.0), "v", 16)),
    lambda b, q, k, v: (q, k, b.matmul(q.inputs[0], "k", 16)),
], ids=["two styles", "scaled", "norm after rotation", "norm of the row", "sum", "rotated values", "values are keys",
        "another x", "one weight twice"])
def test_heads_made_otherwise_stay_apart(change):
    model = Model()
    graph = model.graph(change)
    assert kernels(graph, heads)["write_heads"] == 0
    replay_equals_graph(graph, model.weights, (heads,))


def in_one_tensor(order="qkv", more=0):
    """Queries, keys and values as columns of one product."""
    model = Model()
    rows = [model.weights.pop(f"{letter}.weight") for letter in order]
    model.weights["qkv.weight"] = np.concatenate([*rows, np.ones((more, 32), np.float32)])
    starts = dict(zip(order, np.cumsum([0, *(len(part) for part in rows[:-1])]).tolist()))

    def change(b, x):
        both = b.matmul(x, "qkv", 64 + more)
        q, k, v = (b.columns(both, starts[letter], width) for letter, width in zip("qkv", (32, 16, 16)))
        return rope(b, b.rms_norm(q, "head", 1e-5, 8)), rope(b, k), v

    b = model.builder()
    b.rope_table("main", RopeTable(8, 100.0))
    q, k, v = change(b, b.embed("e", 300, 32))
    y = b.attention(q, k, v, n_head=4, n_head_kv=2, head_dim=8, head_dim_v=8, scale=0.3)
    return model, b.finish(b.matmul(b.select_outputs(y), "o", 32), 32)


def test_heads_of_one_tensor_need_no_copies():
    model, graph = in_one_tensor()
    assert kernels(graph, heads) == {"embed": 1, "matmul": 2, "write_heads": 1, "attention": 1, "select_outputs": 1}
    replay_equals_graph(graph, model.weights, (heads,))


@pytest.mark.parametrize("other", [{"order": "kqv"}, {"more": 4}], ids=["another order", "columns left over"])
def test_heads_of_one_tensor_in_another_form_are_copied(other):
    model, graph = in_one_tensor(**other)
    assert kernels(graph, heads)["write_heads"] == 0
    replay_equals_graph(graph, model.weights, (heads,))


def test_biases_stay_with_their_matrices():
    model = Model()
    plan = lower(model.graph(), (heads,))
    product = product_of(plan.steps[1])
    assert [m.name for m in product.matrices] == ["q.weight", "k.weight", "v.weight"]
    assert [bias and bias.name for bias in product.biases] == ["q.bias", None, "v.bias"]


def mlp(b, x, act="silu"):
    return b.glu(b.matmul(x, "gate", 48), b.matmul(x, "up", 48), act)


def halves(b, x, act="gelu"):
    return b.glu(*cut(b, b.matmul(x, "gate_up", 96), 48, 48), act)


@pytest.mark.parametrize("more", [halves, lambda b, x: b.activate(b.matmul(x, "gate", 48), "relu2")],
                         ids=["halves", "activated"])
def test_activations_of_one_product_are_part_of_it(more):
    model = Model()
    graph = model.graph(more=more)
    assert kernels(graph, gated_products, activated_products) == {
        "embed": 1, "matmul": 5, "kv_write": 1, "attention": 1, "select_outputs": 1}
    replay_equals_graph(graph, model.weights, (gated_products, activated_products))


def test_gate_and_up_of_one_type_are_one_product():
    model = Model()
    graph = model.graph(more=mlp)
    assert kernels(graph, gated_products)["glu"] == 0
    replay_equals_graph(graph, model.weights, (gated_products,))
    model.types["up.weight"] = "F16"
    assert kernels(model.graph(more=mlp), gated_products)["glu"] == 1


@pytest.mark.parametrize("more", [
    lambda b, x: b.glu(b.matmul(x, "gate", 48), b.matmul(b.scale(x, 2.0), "up", 48), "silu"),
    lambda b, x: (lambda gate: b.glu(gate, gate, "silu"))(b.matmul(x, "gate", 48)),
    lambda b, x: (lambda gate, up: b.glu(up, gate, "silu"))(*cut(b, b.matmul(x, "gate_up", 96), 48, 48)),
    lambda b, x: (lambda gate: b.glu(gate, b.add(gate, b.matmul(x, "up", 48)), "silu"))(b.matmul(x, "gate", 48)),
], ids=["two inputs", "gate twice", "up before gate", "gate read elsewhere"])
def test_other_gates_stay(more):
    model = Model()
    graph = model.graph(more=more)
    assert kernels(graph, gated_products)["glu"] == 1
    replay_equals_graph(graph, model.weights, (gated_products,))


def test_a_gated_product_takes_no_residual():
    model = Model()
    graph = model.graph(more=lambda b, x: b.add(mlp(b, x), b.concat(x, b.columns(x, 0, 16))))
    found = kernels(graph, gated_products, add_residual)
    assert found["add"] == 1 and found["glu"] == 0
    replay_equals_graph(graph, model.weights, (gated_products, add_residual))


def test_a_product_read_before_its_activation_stays():
    model = Model()
    graph = model.graph(more=lambda b, x: (lambda y: b.mul(b.activate(y, "tanh"), y))(b.matmul(x, "gate", 48)))
    assert kernels(graph, activated_products)["activate"] == 1
    replay_equals_graph(graph, model.weights, (activated_products,))


def test_a_norm_that_others_read_stays():
    model = Model()
    graph = model.graph(more=lambda b, x: (lambda y: b.add(y, b.matmul(y, "p", 32)))(b.rms_norm(x, "row", 1e-5)))
    assert kernels(graph, norm_into_products)["rms_norm"] == 1
    replay_equals_graph(graph, model.weights, (norm_into_products,))


def test_a_product_with_a_norm_has_room_for_the_normed_rows():
    graph, _ = load("llama-untied-f16")
    plan = lower(graph, ALL_RULES)
    for step in plan.steps:
        has_norm = step.kernel == "matmul" and product_of(step).norm is not None
        assert (step.scratch is not None) == has_norm
        if has_norm:
            assert step.scratch not in (*step.inputs, step.output)
            assert plan.slots[step.scratch].width >= step.input_widths[0]


def test_a_norm_that_is_a_result_is_computed_for_that_result_only():
    graph, _ = load("llama-untied-f16")
    plan = lower(graph, ALL_RULES)
    assert [s.kernel for s in plan.steps_for("embeddings")].count("rms_norm") == 1
    assert [s.kernel for s in plan.steps_for("logits")].count("rms_norm") == 0
