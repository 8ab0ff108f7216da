"""Tokens in flight: the same text as one token at a time from all logits, however it ends, for less waiting."""

import asyncio
from dataclasses import replace

import pytest

from bridge.errors import DeviceError
from bridge.gpu.selection import Flight
from bridge.runtime import GenerateOptions, LoadOptions, decode_ahead, load_model
from bridge.runtime.cancel import CancelToken
from bridge.sampling import SamplingOptions
from tests.golden import MODELS

PROMPT = [1, 5, 9, 42, 7]
N_PREDICT = 40
LLAMA, WINDOWED, RECURRENT = "llama-tied-f32", "gemma3-f16", "lfm2-f32"
GREEDY, SAMPLED = {"temp": 0, "penalty": 1}, {"temp": 1.3, "seed": 2}


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """Whatever the machine does, as many tokens go in flight as may."""
    monkeypatch.setattr(decode_ahead, "WAIT_SECONDS", 1e9)


RUNNER = asyncio.Runner()
"""A model lives on one event loop; here it outlives a test."""


@pytest.fixture(scope="module")
def models(device):
    opened = {}

    async def devices():
        return device

    def open_once(name, **options):
        key = name, *options.items()
        if key not in opened:
            options = {"n_ctx": 128, "backend": "webgpu", "kv_type": "f32"} | options
            opened[key] = RUNNER.run(load_model(str(MODELS / f"{name}.gguf"), LoadOptions(**options), devices=devices))
        return opened[key]

    yield open_once
    for model in opened.values():
        RUNNER.run(model.close())
    RUNNER.close()


async def tokens_of(model, sampling, prompt=PROMPT, cancel=None, until=None, **options):
    options = {"n_predict": N_PREDICT, "ignore_eos": True} | options
    found = []
    async for piece in model.generate(prompt, GenerateOptions(sampling=SamplingOptions(**sampling), **options), cancel):
        if len(found) < model.last_usage.completion_tokens:  # not the rest of a character, which comes at the end
            found.append(piece.token)
        if until and until(found):
            cancel.cancel()
    return found


def generated(model, sampling, **options):
    return RUNNER.run(tokens_of(model, sampling, **options))


def from_all_logits(model, sampling, **options):
    """Scores are asked for, so all logits come, one token at a time."""
    return generated(model, sampling, n_probs=1, **options)


OPTIONS = [GREEDY, {"temp": 0, "penalty": 1.3}, {}, {"temp": 1.5, "top_k": 100, "top_p": 1, "penalty": 1},
           {"temp": 2, "presence_penalty": 1.5, "frequency_penalty": 0.2, "min_p": 0.01, "logit_bias": {3: 2.0, 4: -5.0}},
           {"top_k": 1, "logit_bias": {300: 1.0}}]


@pytest.mark.parametrize("name, sampling", [*((LLAMA, options) for options in OPTIONS),
                                            (WINDOWED, {}), (RECURRENT, {})])
def test_the_text_does_not_depend_on_how_it_is_decoded(models, name, sampling):
    model = models(name)
    is_drawn = sampling.get("temp") != 0 and sampling.get("top_k") != 1
    for seed in range(2 if name == LLAMA and is_drawn else 1):
        expected = from_all_logits(model, {**sampling, "seed": seed})
        assert generated(model, {**sampling, "seed": seed}) == expected
        assert list(model.tokens) == [*PROMPT, *expected[:-1]] and len(expected) == N_PREDICT


@pytest.mark.parametrize("sampling", [GREEDY, {"temp": 0, "penalty": 1.1}, {"seed": 3}], ids=str)
def test_waits_and_bytes_per_token(models, device, sampling):
    """A map is a wait for what was computed; there are others where a busy machine has batches cut."""
    model = models(LLAMA)
    generated(model, sampling)
    before = (device.counters.maps, device.counters.bytes_read, device.counters.created)
    generated(model, sampling)
    n_maps, n_bytes, n_created = (now - then for now, then in zip(
        (device.counters.maps, device.counters.bytes_read, device.counters.created), before))
    assert n_created == 0
    assert n_maps == 1 + 3 + 4  # the prompt's token, flights of 1, 2 and 4, and four of 8
    assert n_bytes <= 1024 * N_PREDICT
    if sampling == GREEDY:
        assert n_bytes <= 12 * N_PREDICT


def test_one_token_at_a_time_reads_no_vocabulary_either(models, device):
    model = models(RECURRENT)
    before = device.counters.bytes_read
    generated(model, {"seed": 1})
    assert 0 < device.counters.bytes_read - before <= 1024 * N_PREDICT


def test_an_end_in_flight_leaves_the_context_at_the_end(models):
    """Extras are written behind it; the next turn writes over them."""
    model = models(LLAMA)
    whole = generated(model, SAMPLED)
    eog = next(token for i, token in enumerate(whole) if i > 10 and token not in whole[:i])
    at = whole.index(eog)
    usual, model.tokenizer.eog_ids = model.tokenizer.eog_ids, frozenset([eog])
    try:
        assert generated(model, SAMPLED, ignore_eos=False) == whole[:at]
        assert model.last_usage.finish_reason == "stop" and model.n_past == len(PROMPT) + at
    finally:
        model.tokenizer.eog_ids = usual
    turn = [*PROMPT, *whole[:at], 17, 4]
    assert generated(model, SAMPLED, prompt=turn) == from_all_logits(model, SAMPLED, prompt=turn)


