"""Programs: records that the kernels read, and barriers where threads would otherwise run into each other."""

import re
from pathlib import Path

import pytest

from bridge.graph.cache import CacheLayout
from bridge.graph.graph import OUTPUTS, TOKENS
from bridge.models import build_graph
from bridge.gguf import open_gguf
from bridge.plan import lower
from bridge.simd.ops import Access, Op, OpBuilder, Region
from bridge.simd.program import (
    BARRIER,
    BESIDE,
    ITEM_KERNELS,
    JOINED,
    KERNELS,
    MAX_OPS,
    RECORD_BYTES,
    RECORD_WORDS,
    encode,
    sequence,
)
from bridge.simd.steps import ops_of
from tests.golden import golden, model_path

INTERPRETER = Path(__file__).parents[2] / "kernels/simd"
A, B = Region("slot", 0), Region("slot", 1)


def op(reads=(), writes=(), kernel="add", rows=TOKENS):
    return Op(kernel, rows, (), tuple(reads), tuple(writes), "x")


def test_kernels_are_numbered_as_in_the_interpreter():
    source = (INTERPRETER / "interpreter.c").read_text()
    table = source[source.index("KERNELS[] = {") + len("KERNELS[] = {"):source.index("};")]
    assert [name.strip(" \n&") for name in table.split(",")] == list(KERNELS)
    assert int(re.search(r"MAX_OPS = (\d+)", source)[1]) == MAX_OPS
    header = (INTERPRETER / "team.h").read_text()
    assert int(re.search(r"RECORD_WORDS = (\d+)", header)[1]) == RECORD_WORDS
    assert re.search(r"enum Follows \{ (.*) \}", header)[1] == "F_BESIDE, F_JOINED, F_BARRIER"
    assert (BESIDE, JOINED, BARRIER) == (0, 1, 2)


def test_operations_that_go_by_the_same_rows_are_joined():
    a, b = Access(A, 64), Access(B, 64)
    assert sequence([op(writes=[a]), op([a], [b]), op([b], [a])]) == [BESIDE, JOINED, JOINED]
    assert sequence([op(writes=[a]), op([a], [b], rows=OUTPUTS)]) == [BESIDE, BARRIER]


def test_rows_of_another_length_lie_elsewhere():
    first, second = op(writes=[Access(A, 64)]), op([Access(A, 64)], [Access(B, 64)])
    assert sequence([first, second, op([Access(B, 64)], [Access(A, 32)])]) == [BESIDE, JOINED, BARRIER]


def test_reading_what_all_write_and_writing_what_all_read_needs_a_barrier():
    by_all, by_row, other = Access(A), Access(A, 64), Access(Region("slot", 2))
    assert sequence([op(writes=[by_all], kernel="matmul"), op([by_row], [Access(B, 64)])]) == [BESIDE, BARRIER]
    assert sequence([op([by_all], [Access(B)], "matmul"), op(writes=[by_row])]) == [BESIDE, BARRIER]
    assert sequence([op([by_all], [Access(B)], "matmul"), op([by_all], [other], "matmul")]) == [BESIDE, BESIDE]
    assert sequence([op(writes=[by_all], kernel="matmul"), op(writes=[by_all], kernel="matmul")]) == [BESIDE, BARRIER]
    assert sequence([op(writes=[Access(A, 64)]), op([Access(A)], [Access(B, 64)])]) == [BESIDE, BARRIER]


def test_rows_are_shared_only_by_operations_that_are_joined():
    """Another thread may do the rows of the third operation while the first is not done with them."""
    a, c = Access(A, 64), Access(Region("slot", 2), 64)
    beside = op([Access(Region("slot", 3))], [Access(B)], "matmul")
    assert sequence([op(writes=[a]), beside, op([a], [c])]) == [BESIDE, BESIDE, BARRIER]


@pytest.mark.parametrize("name", ["llama-tied-f32", "gemma3-q4_0", "llama-moe-q8_0", "gemma2-iq4_nl"])
def test_nothing_is_touched_before_it_is_ready(name):
    """In every real program: what an operation reads was written before the last barrier, or by what it joins."""
    ops = ops_of_model(name)
    unfinished, unit = set(), set()
    for op_, follows in zip(ops, sequence(ops)):
        if follows == BARRIER:
            unfinished, unit = set(), set()
        elif follows == BESIDE:
            unfinished, unit = unfinished | unit, set()
        else:
            assert op_.kernel not in ITEM_KERNELS
        assert not {access.region for access in (*op_.reads, *op_.writes)} & unfinished
        unit |= {access.region for access in op_.writes}


def test_a_layer_needs_few_barriers():
    """Products of the same input run side by side; what goes by rows joins what comes before."""
    ops = ops_of_model("llama-tied-f32")
    assert sequence(ops).count(BARRIER) <= 10 * 2 + 3


def ops_of_model(name):
    file = open_gguf(str(model_path(golden(name))))
    plan = lower(build_graph(file.metadata, file.tensors, 64))
    cache = CacheLayout(plan.kv_layers, 64, 64, "f16", "f16")
    return ops_of(OpBuilder(plan, cache=cache, exact=False, has_relaxed=True, dot_mode=0), plan.steps_for("logits"))


def test_a_record_holds_regions_numbers_and_nothing():
    class Area:
        unit = 7

    found = encode([Op("scale", TOKENS, (A, None, 5, 1.5), (), (), "x")], {A: Area})
    assert len(found) == RECORD_BYTES
    number = f"{KERNELS.index('scale'):02x}000000"
    assert found[:28].hex() == number + "0000000000000000" + "07000000" + "00000000" + "05000000" + "0000c03f"


def test_activations_are_packed_once_for_all_that_read_them():
    ops = ops_of_model("quant-llama-Q4_0")
    per_layer = (sum(op.kernel == "quantise" for op in ops) - 1) / 2  # layers; one more for the output head
    assert per_layer == 4  # before q, k and v; before the output projection; before gate and up; before down
