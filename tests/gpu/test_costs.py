"""What calls cannot do without, counted by hand for small models."""

from math import prod

import pytest

from bridge.gguf import open_gguf
from bridge.gpu.calls import CallBuilder
from bridge.gpu.costs import Cost, Costs
from bridge.gpu.device import Limits
from bridge.gpu.steps import calls_of
from bridge.gpu.tuning import HARDWARE
from bridge.gpu.weights import place_weights
from bridge.graph.cache import CacheLayout
from bridge.models import build_graph
from bridge.plan import lower
from bridge.synth import open_synth
from tests.golden import MODELS

N_CTX = 64


def costs_of(model, n_rows, position):
    """(step, call, cost) of every call of a plan, whatever its number of rows is."""
    with open_gguf(model) as file:
        plan = lower(build_graph(file.metadata, file.tensors, N_CTX), HARDWARE.rules)
    placement, cache = place_weights(plan, Limits()), CacheLayout(plan.kv_layers, N_CTX, 16, "f16", "f16")
    builder = CallBuilder(plan, placement, HARDWARE, cache=cache, max_workgroups=65535)
    costs = Costs(plan, placement, cache)
    return [(step, call, costs.of(step, call, n_rows, position)) for step in plan.steps
            for call in calls_of(builder, step) if call.takes(n_rows, 1)]


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.gguf")), ids=lambda path: path.stem)
def test_every_plan_has_costs_that_are_whole_and_grow_with_the_rows(path):
    one, four = ([cost for *_, cost in costs_of(str(path), n_rows, 9)] for n_rows in (1, 4))
    assert all(isinstance(value, int) and value >= 0 for cost in one + four for value in cost)
    assert sum(cost.flop for cost in four) > sum(cost.flop for cost in one) > 0
    assert 4 * sum(cost.nbytes for cost in one) > sum(cost.nbytes for cost in four) > sum(cost.nbytes for cost in one)


def test_experts_cost_those_that_rows_choose_and_no_more_than_all():
    for n_rows in (1, 64):
        for step, call, cost in costs_of(str(MODELS / "llama-moe-q8_0.gguf"), n_rows, 0):
            if step.kernel != "matmul_experts" or not any(operand.kind == "matrix" for operand in call.operands):
                continue
            (n_expert, n_out, n_in), n_used = step.weights[0].shape, step.attrs["n_used"]
            assert n_used < n_expert
            assert cost.flop == 2 * n_out * n_in * n_used * n_rows
            weights = min(n_expert, n_used * n_rows) * n_out * n_in * 34 // 32
            columns = step.width + sum(step.input_widths) + step.attrs["group_columns"]
            assert 0 < cost.nbytes - weights <= 4 * n_rows * columns


def test_a_window_bounds_what_attention_reads():
    seen = {bool(step.attrs["window"]): cost for step, _, cost in
            costs_of(open_synth("synth:gemma3-tiny-Q8_0"), 4, 200) if step.kernel == "attention"}
    n_head, n_head_kv, head_dim, window = 4, 2, 64, 64
    out = 4 * 4 * 2 * n_head * head_dim  # four rows of floats in and out
    assert seen[True] == Cost(2 * (window + 3) * n_head_kv * head_dim * 2 + out, 4 * n_head * head_dim * 4 * window)


def test_a_looked_up_row_costs_a_row():
    (cost,) = (cost for step, _, cost in costs_of(open_synth("synth:tiny-Q8_0"), 3, 0) if step.kernel == "embed")
    assert cost == Cost(3 * (256 * 34 // 32 + 4 * 256), 0)


def test_all_weights_of_a_dense_model_are_read_once():
    with open_gguf(open_synth("synth:tiny-F16")) as file:
        elements = sum(prod(info.shape) for info in file.tensors.values() if len(info.shape) == 2)
    flop = sum(cost.flop for step, _, cost in costs_of(open_synth("synth:tiny-F16"), 1, 0) if step.kernel == "matmul")
    assert flop == 2 * elements  # the embedding is the output matrix
