"""A cancellation on a slow device, whose batches are cut: it does not wait for the batch, and what comes next is right."""

import asyncio

import numpy as np
import pytest

from bridge.errors import Cancelled
from bridge.runtime import GenerateOptions, LoadOptions, load_model
from bridge.runtime.cancel import CancelToken
from bridge.sampling import SamplingOptions
from tests.golden import MODELS
from tests.gpu.test_pacing import Stubborn

PROMPT = [3 + i * 7 % 90 for i in range(40)]
GREEDY = SamplingOptions(temp=0.0, penalty=1.0)
SLOW = 3e4
"""Units per second, at which every dispatch is a submit."""


async def loaded(device, name, n_ubatch=16):
    async def devices():
        return device

    options = LoadOptions(n_ctx=128, n_ubatch=n_ubatch, backend="webgpu", kv_type="f32")
    return await load_model(MODELS / name, options, devices=devices)


def cancel_at_submit(device, monkeypatch, n, cancel):
    """Cancel when so many more submits were made."""
    submit, left = device._submit, n

    def counting(*commands):
        nonlocal left
        submit(*commands)
        left -= 1
        if left == 0:
            cancel.cancel()

    monkeypatch.setattr(device, "_submit", counting)


async def tokens_of(model, prompt, cancel=None, n_predict=5):
    options = GenerateOptions(n_predict=n_predict, sampling=GREEDY, ignore_eos=True)
    return [piece.token async for piece in model.generate(prompt, options, cancel)]


@pytest.mark.parametrize("name", ["llama-tied-f32.gguf", "gemma3-f16.gguf", "lfm2-f32.gguf", "qwen35-f32.gguf"])
@pytest.mark.parametrize("at", [1, 20, 45])
def test_a_prompt_is_left_in_the_middle_of_a_batch_and_can_be_taken_up(device, monkeypatch, name, at):
    async def scenario():
        model = await loaded(device, name)
        expected = await tokens_of(model, PROMPT)
        model.forget()
        with monkeypatch.context() as slow:
            slow.setattr(device, "pacer", Stubborn(SLOW))
            cancel = CancelToken()
            cancel_at_submit(device, slow, at, cancel)
            before = device.counters.submits
            assert await tokens_of(model, PROMPT, cancel) == []
            assert model.last_usage.finish_reason == "cancelled"
            assert device.counters.submits - before <= at + 1
        assert model.n_past < len(PROMPT) and list(model.tokens) == PROMPT[:model.n_past]
        saved = await model.read_cache()
        assert len(saved) == model.saved_nbytes(model.n_past)
        assert await tokens_of(model, PROMPT) == expected
        await model.close()

    asyncio.run(scenario())


def test_a_token_on_a_slow_device_is_not_waited_for_either(device, monkeypatch):
    async def scenario():
        model = await loaded(device, "llama-tied-f32.gguf")
        expected = await tokens_of(model, PROMPT)
        cancel, pieces = CancelToken(), []
        options = GenerateOptions(n_predict=5, sampling=GREEDY, ignore_eos=True, n_probs=1)  # one token at a time
        with monkeypatch.context() as slow:
            async for piece in model.generate(PROMPT, options, cancel):
                pieces.append(piece.token)
                if len(pieces) == 2:
                    slow.setattr(device, "pacer", Stubborn(SLOW))
                    cancel_at_submit(device, slow, 3, cancel)
        assert pieces == expected[:2] and model.last_usage.finish_reason == "cancelled"
        assert await tokens_of(model, PROMPT) == expected
        await model.close()

    asyncio.run(scenario())


def test_logits_and_vectors_of_a_batch_that_is_left_raise(device, monkeypatch):
    async def scenario():
        model = await loaded(device, "llama-tied-f32.gguf")
        expected = await model.evaluate(PROMPT)
        with monkeypatch.context() as slow:
            slow.setattr(device, "pacer", Stubborn(SLOW))
            cancel = CancelToken()
            cancel_at_submit(device, slow, 10, cancel)
            with pytest.raises(Cancelled):
                await model.evaluate(PROMPT, cancel=cancel)
        np.testing.assert_array_equal(await model.evaluate(PROMPT), expected)
        await model.close()

    asyncio.run(scenario())
