"""Models whose state is only that of the last token: kept prefixes, saved contexts, cancellations and failures."""

import asyncio
import random
from array import array

import pytest

from bridge.errors import DeviceError, FormatError
from bridge.graph.states import StateCopies
from bridge.runtime import CancelToken, GenerateOptions, LoadOptions, Model, load_model
from bridge.runtime.state import load_state, parse_state, save_state
from bridge.sampling import SamplingOptions
from bridge.simd.wasmtime_host import WasmtimeHost
from tests.golden import MODELS
from tests.runtime.scripted import ByteTokenizer, ScriptedSession

GREEDY = SamplingOptions(temp=0.0, penalty=1.0)
RECURRENT, HYBRID = MODELS / "mamba-f16.gguf", MODELS / "lfm2-f32.gguf"
MORE = [MODELS / f"{name}.gguf" for name in ("rwkv7-f16", "mamba2-q8_0", "qwen35-q8_0")]
"""So that every operation's state is taken from one backend to another."""
PROMPT = [5, 9, 33, 7, 2, 8, 100, 41, 77]


async def opened(path, backend="reference", **parts):
    return await load_model(path, LoadOptions(n_ctx=64, n_ubatch=4, backend=backend), **parts)


async def generate(model, prompt, n=6, cancel=None):
    options = GenerateOptions(n_predict=n, sampling=GREEDY, ignore_eos=True)
    return [piece.token async for piece in model.generate(prompt, options, cancel)]


async def fresh(path, prompt, n=6):
    """What a model that has seen nothing else continues the prompt with."""
    return await generate(await opened(path), prompt, n)


@pytest.mark.parametrize("path", [RECURRENT, HYBRID], ids=lambda path: path.stem)
def test_a_prompt_goes_on_from_what_it_shares_with_the_last_and_no_later(path):
    async def scenario():
        model = await opened(path)
        said = await generate(model, PROMPT)
        asked = [*PROMPT, *said[:3]]
        for prompt, kept in [
            (PROMPT, len(PROMPT) - 1),  # again
            (asked, len(PROMPT) - 1),  # what was generated is no beginning, but what was asked is
            ([*asked, 50, 60], len(asked) - 1),
            ([*asked, 50, 70], len(asked) + 1),
            ([*PROMPT, 1], 0),  # the states before are gone
            ([*PROMPT, 1, 2], len(PROMPT)),
            ([*PROMPT[:4], 1], 0),
            ([5], 0),
        ]:
            assert await generate(model, prompt) == await fresh(path, prompt)
            assert model.last_usage.cached_prompt_tokens == kept, prompt

    asyncio.run(scenario())


def test_prompts_that_share_a_long_beginning_go_on_from_there():
    async def scenario():
        model, found = await opened(RECURRENT), []
        for question in ([1, 2], [3, 4], [5, 6], [7, 8, 9], [7, 8, 9, 10]):
            prompt = [*PROMPT, *question]
            assert await generate(model, prompt) == await fresh(RECURRENT, prompt)
            found.append(model.last_usage.cached_prompt_tokens)
        shared = len(PROMPT)
        assert found == [0, 0, shared, shared, shared]
        await generate(model, [*PROMPT, 7, 8, 9, 10, 11])
        assert model.last_usage.cached_prompt_tokens == shared + 3, "a prompt that was continued is kept to its end"

    asyncio.run(scenario())


@pytest.mark.parametrize("path", [RECURRENT, HYBRID], ids=lambda path: path.stem)
def test_cancellation_keeps_what_was_evaluated(path):
    async def scenario():
        model, cancel = await opened(path), CancelToken()
        run = model._session.evaluate

        async def cancelling(*args):
            cancel.cancel()
            return await run(*args)

        model._session.evaluate = cancelling
        assert await generate(model, PROMPT, cancel=cancel) == []
        model._session.evaluate = run
        assert model.n_past == 4, "one batch"
        assert await generate(model, PROMPT) == await fresh(path, PROMPT)
        assert model.last_usage.cached_prompt_tokens == 4

    asyncio.run(scenario())


def test_a_failure_forgets_the_state():
    async def scenario():
        model = await opened(RECURRENT)
        await generate(model, PROMPT)
        run = model._session.evaluate

        async def failing(*args):
            await run(*args)
            raise DeviceError("the device was lost")

        model._session.evaluate = failing
        with pytest.raises(DeviceError):
            await generate(model, [*PROMPT, 3])
        model._session.evaluate = run
        assert await generate(model, [*PROMPT, 3]) == await fresh(RECURRENT, [*PROMPT, 3])
        assert model.last_usage.cached_prompt_tokens == 0

    asyncio.run(scenario())


