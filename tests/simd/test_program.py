"""Programs: records that the kernels read, and barriers where threads would otherwise run into each other."""

import re
from pathlib import Path

from bridge.graph.graph import TOKENS
from bridge.models import build_graph
from bridge.gguf import open_gguf
from bridge.plan import lower
from bridge.simd.ops import Access, Op, OpBuilder, Region
from bridge.simd.program import KERNELS, MAX_OPS, RECORD_BYTES, RECORD_WORDS, barriers, encode
from bridge.simd.steps import ops_of
from tests.golden import golden, model_path

INTERPRETER = Path(__file__).parents[2] / "kernels/simd"
A, B = Region("slot", 0), Region("slot", 1)


def op(reads=(), writes=()):
    return Op("add", TOKENS, (), tuple(reads), tuple(writes), "x")


def test_kernels_are_numbered_as_in_the_interpreter():
    source = (INTERPRETER / "interpreter.c").read_text()
    table = source[source.index("KERNELS[] = {") + len("KERNELS[] = {"):source.index("};")]
    assert [name.strip() for name in table.split(",")] == list(KERNELS)
    assert int(re.search(r"MAX_OPS = (\d+)", source)[1]) == MAX_OPS
    assert int(re.search(r"RECORD_WORDS = (\d+)", (INTERPRETER / "team.h").read_text())[1]) == RECORD_WORDS


def test_operations_by_row_follow_each_other_without_a_barrier():
    assert barriers([op(writes=[Access(A, 64)]), op([Access(A, 64)], [Access(B, 64)]), op([Access(B, 64)], [Access(A, 64)])]
                    ) == [False, False, False]


def test_rows_of_another_length_lie_elsewhere_and_need_one():
    assert barriers([op(writes=[Access(A, 64)]), op([Access(A, 64)], [Access(B, 64)]), op([Access(B, 64)], [Access(A, 32)])]
                    ) == [False, False, True]


def test_reading_what_all_write_and_writing_what_all_read_need_one():
    by_all, by_row = Access(A), Access(A, 64)
    assert barriers([op(writes=[by_all]), op([by_row], [Access(B, 64)])]) == [False, True]
    assert barriers([op([by_all], [Access(B)]), op(writes=[by_row])]) == [False, True]
    assert barriers([op([by_all], [Access(B)]), op([by_all], [Access(Region("slot", 2))])]) == [False, False]
    assert barriers([op(writes=[by_all]), op(writes=[by_all])]) == [False, True]


def test_a_layer_needs_few_barriers():
    """Products of the same input run side by side; what goes by rows joins what comes before."""
    case = golden("llama-tied-f32")
    file = open_gguf(str(model_path(case)))
    plan = lower(build_graph(file.metadata, file.tensors, 64))
    ops = ops_of(OpBuilder(plan, kv_type="f16", exact=False, has_relaxed=True, dot_mode=0))
    n_layers = len(plan.kv_layers)
    assert sum(barriers(ops)) <= 10 * n_layers + 3


def test_a_record_holds_regions_numbers_and_nothing():
    class Area:
        unit = 7

    found = encode([Op("scale", TOKENS, (A, None, 5, 1.5), (), (), "x")], {A: Area})
    assert len(found) == RECORD_BYTES
    assert found[:28].hex() == "070000000000000000000000" + "07000000" + "00000000" + "05000000" + "0000c03f"


def test_activations_are_packed_once_for_all_that_read_them():
    case = golden("quant-llama-Q4_0")
    file = open_gguf(str(model_path(case)))
    plan = lower(build_graph(file.metadata, file.tensors, 64))
    ops = ops_of(OpBuilder(plan, kv_type="f16", exact=False, has_relaxed=True, dot_mode=0))
    per_layer = (sum(op.kernel == "quantise" for op in ops) - 1) / len(plan.kv_layers)  # one more for the output head
    assert per_layer == 4  # before q, k and v; before the output projection; before gate and up; before down
