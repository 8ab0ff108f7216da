"""Two real models by the CPU kernels: llama.cpp's logits and greedy continuations."""

import asyncio

import numpy as np
import pytest

from bridge.runtime import GenerateOptions, LoadOptions, load_model
from bridge.sampling import SamplingOptions
from tests.golden import REAL_MODELS as MODELS, real_case, real_model

GREEDY = SamplingOptions(temp=0.0, penalty=1.0)


async def _run(host, name, n_predict, **options):
    async def cpus():
        return host

    case = real_case(name)
    options = LoadOptions(n_ctx=case["n_ctx"], backend="simd", **options)
    model = await load_model(str(real_model(name)), options, cpus=cpus)
    try:
        results = []
        for i, prompt in enumerate(case["prompts"]):
            logits = np.array(await model.evaluate(prompt["tokens"]))[0]
            count = min(n_predict if i == 0 else n_predict // 4, prompt["expected"]["greedy_safe_steps"])
            options = GenerateOptions(n_predict=count, sampling=GREEDY, ignore_eos=True)
            tokens = [piece.token async for piece in model.generate(prompt["tokens"], options)]
            results.append((prompt["expected"], logits, tokens))
        return case, results
    finally:
        await model.close()


def _worst(expected, logits):
    return max(abs(float(logits[token]) - value) for token, value in expected["top50"])


@pytest.mark.parametrize("name", MODELS)
def test_a_real_model_equals_llama_cpp(hosts, name):
    case, results = asyncio.run(_run(hosts("relaxed"), name, 32, kv_type="f32"))
    for expected, logits, tokens in results:
        assert _worst(expected, logits) <= case["tolerance"]["f32_reference_atol"]
        assert int(np.argmax(logits)) == expected["top50"][0][0]
        assert tokens == expected["greedy"][:len(tokens)] and len(tokens) >= 8


@pytest.mark.parametrize("name", MODELS)
def test_a_real_model_with_rounding_is_as_close_as_llama_cpp(hosts, name):
    """What pages get: activations rounded to bytes and a half precision cache."""
    case, results = asyncio.run(_run(hosts("relaxed"), name, 4, kv_type="f16"))
    for expected, logits, _ in results:
        assert _worst(expected, logits) <= case["tolerance"]["llama_cpp_atol"]
        assert int(np.argmax(logits)) in [token for token, _ in expected["top50"][:2]]
