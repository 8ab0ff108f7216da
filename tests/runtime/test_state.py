"""Saved contexts: what comes back is what was there, and nothing else is let in."""

import asyncio
import hashlib
from pathlib import Path

import pytest

from bridge.errors import BridgeError, ContextOverflow, FormatError, InputError
from bridge.gguf import open_gguf
from bridge.runtime import GenerateOptions, LoadOptions, Model, load_model
from bridge.runtime.state import CHECKSUM_NBYTES, HEADER, load_state, parse_state, save_state
from bridge.sampling import SamplingOptions
from tests.runtime.scripted import ByteTokenizer, ScriptedSession

MODELS = Path(__file__).parent.parent / "data" / "models"
LLAMA = MODELS / "llama-tied-f32.gguf"
GREEDY = SamplingOptions(temp=0.0, penalty=1.0)
PROMPT = [1, 5, 9, 33, 7, 2, 8]


def scripted(fingerprint=b"f" * 32, **session):
    opened = ScriptedSession(**session)
    return Model(opened, ByteTokenizer(), metadata={}, architecture="scripted", n_vocab=opened.n_vocab, n_ctx_train=0,
                 nbytes=0, fingerprint=fingerprint), opened


async def generate(model, prompt, n=4):
    options = GenerateOptions(n_predict=n, sampling=GREEDY, ignore_eos=True)
    return [piece.token async for piece in model.generate(prompt, options)]


def saved_after(prompt, tokens=None, **made):
    async def scenario():
        model, _ = scripted(**made)
        await generate(model, prompt)
        return await save_state(model, prompt if tokens is None else tokens)

    return asyncio.run(scenario())


def test_a_restored_prefix_is_not_evaluated_again():
    data = saved_after([2, 3, 4])

    async def scenario():
        model, session = scripted()
        assert await load_state(model, data) == [2, 3, 4]
        fresh, _ = scripted()
        assert await generate(model, [2, 3, 4, 5]) == await generate(fresh, [2, 3, 4, 5])
        assert session.calls[0] == ([5], 3, [0])
        assert model.last_usage.cached_prompt_tokens == 3

    asyncio.run(scenario())


@pytest.mark.parametrize(("recorded", "reused"), [([], 0), ([2, 3], 2), ([2, 9, 4], 1), ([2, 3, 4, 9, 9], 3)])
def test_recorded_tokens_come_back_as_they_are_but_only_those_evaluated_are_reused(recorded, reused):
    data = saved_after([2, 3, 4], recorded)

    async def scenario():
        model, _ = scripted()
        assert await load_state(model, data) == recorded
        await generate(model, [2, 3, 4, 5])
        assert model.last_usage.cached_prompt_tokens == reused

    asyncio.run(scenario())


def test_an_empty_context_can_be_saved():
    async def scenario():
        model, _ = scripted()
        data = await save_state(model)
        await generate(model, [2, 3])
        assert await load_state(model, data) == []
        assert model.n_past == 0

    asyncio.run(scenario())


def altered(data, at, value):
    return data[:at] + bytes([value]) + data[at + 1:]


def resealed(data):
    body = data[:-CHECKSUM_NBYTES]
    return body + hashlib.sha256(body).digest()


def test_every_cut_and_every_altered_byte_is_refused():
    data = saved_after([2, 3, 4])
    for length in range(len(data)):
        with pytest.raises(FormatError):
            parse_state(data[:length])
    for at in range(len(data)):
        with pytest.raises(FormatError):
            parse_state(altered(data, at, data[at] ^ 0x41))
    with pytest.raises(FormatError, match="cut off or longer"):
        parse_state(data + b"\0")
    with pytest.raises(FormatError, match="not a saved state"):
        parse_state(b"<!doctype html>")
    with pytest.raises(FormatError, match="version 1; this build reads version 2"):
        parse_state(altered(data, 8, 1))


