"""Where weights go: which tensors share a buffer, and from which bytes of the file each of its places is filled."""

import pytest

from bridge.gguf import TensorInfo
from bridge.gpu.device import Limits
from bridge.gpu.weights import place_weights, segments_of
from bridge.graph.graph import TOKENS, Weight
from bridge.plan import Plan, Product, Step
from bridge.quants import quant_type
from bridge.quants.types import row_nbytes

N_IN = 32


def placed(product, limits=Limits()):
    step = Step("matmul", (0,), 1, product.weights, {"product": product}, TOKENS, 0, "product")
    return place_weights(Plan((step,), (), {}, 0, {}, ()), limits)


def matrices(**sizes):
    """``q="Q8_0 4"`` is a tensor q of four rows."""
    found = {name: size.split() for name, size in sizes.items()}
    return tuple(Weight(name, (int(rows), N_IN), type_name) for name, (type_name, rows) in found.items())


def places(placement):
    """(tensor, buffer, byte in it) in the order of the file, in which the tensors follow one another backwards."""
    weights = {piece.weight.name: piece.weight for matrix in placement.matrices.values() for part in matrix.parts
               for piece in part.pieces} | {name: vector.weight for name, vector in placement.vectors.items()}
    tensors, offset = {}, 0
    for name, weight in reversed(weights.items()):
        nbytes = row_nbytes(weight.type, weight.shape[-1]) * (weight.shape[0] if len(weight.shape) > 1 else 1)
        tensors[name] = TensorInfo(name, quant_type(weight.type), weight.shape, offset, nbytes)
        offset += nbytes
    buffers = {(m.name, i): f"{m.name}/{i}" for m in placement.matrices.values() for i in range(len(m.parts))}
    segments = segments_of(placement, tensors, buffers | {name: name for name in placement.vector_sizes})
    assert [s.offset for s in segments] == sorted(s.offset for s in segments)
    assert sum(s.length for s in segments) == offset
    return [(s.name, s.buffer, s.at) for s in segments]


@pytest.mark.parametrize("sizes, expected", [
    ({"q": "Q8_0 4", "k": "Q8_0 2", "v": "Q8_0 2"},
     [("v", "q, k, v/0", 34 * 6), ("k", "q, k, v/0", 34 * 4), ("q", "q, k, v/0", 0)]),
    ({"q": "Q8_0 4", "k": "Q8_0 2", "v": "Q4_0 2"}, [("v", "v/0", 0), ("k", "q, k/0", 34 * 4), ("q", "q, k/0", 0)]),
    # Three rows of 34 bytes are no whole words: what follows them begins a buffer of its own.
    ({"q": "Q8_0 3", "k": "Q8_0 3", "v": "Q8_0 2"}, [("v", "v/0", 0), ("k", "k/0", 0), ("q", "q/0", 0)]),
    ({"q": "Q8_0 4", "k": "Q8_0 3"}, [("k", "q, k/0", 34 * 4), ("q", "q, k/0", 0)]),
])
def test_tensors_of_one_product_share_a_buffer_as_far_as_their_formats_and_words_go(sizes, expected):
    found = matrices(**sizes)
    placement = placed(Product(found, (None,) * len(found)))
    assert places(placement) == expected
    (of_product,) = placement.products.values()
    assert [m.first_column for m in of_product] == [
        sum(w.shape[0] for w in found[:[w.name for w in found].index(m.name.split(",")[0])]) for m in of_product]


def test_biases_of_one_product_lie_where_its_columns_do():
    found = matrices(q="F32 4", k="F32 2", v="F32 2")
    placement = placed(Product(found, (Weight("q.b", (4,), "F32"), None, Weight("v.b", (2,), "F16"))))
    name = "biases of q, k, v"
    assert placement.vector_sizes == {name: 8}
    assert [place for place in places(placement) if place[0].endswith(".b")] == [("v.b", None, 4 * 6), ("q.b", name, 0)]


@pytest.mark.parametrize("sizes, n_rows", [({"gate": "Q8_0 7", "up": "Q8_0 7"}, 7), ({"both": "Q8_0 14"}, 7)])
def test_parts_of_gate_and_up_have_the_same_rows_of_both(sizes, n_rows):
    found = matrices(**sizes)
    product = Product(found, (None,) * len(found), act="silu", gated=True)
    ((matrix,),) = placed(product, Limits(max_storage_buffer_binding_size=2 * 34 * 3 + 8)).products.values()
    up_first = 0 if len(found) == 2 else n_rows
    assert [(part.first_row, part.n_rows, part.nbytes) for part in matrix.parts] == [
        (0, 3, 104 + 102), (3, 3, 104 + 102), (6, 1, 36 + 34)]
    for part in matrix.parts:
        gate, up = part.pieces
        assert (gate.offset, up.offset) == (0, -(-34 * part.n_rows // 4) * 4)
        assert (gate.first_row, up.first_row) == (part.first_row, up_first + part.first_row)
