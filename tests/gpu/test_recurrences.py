"""Recurrences on the device against the numpy reference."""

import numpy as np
import pytest

from bridge.errors import InputError, UnsupportedError
from tests.gpu.harness import OneOperation, assert_close, run
from tests.graph.recurrences import GRAPHS, N_TOKENS, names, selective_scan, wkv7

BATCHES = [(range(0, 5), 0), (range(5, 6), 5), (range(6, 8), 6), (range(8, 16), 8)]


def operation(width):
    return OneOperation(np.random.default_rng(3).standard_normal((N_TOKENS, width)).astype(np.float32))


@pytest.mark.parametrize("graph, width, parameters", GRAPHS, ids=names())
def test_state_is_carried_from_batch_to_batch(device, graph, width, parameters):
    op = operation(width)
    batches = [(list(tokens), start) for tokens, start in BATCHES]
    got, expected = run(device, graph(op, **parameters), op.tensors, batches)
    assert_close(got, expected)


@pytest.mark.parametrize("graph, width, parameters", GRAPHS[::2], ids=names()[::2])
def test_a_context_begins_with_a_state_of_zeros(device, graph, width, parameters):
    op = operation(width)
    got, expected = run(device, graph(op, **parameters), op.tensors, [([1, 2, 3], 0), ([4, 5], 0)])
    assert_close(got, expected)


def test_what_no_kernel_takes_is_refused(device):
    for head_dim in (6, 260):
        op = operation(8)
        with pytest.raises(UnsupportedError, match=f"heads of {head_dim} columns; .* takes multiples of 4 up to 256"):
            run(device, wkv7(op, n_head=1, head_dim=head_dim), op.tensors, [([0], 0)])
    op = operation(8)
    with pytest.raises(UnsupportedError, match="states of 18 elements for each column; .* needs a multiple of 4"):
        run(device, selective_scan(op, d_state=18), op.tensors, [([0], 0)])
    op = operation(8)
    with pytest.raises(InputError, match="cannot start at position 2"):
        run(device, wkv7(op), op.tensors, [([0, 1, 2], 0), ([5], 2)])
