"""All architectures and block formats by the CPU kernels: llama.cpp's logits and continuations."""

import asyncio

import pytest

from bridge.runtime import GenerateOptions, LoadOptions, load_model
from bridge.sampling import SamplingOptions
from tests.golden import (
    golden, golden_names, has_experts, model_path, same_continuation, telling_prompts, tolerance, worst_difference,
)

GREEDY = SamplingOptions(temp=0.0, penalty=1.0)


async def _check(host, case, precision, most, continuations):
    async def cpus():
        return host

    options = LoadOptions(n_ctx=case["n_ctx"], backend="simd", kv_type="f32", precision=precision)
    model = await load_model(str(model_path(case)), options, cpus=cpus)
    try:
        for prompt in telling_prompts(case):
            expected = prompt["expected"]
            logits = await model.evaluate(prompt["tokens"], outputs="all")
            assert worst_difference(logits, expected) <= most, prompt["name"]
            if continuations:
                options = GenerateOptions(n_predict=len(expected["greedy"]), sampling=GREEDY, ignore_eos=True)
                tokens = [piece.token async for piece in model.generate(prompt["tokens"], options)]
                assert same_continuation(tokens, expected), prompt["name"]
    finally:
        await model.close()


@pytest.mark.parametrize("name", golden_names())
def test_exact_arithmetic_equals_llama_cpps_in_float32(host, name):
    case = golden(name)
    asyncio.run(_check(host, case, "exact", tolerance(case), continuations=True))


@pytest.mark.parametrize("name", [name for name in golden_names() if not has_experts(name)])
def test_rounding_activations_costs_no_more_than_it_costs_llama_cpp(host, name):
    """As far from exact arithmetic as llama.cpp's own rounding is, with the margin the goldens have for that."""
    case = golden(name)
    asyncio.run(_check(host, case, "fast", case["tolerance"]["logits"]["llama_cpp_atol"], continuations=False))
