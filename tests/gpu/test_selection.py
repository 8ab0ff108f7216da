"""The best tokens found on a device are those that numpy finds, for every shape of logits that could go wrong."""

import asyncio
from array import array

import numpy as np
import pytest

from bridge.gpu.selection import MAX_AHEAD, MAX_SELECTED
from bridge.graph import GraphBuilder
from bridge.sampling import Sampler, SamplingOptions
from bridge.sampling.selection import DrawRule, Selected, Selection
from tests.gpu.harness import Tensors, open_session

SIZES = (6, 512, 1031, 4099, 50257)


def logits_model(rows):
    """A model whose logits after token t are row t."""
    n_vocab = rows.shape[1]
    tensors = Tensors()
    tensors.add_floats("x", np.pad(rows, ((0, 0), (0, n_vocab % 2))))
    b = GraphBuilder(tensors.infos)
    x = b.embed("x", len(rows), n_vocab + n_vocab % 2)
    x = b.columns(x, 0, n_vocab) if n_vocab % 2 else x
    return b.finish(b.select_outputs(x), n_vocab), tensors


async def selected(device, rows, wanted, tuning=None):
    """What a device selects for each (row, selection)."""
    session = await open_session(device, *logits_model(rows.astype(np.float32)), tuning=tuning)
    try:
        return [await session.evaluate([row], 0, [0], selection) for row, selection in wanted]
    finally:
        await session.close()


def best_of(row, k, also):
    left = np.setdiff1d(np.arange(len(row)), also)
    return left[np.lexsort((left, -row[left]))][:k].tolist()


def hard_rows(n_vocab, rng):
    rows = rng.standard_normal((6, n_vocab)).astype(np.float32)
    rows[1] = np.round(rows[1] * 50) / 50  # many equal ones, and zeros of both signs
    rows[1][rows[1] == 0] *= rng.choice((-1, 1), (rows[1] == 0).sum())
    rows[2, : n_vocab // 2] = -np.inf
    rows[3] = -np.abs(rows[3]) * 1e30
    rows[4, n_vocab // 3:] *= 1e-3  # the best side by side
    rows[5, -1] = 100.0
    return rows


def cases_for(n_vocab, rng):
    for k, n_also in ((1, 0), (1, 3), (40, 64), (96, 64), (128, 0), (MAX_SELECTED - 24, 24)):
        if k + n_also <= n_vocab:
            yield k, tuple(sorted(rng.choice(n_vocab, n_also, replace=False).tolist()))


@pytest.mark.parametrize("n_vocab", SIZES)
def test_the_best_tokens_in_order_and_the_logits_of_others(device, tuning, n_vocab):
    rng = np.random.default_rng(n_vocab)
    rows, wanted = hard_rows(n_vocab, rng), []
    for row in range(len(rows)):
        for k, also in cases_for(n_vocab, rng):
            if also:  # one of them would have been the best
                also = tuple(sorted({*also[1:], int(rows[row].argmax())}))
            wanted.append((row, Selection(k, also)))
    found = asyncio.run(selected(device, rows, wanted, tuning))
    n_told = 0
    for (row, selection), answer in zip(wanted, found, strict=True):
        if not isinstance(answer, Selected):  # too many equal ones: all logits, as if nothing had been selected
            assert row in (1, 2) and np.array_equal(answer, rows[row])
            continue
        n_told += 1
        ids, values, others = answer.best_tokens(selection.k, selection.also)
        assert ids == best_of(rows[row], selection.k, selection.also)
        assert values == array("f", rows[row][ids]) and others == rows[row][list(selection.also)].tolist()
        assert len(answer) == n_vocab
    assert n_told > 0.9 * len(wanted)


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf])
@pytest.mark.parametrize("at", [0, 700, 1030])
def test_where_something_is_no_number_all_logits_come(device, value, at):
    row = np.linspace(-1, 1, 1031, dtype=np.float32)
    row[at] = value
    [answer] = asyncio.run(selected(device, row[None], [(0, Selection(3, (at,)))]))
    np.testing.assert_array_equal(answer, row)


@pytest.mark.parametrize("selection", [Selection(512, (3,)), Selection(300), Selection(2, (512,))])
def test_what_cannot_be_selected_comes_whole(device, selection):
    rows = np.random.default_rng(1).standard_normal((1, 512)).astype(np.float32)
    [answer] = asyncio.run(selected(device, rows, [(0, selection)]))
    np.testing.assert_array_equal(answer, rows[0])


