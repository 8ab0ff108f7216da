"""Recurrences by the kernels against the numpy reference."""

import numpy as np
import pytest

from bridge.errors import InputError, UnsupportedError
from tests.graph.recurrences import GRAPHS, N_TOKENS, gated_delta, names, selective_scan, wkv7
from tests.simd.harness import OneOperation, assert_close, run

BATCHES = [(range(0, 5), 0), (range(5, 6), 5), (range(6, 8), 6), (range(8, 24), 8)]


def operation(width):
    return OneOperation(np.random.default_rng(3).standard_normal((N_TOKENS, width)).astype(np.float32))


@pytest.mark.parametrize("graph, width, parameters", GRAPHS, ids=names())
def test_state_is_carried_from_batch_to_batch(host, graph, width, parameters):
    op = operation(width)
    got, expected = run(host, graph(op, **parameters), op.tensors, [(list(tokens), start) for tokens, start in BATCHES])
    assert_close(got, expected)


@pytest.mark.parametrize("graph, width, parameters", GRAPHS[::2], ids=names()[::2])
def test_a_context_begins_with_a_state_of_zeros(host, graph, width, parameters):
    op = operation(width)
    got, expected = run(host, graph(op, **parameters), op.tensors, [([1, 2, 3], 0), ([4, 5], 0)])
    assert_close(got, expected)


def test_what_no_kernel_takes_is_refused(hosts):
    for graph in (lambda op: wkv7(op, head_dim=6), lambda op: gated_delta(op, head_dim_v=6),
                  lambda op: selective_scan(op, n_head=6, head_dim=2, n_group=2)):
        op = operation(8)
        with pytest.raises(UnsupportedError, match="heads or groups of 6 columns; .* needs a multiple of 4"):
            run(hosts("relaxed"), graph(op), op.tensors, [([0], 0)])
    op = operation(8)
    with pytest.raises(InputError, match="cannot start at position 2"):
        run(hosts("relaxed"), wkv7(op), op.tensors, [([0, 1, 2], 0), ([5], 2)])