def test_what_does_not_fit_the_loaded_model_leaves_its_context_alone():
    data = saved_after([2, 3, 4])
    long = saved_after([2] * 20)
    no_row = resealed(data[:-CHECKSUM_NBYTES - 4] + data[-CHECKSUM_NBYTES:])
    no_row = HEADER.pack(*HEADER.unpack_from(no_row)[:7], HEADER.unpack_from(no_row)[7] - 4) + no_row[HEADER.size:]
    foreign = bytearray(data)
    foreign[HEADER.size] = 99
    cases = [
        (saved_after([2, 3, 4], fingerprint=b"g" * 32), None, InputError, "another model"),
        (long, None, ContextOverflow, "23 positions, which exceeds the context size of 8"),
        (data, 2, ContextOverflow, "records 3 tokens, which exceeds the token capacity of 2"),
        (data, 9, InputError, "the token capacity is 9; it must be from 1 to the context size of 8"),
        (data, 0, InputError, "the token capacity is 0"),
        (resealed(no_row), None, FormatError, "cache bytes for 6 positions; the model needs 24"),
        (resealed(bytes(foreign)), None, FormatError, "outside the model's vocabulary of 16 tokens"),
        (resealed(data[:12] + b"f32\0\0\0\0\0" + data[20:]), None, InputError, "cache of type f32, the loaded model one of type f16"),
    ]

    async def scenario():
        model, session = scripted(n_ctx=8)
        await generate(model, [7, 7, 7], 1)
        before = list(session.content)
        for state, capacity, error, words in cases:
            with pytest.raises(error, match=words):
                await load_state(model, state, capacity)
            assert (session.content, list(model.tokens)) == (before, [7, 7, 7])
        await generate(model, [7, 7, 7, 2], 1)
        assert model.last_usage.cached_prompt_tokens == 3

    asyncio.run(scenario())


def test_recorded_tokens_must_be_integers():
    model, _ = scripted()
    with pytest.raises(InputError, match="must be 32-bit integers"):
        asyncio.run(save_state(model, [2**31]))


async def opened(backend, path=LLAMA, devices=None, **options):
    return await load_model(path, LoadOptions(n_ctx=64, backend=backend, **options), devices=devices)


@pytest.mark.parametrize(("saver", "loader"), [("reference", "reference"), ("webgpu", "webgpu"), ("webgpu", "reference"),
                                               ("reference", "webgpu")])
def test_a_real_model_goes_on_as_if_nothing_had_happened(saver, loader):
    from bridge.gpu.wgpu_device import request_device

    async def scenario():
        device = await request_device()

        async def devices():
            return device

        try:
            first = await opened(saver, devices=devices)
            await generate(first, PROMPT)
            data = await save_state(first, first.tokens)
            recorded = list(first.tokens)
            expected = await generate(first, [*recorded, 3, 4], 8)
            second = await opened(loader, devices=devices)
            assert await load_state(second, data) == recorded
            assert await second.read_cache() == parse_state(data).cache, "the cache comes back to the byte"
            assert await generate(second, [*recorded, 3, 4], 8) == expected
            assert second.last_usage.cached_prompt_tokens == len(recorded)
            for model in (first, second):
                await model.close()
        finally:
            device.destroy()

    asyncio.run(scenario())


def with_other_weights(path, name):
    """The file as another fine-tune of the same shape: the weights of one tensor are those of another training."""
    data = bytearray(path.read_bytes())
    with open_gguf(str(path)) as file:
        tensor = file.tensors[name]
    data[tensor.offset:tensor.offset + tensor.nbytes] = data[tensor.offset:tensor.offset + tensor.nbytes][::-1]
    return bytes(data)


def test_models_are_told_apart(tmp_path):
    other = tmp_path / "other.gguf"
    other.write_bytes(LLAMA.read_bytes().replace(b"llama-tied-f32", b"llama-tied-f33") + b"\0")
    tuned = tmp_path / "tuned.gguf"
    tuned.write_bytes(with_other_weights(LLAMA, "blk.1.attn_q.weight"))

    async def scenario():
        model = await opened("reference")
        await generate(model, PROMPT)
        data = await save_state(model)
        for path, options, words in [(other, {}, "another model"), (tuned, {}, "another model"), (MODELS / "qwen3-f16.gguf", {}, "another model"),
                                     (LLAMA, {"kv_type": "f32"}, "cache of type f16")]:
            with pytest.raises(BridgeError, match=words):
                await load_state(await opened("reference", path, **options), data)

    asyncio.run(scenario())