DRAWS = [
    {"temp": 0, "penalty": 1}, {"temp": 0}, {"top_k": 1, "presence_penalty": 2, "frequency_penalty": 0.5},
    {}, {"penalty": 1, "top_p": 1, "temp": 1.5}, {"min_p": 0.3, "top_p": 1, "frequency_penalty": 1.0},
    {"logit_bias": {7: 3.0, 9: -np.inf, 11: 0.5}, "top_k": 128, "top_p": 0.99}, {"temp": 0, "logit_bias": {5: 9.0}},
    {"temp": 0.01, "penalty": 0.5, "top_k": 5}, {"top_p": 1e-6},
]


@pytest.mark.parametrize("options", DRAWS, ids=str)
def test_the_device_draws_what_the_host_draws(device, options):
    """The same tokens, but where a rounding decides: that is one in millions, and no seed of these comes near."""
    n_vocab, n_tokens = 512, 120
    rows = np.random.default_rng(3).normal(0, 2, (n_vocab, n_vocab)).astype(np.float32)
    sampler, on_host = (Sampler(SamplingOptions(**options, seed=5)) for _ in range(2))

    async def follow():
        session = await open_session(device, *logits_model(rows), n_ctx=256)
        token, position, n_asked = 17, 0, 0
        while position < n_tokens:
            n = min(n_asked % MAX_AHEAD + 1, n_tokens - position)
            found = await (await session.decode_ahead(token, position, sampler.selections(n))).land()
            assert len(found) == n
            for answer in found:
                expected = on_host.sample(rows[token])
                assert answer.drawn == sampler.sample(answer) == expected
                for one in (sampler, on_host):
                    one.accept(expected)
                token = expected
            position, n_asked = position + n, n_asked + 1
        await session.close()

    asyncio.run(follow())


def test_a_flight_is_computed_while_the_one_before_is_read(device):
    """And one that nobody waits for is in nobody's way."""
    rows = np.random.default_rng(4).normal(0, 2, (600, 600)).astype(np.float32)
    chain = Selection(3, (5,))

    async def run():
        session = await open_session(device, *logits_model(rows))
        first = await session.decode_ahead(7, 0, [chain] * 4)
        waits = device.counters.waits
        others = [await session.decode_ahead(8, 4, [chain] * 3)]
        assert device.counters.waits == waits, "nothing waited"
        others += [await session.decode_ahead(token, 4, [chain] * 2) for token in (9, 10, 11)]
        row = await session.evaluate([3], 7, [0])
        last = [answer.drawn for answer in await others[-1].land()]
        buffers = device.counters.buffers
        await session.decode_ahead(12, 9, [chain] * 3)
        await session.close()
        assert first._has_landed and device.counters.buffers < buffers
        return np.array(row), last

    row, last = asyncio.run(run())
    np.testing.assert_array_equal(row, rows[3])
    expected = [best_of(rows[11], 1, [])[0]]
    assert last == [*expected, best_of(rows[expected[0]], 1, [])[0]]


def test_a_chain_ends_where_nothing_can_be_told(device):
    rows = np.full((4, 600), -1.0, np.float32)
    rows[0, 1] = rows[1, 2] = rows[2, 3] = 5.0
    rows[2, 9] = np.nan

    async def run():
        session = await open_session(device, *logits_model(rows))
        found = await (await session.decode_ahead(0, 0, [Selection(1)] * 4)).land()
        await session.close()
        return [answer.drawn for answer in found]

    assert asyncio.run(run()) == [1, 2]


def test_a_rule_that_changes_no_logit_leaves_the_drawn_tokens_among_the_best(device):
    rows = np.zeros((3, 600), np.float32)
    rows[:, 2] = 5.0

    async def run(rule):
        session = await open_session(device, *logits_model(rows))
        found = await (await session.decode_ahead(2, 0, [Selection(1, rule=rule)] * 3)).land()
        await session.close()
        return [answer.drawn for answer in found]

    assert asyncio.run(run(DrawRule())) == [2, 2, 2]
    assert asyncio.run(run(DrawRule(presence_penalty=10.0))) == [2, 0, 1]
