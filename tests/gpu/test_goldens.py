"""All architectures and block formats on WebGPU (a software adapter will do): llama.cpp's logits and continuations."""

import asyncio

import pytest

from bridge.gpu.tuning import HARDWARE, with_bytes, with_products, with_subgroups
from bridge.gpu.wgpu_device import request_device
from bridge.runtime import GenerateOptions, LoadOptions, load_model
from bridge.sampling import SamplingOptions
from tests.golden import (
    golden, golden_names, last_difference, model_path, real_case, real_model, same_continuation, telling_prompts, tolerance,
    worst_difference,
)

GREEDY = SamplingOptions(temp=0.0, penalty=1.0)


async def _check(case, reference="f32_reference", **options):
    device = await request_device()

    async def devices():
        return device

    options = LoadOptions(n_ctx=case["n_ctx"], backend="webgpu", kv_type="f32", **options)
    model = await load_model(str(model_path(case)), options, devices=devices)
    try:
        for prompt in telling_prompts(case):
            expected = prompt["expected"]
            logits = await model.evaluate(prompt["tokens"], outputs="all")
            assert worst_difference(logits, expected) <= tolerance(case, reference), prompt["name"]
            in_one_batch = await model.evaluate(prompt["tokens"])
            assert last_difference(in_one_batch[0], expected) <= tolerance(case, reference), prompt["name"]
            if reference != "f32_reference":
                continue
            options = GenerateOptions(n_predict=len(expected["greedy"]), sampling=GREEDY, ignore_eos=True)
            tokens = [piece.token async for piece in model.generate(prompt["tokens"], options)]
            assert same_continuation(tokens, expected), prompt["name"]
    finally:
        await model.close()
        device.destroy()


@pytest.mark.parametrize("name", golden_names())
def test_webgpu_equals_llama_cpp(name):
    asyncio.run(_check(golden(name)))


def _with_tuning(monkeypatch, tuning):
    for module in ("bridge.gpu.tuning", "bridge.gpu.session"):
        monkeypatch.setattr(f"{module}.tuning_for", lambda info, **options: tuning)


@pytest.mark.parametrize("name, tuning", [
    ("gemma3-f16", HARDWARE), ("qwen3-f16", with_subgroups(HARDWARE)), ("phi3-q8_0", HARDWARE),
    ("quant-llama-Q4_K_M", with_subgroups(HARDWARE)),
])
def test_what_hardware_adapters_fuse_changes_nothing(name, tuning, monkeypatch):
    """Their kernels, too: other tiles, norms inside products, and subgroups."""
    _with_tuning(monkeypatch, tuning)
    asyncio.run(_check(golden(name), n_ubatch=64))


@pytest.mark.parametrize("name, tuning", [
    ("gemma3-f16", with_products(HARDWARE, "f16")), ("quant-llama-Q4_K_M", with_products(HARDWARE, "f16")),
    ("quant-llama-Q4_K_M", with_products(HARDWARE, "int8")),
    ("phi3-q8_0", with_bytes(with_products(with_subgroups(HARDWARE), "int8"))),
])
def test_products_in_narrower_types_are_within_llama_cpps_own_rounding(name, tuning, monkeypatch):
    _with_tuning(monkeypatch, tuning)
    asyncio.run(_check(golden(name), "llama_cpp", n_ubatch=64))


async def _real_continuation(name, n_predict):
    case, device = real_case(name), await request_device()

    async def devices():
        return device

    model = await load_model(str(real_model(name)), LoadOptions(n_ctx=64, backend="webgpu", kv_type="f32"),
                             devices=devices)
    prompt = case["prompts"][0]
    try:
        options = GenerateOptions(n_predict=n_predict, sampling=GREEDY)
        return [piece.token async for piece in model.generate(prompt["tokens"], options)], prompt["expected"]
    finally:
        await model.close()
        device.destroy()


def test_a_real_model_gives_llama_cpps_continuation():
    tokens, expected = asyncio.run(_real_continuation("smollm2", 12))
    assert tokens == expected["greedy"][:12]
