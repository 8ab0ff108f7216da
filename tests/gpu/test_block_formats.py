"""Every block format in every kernel that decodes it, against bridge.quants."""

import numpy as np
import pytest

from bridge.gpu.formats import FORMATS
from bridge.quants import quant_type
from tests.gpu.harness import OneOperation, Tensors, assert_close, run

QUANTISED = [name for name in FORMATS if quant_type(name).block_size > 1]
RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def same_numbers_whatever_ran_before():
    RNG.bit_generator.state = np.random.default_rng(3).bit_generator.state



def n_in_of(type_name):
    """Two super-blocks, or an odd number of small blocks so that rows begin anywhere in a word, or an odd number of pairs."""
    block = quant_type(type_name).block_size
    return 512 if block == 256 else 90 if block == 1 else 3 * block


@pytest.mark.parametrize("n_tokens", [1, 7])
@pytest.mark.parametrize("type_name", QUANTISED)
def test_matmul(device, tuning, type_name, n_tokens):
    n_in = n_in_of(type_name)
    op = OneOperation(RNG.standard_normal((8, n_in)).astype(np.float32))
    op.tensors.add_blocks("w.weight", type_name, 70, n_in)
    graph = op.finish(op.builder.matmul(op.x(), "w", 70))
    got, expected = run(device, graph, op.tensors, [(list(range(n_tokens)), 0)], tuning=tuning)
    assert_close(got, expected)


@pytest.mark.parametrize("type_name", QUANTISED)
def test_embed(device, type_name):
    n_in = n_in_of(type_name)
    tensors = Tensors()
    tensors.add_blocks("x", type_name, 11, n_in)
    op = OneOperation(np.zeros((11, n_in), np.float32))
    op.tensors = tensors
    got, expected = run(device, op.finish(op.x()), tensors, [([10, 0, 7, 1], 0)])
    assert_close(got, expected, 1e-6)
