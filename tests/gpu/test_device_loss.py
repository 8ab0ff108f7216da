"""Under CPython: devices that are lost while they work, memory that is not there, and what works afterwards."""

import asyncio

import pytest

from bridge.errors import DeviceError
from bridge.gpu.owner import DeviceOwner
from bridge.gpu.wgpu_device import request_device
from bridge.runtime import GenerateOptions, LoadOptions, load_model
from bridge.sampling import SamplingOptions
from tests.golden import MODELS
from tests.gpu.harness import open_session
from tests.gpu.test_session import tiny_model

LOST = "the device was lost: its driver reset it or it was removed"
LLAMA, QWEN = MODELS / "llama-tied-f32.gguf", MODELS / "qwen3-f16.gguf"
OPTIONS = LoadOptions(n_ctx=64, backend="webgpu")


def lose(device):
    """As a driver does: behind our back."""
    device._device.destroy()


@pytest.fixture
def devices():
    owner = DeviceOwner(request_device)
    yield owner
    owner.drop()


async def text_of(model, n_predict=6):
    options = GenerateOptions(n_predict=n_predict, sampling=SamplingOptions(temp=0.0, penalty=1.0), ignore_eos=True)
    return [piece.token async for piece in model.generate([1, 2, 3], options)]


def test_a_loss_in_a_generation_is_told_and_the_next_load_has_another_device(devices):
    async def scenario():
        model = await load_model(LLAMA, OPTIONS, devices=devices)
        expected = await text_of(model)
        first, pieces = devices.device, []
        with pytest.raises(DeviceError, match=LOST):
            async for piece in model.generate([1, 2, 3], GenerateOptions(n_predict=9, ignore_eos=True)):
                pieces.append(piece)
                if len(pieces) == 3:
                    lose(first)
        assert len(pieces) in (3, 4) and model.n_past == 0, "the fourth token may have come with the third"
        with pytest.raises(DeviceError, match=LOST):
            await text_of(model)
        await model.close()
        assert first.counters.buffers == 0
        again = await load_model(LLAMA, OPTIONS, devices=devices)
        assert devices.device is not first
        assert await text_of(again) == expected
        await again.close()

    asyncio.run(scenario())


def test_a_loss_that_nobody_noticed_costs_the_next_load_nothing(devices):
    async def scenario():
        model = await load_model(LLAMA, OPTIONS, devices=devices)
        lost = devices.device
        lose(lost)
        await model.close()
        other = await load_model(QWEN, OPTIONS, devices=devices)
        assert devices.device is not lost and len(await text_of(other)) == 6
        same = devices.device
        await other.close()
        assert await devices() is same, "a device that works is kept"

    asyncio.run(scenario())


@pytest.mark.parametrize("method", ["create_buffer", "create_bind_group", "create_pipeline", "upload", "run", "check"])
def test_a_loss_at_any_point_of_a_load_frees_everything(devices, monkeypatch, method):
    async def scenario():
        device = await devices()
        real, calls = getattr(device, method), 0

        def losing(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == 2 or method in ("upload", "run", "check"):
                lose(device)
            return real(*args, **kwargs)

        monkeypatch.setattr(device, method, losing)
        with pytest.raises(DeviceError, match=LOST):
            await load_model(LLAMA, OPTIONS, devices=devices)
        assert calls and device.counters.buffers == device.counters.buffer_bytes == 0
        model = await load_model(LLAMA, OPTIONS, devices=devices)
        await model.close()

    asyncio.run(scenario())


def test_a_device_lost_at_rest_fails_everything_else_in_words(devices):
    graph, tensors = tiny_model()

    async def scenario():
        device = await devices()
        session = await open_session(device, graph, tensors)
        lose(device)
        assert device.lost == LOST.removeprefix("the device was lost: ")
        for call in (session.evaluate([1], 0, [0]), session.evaluate([1], 0, []), session.read_kv(1),
                     session.write_kv(bytes(session.cache.saved_nbytes(1)), 1), device.check()):
            with pytest.raises(DeviceError, match=LOST):
                await call
        await session.close()

    asyncio.run(scenario())


class Small:
    """Makes buffers of a device fail as drivers do, beyond so many bytes in all."""

    def __init__(self, device, nbytes):
        self.device, self.nbytes, self.real = device, nbytes, device._device.create_buffer

    def __call__(self, *, size, usage, label=""):
        if self.device.counters.buffer_bytes + size > self.nbytes:
            import wgpu

            raise wgpu.GPUOutOfMemoryError("Out of Memory\n\nCaused by:\n  In wgpuDeviceCreateBuffer\n    Not enough memory left.")
        return self.real(size=size, usage=usage, label=label)


def test_memory_that_is_not_there_is_told_with_the_numbers_and_a_smaller_load_works(devices, monkeypatch):
    async def scenario():
        device = await devices()
        model = await load_model(LLAMA, OPTIONS, devices=devices)
        enough = device.counters.buffer_bytes + 200_000  # for the self-test
        await model.close()
        monkeypatch.setattr(device._device, "create_buffer", Small(device, enough))
        read = []
        wanted = LoadOptions(n_ctx=8192, backend="webgpu")
        with pytest.raises(DeviceError) as caught:
            await load_model(LLAMA, wanted, devices=devices, progress=lambda *event: read.append(event))
        words = str(caught.value)
        assert words.startswith("the model and its context take ") and words.endswith(": Not enough memory left.")
        assert "bytes in buffers on the device, which could not all be made: creating the buffer" in words
        assert "cache" in words and "bytes in buffers before it" in words
        assert not read, "the download began"
        assert device.counters.buffers == 0
        smaller = await load_model(LLAMA, OPTIONS, devices=devices)
        assert devices.device is device and len(await text_of(smaller)) == 6
        await smaller.close()

    asyncio.run(scenario())