def test_a_stop_string_in_flight(models):
    model = models(LLAMA)
    text = model.tokenizer.decode(generated(model, SAMPLED))
    stop = text[len(text) // 2:][:4]
    seen = generated(model, SAMPLED, stop=(stop,))
    assert model.last_usage.finish_reason == "stop" and len(seen) < N_PREDICT
    assert seen == from_all_logits(model, SAMPLED, stop=(stop,)) and model.n_past == len(PROMPT) + len(seen) - 1


@pytest.mark.parametrize("after", [1, 4, 9, 20])
def test_a_cancellation_in_flight_ends_at_once(models, after):
    model, cancel = models(LLAMA), CancelToken()
    whole = generated(model, GREEDY)
    seen = generated(model, GREEDY, cancel=cancel, until=lambda found: len(found) == after)
    assert model.last_usage.finish_reason == "cancelled" and seen == whole[:after]
    assert generated(model, GREEDY) == whole


@pytest.mark.parametrize("n_ctx", [16, 33])
def test_the_context_ends_where_it_ends(models, n_ctx):
    model = models(LLAMA, n_ctx=n_ctx)
    seen = generated(model, GREEDY, n_predict=500)
    assert model.n_past == n_ctx == len(PROMPT) + len(seen) - 1
    assert seen == generated(models(LLAMA), GREEDY)[:len(seen)] or len(seen) > N_PREDICT


def test_flights_end_where_attention_is_split_otherwise(models, monkeypatch):
    """Sums are then added up in another order; which program computes a position must not depend on the flight."""
    model = models(LLAMA)
    tuning = replace(model.session._kernels.tuning, attention_splits=((16, 2), (33, 4)))
    monkeypatch.setattr(model.session._kernels, "tuning", tuning)
    expected = from_all_logits(model, SAMPLED)
    n_flown = []

    async def counted(flight, land=model.land):
        found = await land(flight)
        n_flown.append((model.n_past, len(found)))
        return found

    monkeypatch.setattr(model, "land", counted)
    assert generated(model, SAMPLED) == expected
    assert all(tuning.splits_of(start + 1) == tuning.splits_of(start + n) for start, n in n_flown)
    assert max(n for _, n in n_flown) == 8


@pytest.mark.parametrize("name", [LLAMA, WINDOWED])
def test_a_context_saved_in_flight_has_what_was_said_and_no_more(models, name):
    model, cancel = models(name), CancelToken()

    async def cache_of(n_probs, cancel=None, until=None):
        said = await tokens_of(model, GREEDY, n_predict=13, n_probs=n_probs, cancel=cancel, until=until)
        return said, list(model.tokens), await model.read_cache()

    expected = RUNNER.run(cache_of(n_probs=1))
    assert RUNNER.run(cache_of(n_probs=0)) == expected
    said, tokens, cache = RUNNER.run(cache_of(0, cancel, lambda found: len(found) == 10))
    assert len(said) == 10 and tokens == expected[1][:len(tokens)]
    RUNNER.run(model.restore(tokens, len(tokens), cache))
    turn = [*tokens, 11]
    assert generated(model, GREEDY, prompt=turn) == from_all_logits(model, GREEDY, prompt=turn)


def test_what_the_host_picks_otherwise_is_evaluated_again(models, monkeypatch):
    """As after a draw that rounds the other way: here the device draws from other random numbers."""
    model = models(LLAMA)
    sampling = {"temp": 1.2, "seed": 4}
    expected = from_all_logits(model, sampling)
    session, n_flights = model.session, []

    async def misled(token, start, selections, decode=session.decode_ahead):
        n_flights.append(len(selections))
        wrong = [type(s)(s.k, s.also, s.counts, s.biases, 1 - s.uniform, s.rule) for s in selections]
        return await decode(token, start, wrong)

    monkeypatch.setattr(session, "decode_ahead", misled)
    assert generated(model, sampling) == expected
    assert len(n_flights) > 8, "the flights were cut short"
    assert list(model.tokens) == [*PROMPT, *expected[:-1]]


def test_where_nothing_can_be_told_all_logits_are_looked_at(models, monkeypatch):
    model = models(LLAMA)
    expected = generated(model, GREEDY)

    async def cut(flight, land=model.land):
        return (await land(flight))[:model.n_past % 3]

    monkeypatch.setattr(model, "land", cut)
    assert generated(model, GREEDY) == expected


@pytest.mark.parametrize("method", ["decode_ahead", "land"])
def test_a_failure_in_flight_forgets_the_context(models, monkeypatch, method):
    model = models(LLAMA)
    expected = generated(model, GREEDY)

    async def failing(*args):
        raise DeviceError("the device was lost")

    with monkeypatch.context() as patch:
        owner = model.session if method == "decode_ahead" else Flight
        patch.setattr(owner, method, failing)
        with pytest.raises(DeviceError):
            generated(model, GREEDY)
    assert model.n_past == 0
    assert generated(model, GREEDY) == expected


def test_slow_tokens_come_one_by_one(models, device, monkeypatch):
    monkeypatch.setattr(decode_ahead, "WAIT_SECONDS", 1e-9)
    model = models(LLAMA)
    before = device.counters.maps
    generated(model, GREEDY)
    assert device.counters.maps - before == N_PREDICT
