"""Lowering: the plan computes what the graph computes, in fewer steps and little memory."""

import asyncio
from collections import Counter

import numpy as np
import pytest

from bridge.graph.reference import ReferenceSession
from bridge.plan import lower
from tests.plan.files import FILES, load
from tests.plan.interpreter import PlanInterpreter

@pytest.mark.parametrize("name", FILES)
def test_replaying_the_plan_equals_the_graph(name):
    graph, weights = load(name)
    plan = lower(graph)
    reference, replayed = ReferenceSession(graph, weights, n_ctx=64, kv_type="f32"), PlanInterpreter(
        graph, plan, weights, 64)
    tokens = [3, 140, 59, 265, 35, 8, 97, 93]
    for batch, start, outputs in [(tokens[:5], 0, [1, 4]), (tokens[5:], 5, [2])]:
        expected = asyncio.run(reference.evaluate(batch, start, outputs))
        np.testing.assert_array_equal(replayed.replay(batch, start, outputs).reshape(-1), expected)


@pytest.mark.parametrize("name", ["bert-rerank-q8_0", "modern-bert-q8_0", "t5encoder-f16", "qwen3-rerank-f16"])
def test_replaying_for_embeddings_equals_the_graph(name):
    graph, weights = load(name)
    reference = ReferenceSession(graph, weights, n_ctx=64, kv_type="f32")
    replayed = PlanInterpreter(graph, lower(graph), weights, 64)
    tokens, texts = [3, 140, 59, 265, 35, 8, 97, 93], (5, 3) if graph.reads_whole_texts else ()
    outputs = [0, 5] if graph.reads_whole_texts else [7]
    expected = asyncio.run(reference.embed(tokens, 0, outputs, texts))
    got = replayed.replay(tokens, 0, outputs, result="embeddings", texts=texts)
    np.testing.assert_array_equal(got.reshape(-1), expected)


def test_each_result_has_the_steps_it_needs_and_no_others():
    plan = lower(load("qwen3-rerank-f16")[0])
    names = {result: {step.name for step in plan.steps_for(result)} for result in plan.results}
    assert "token_embd" in names["logits"] - names["embeddings"]
    assert "cls.output" in names["embeddings"] - names["logits"]
    assert len(names["logits"] & names["embeddings"]) > 20


def test_steps_without_outputs_fill_the_cache_all_the_same():
    graph, weights = load("qwen3-f16")
    plan = lower(graph)
    whole, split = (PlanInterpreter(graph, plan, weights, 64) for _ in range(2))
    tokens = [3, 140, 59, 265, 35]
    expected = whole.replay(tokens, 0, [4])
    split.replay(tokens[:4], 0, [], with_outputs=False)
    np.testing.assert_allclose(split.replay(tokens[4:], 4, [0]), expected, atol=1e-5)
    assert len(plan.without_outputs()) < len(plan.steps)


def test_residual_additions_ride_on_their_matmul():
    graph, _ = load("llama-untied-f16")
    kernels = Counter(step.kernel for step in lower(graph).steps)
    assert kernels["add"] == 0
    assert kernels["matmul"] == 3 * 7 + 1


def test_gemma_keeps_its_additions_since_a_norm_stands_between():
    graph, _ = load("gemma2-f32")
    assert Counter(step.kernel for step in lower(graph).steps)["add"] == 2 * 2


@pytest.mark.parametrize("name", FILES)
def test_slots_do_not_grow_with_depth(name):
    graph, _ = load(name)
    plan = lower(graph)
    assert len(plan.slots) <= 12
    assert sum(slot.width for slot in plan.slots if slot.rows == "tokens") <= 6 * max(
        node.width for node in graph.nodes if node.rows == "tokens")


def test_lowering_is_deterministic():
    graph, _ = load("gemma3-f16")
    assert lower(graph) == lower(graph)