class Follower(ScriptedSession):
    """Its state is the tokens it has followed; the next token depends on their order."""

    def __init__(self):
        super().__init__(n_ctx=64)
        self.states, self.copies, self.n_evaluated = StateCopies(is_recurrent=True), [["stale"], ["stale"]], 0

    async def evaluate(self, tokens, start, outputs, selection=None):
        read, write = self.states.begin(start)
        self.copies[write] = (self.copies[read] if start else []) + list(tokens)
        self.n_evaluated += len(tokens)
        if self.fail and self.fail.pop(0):
            raise DeviceError("lost")
        self.states.end(write, start + len(tokens))
        logits = [float(i == self.next_token(self.copies[write])) for i in range(self.n_vocab)]
        return array("f", logits) if len(outputs) else None

    @staticmethod
    def next_token(tokens):
        return sum((i + 2) * token for i, token in enumerate(tokens)) % 16


@pytest.mark.parametrize("seed", range(8))
def test_any_order_of_prompts_cancellations_and_failures_gives_the_right_continuations(seed):
    rng, session = random.Random(seed), Follower()
    model = Model(session, ByteTokenizer(), metadata={}, architecture="scripted", n_vocab=16, n_ctx_train=0, nbytes=0)

    async def scenario():
        prompt, n_asked = [1], 0
        for _ in range(150):
            more = [rng.randint(2, 9) for _ in range(rng.randint(1, 9))]
            prompt = [*prompt[:rng.randint(0, len(prompt))], *more][:40]
            n_asked += len(prompt)
            cancel = CancelToken()
            session.fail = [rng.random() < 0.02 for _ in range(12)]
            stop_after = rng.randint(0, 30) if rng.random() < 0.2 else 99
            options, said = GenerateOptions(n_predict=4, sampling=GREEDY, ignore_eos=True), []

            def prefilled(done, total, cancel=cancel, stop_after=stop_after):
                if done > stop_after:
                    cancel.cancel()

            try:
                said = [piece.token async for piece in model.generate(prompt, options, cancel, prefilled)]
            except DeviceError:
                continue
            expected = list(prompt)
            for token in said:
                assert token == session.next_token(expected)
                expected.append(token)
            assert cancel.cancelled or len(said) == 4
        assert session.n_evaluated < n_asked + 150 * 4

    asyncio.run(scenario())


@pytest.fixture(scope="module")
def machines():
    from bridge.gpu.wgpu_device import request_device

    device, host = asyncio.run(request_device()), WasmtimeHost(2)

    async def devices():
        return device

    async def cpus():
        return host

    yield {"devices": devices, "cpus": cpus}
    device.destroy()
    host.close()


@pytest.mark.parametrize(("saver", "loader"), [("reference", "webgpu"), ("webgpu", "simd"), ("simd", "reference")])
@pytest.mark.parametrize("path", [RECURRENT, HYBRID, *MORE], ids=lambda path: path.stem)
def test_a_saved_context_goes_on_on_any_backend(machines, path, saver, loader):
    async def scenario():
        first = await opened(path, saver, **machines)
        await generate(first, PROMPT)
        recorded = list(first.tokens)
        data = await save_state(first, recorded)
        expected = await generate(first, [*recorded, 3, 4])
        assert expected == await fresh(path, [*recorded, 3, 4])
        second = await opened(path, loader, **machines)
        await generate(second, [1, 2, 3])
        assert await load_state(second, data) == recorded
        assert await second.read_cache() == parse_state(data).cache, "it comes back to the byte"
        assert await generate(second, [*recorded, 3, 4]) == expected
        assert second.last_usage.cached_prompt_tokens == len(recorded)
        await load_state(second, data)
        assert await generate(second, PROMPT[:5]) == await fresh(path, PROMPT[:5])
        assert second.last_usage.cached_prompt_tokens == 0, "only the whole saved context can be gone on from"
        for model in (first, second):
            await model.close()

    asyncio.run(scenario())


def test_a_saved_context_without_its_recurrent_state_is_refused():
    async def scenario():
        model = await opened(RECURRENT)
        await generate(model, PROMPT)
        read = model._session.read_kv

        async def cut(n_tokens):
            return (await read(n_tokens))[:-4]

        model._session.read_kv = cut
        with pytest.raises(FormatError, match=f"the model needs {model.state_nbytes}"):
            await load_state(model, await save_state(model))

    asyncio.run(scenario())
