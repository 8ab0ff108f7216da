"""Under CPython: adapters that have no more than WebGPU promises, that tell little of themselves, or give no device."""

import asyncio

import pytest
import wgpu

from bridge.errors import DeviceError, InputError
from bridge.gpu.device import F16, SUBGROUPS, AdapterInfo, Limits
from bridge.gpu.tuning import SOFTWARE, BroadcastShape, tuning_for
from bridge.gpu.wgpu_device import _subgroup_min_size, request_device
from bridge.runtime import LoadOptions, load_model
from tests.golden import MODELS, golden
from tests.gpu import test_goldens
from tests.gpu.conftest import ROW_KERNELS

CORE = {name.replace("_", "-"): value for name, value in Limits().__dict__.items()}


class Adapter:
    """An adapter of this machine that has only what ``limits`` say and tells only ``info``; ``refuses`` what is asked."""

    def __init__(self, *, limits=CORE, info=None, refuses=lambda limits, features: None):
        self._adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
        self.limits, self.features, self.refuses = limits, set(), refuses
        self.info = self._adapter.info if info is None else info

    def request_device_sync(self, *, required_limits=None, required_features=()):
        self.refuses(required_limits, required_features)
        device = self._adapter.request_device_sync(required_limits={**CORE, **(required_limits or {})})
        assert all(device.limits[name] == CORE[name] for name in CORE if name.startswith("max-compute"))
        return device


@pytest.fixture
def only_adapter(monkeypatch):
    def use(adapter):
        monkeypatch.setattr(wgpu.gpu, "request_adapter_sync", lambda **options: adapter)
        return adapter

    return use


@pytest.mark.parametrize("tuning", [SOFTWARE, ROW_KERNELS], ids=["software", "hardware"])
@pytest.mark.parametrize("name", ["gemma3-f16", "quant-llama-Q4_K_M", "qwen3moe-q8_0", "mamba2-q8_0"])
def test_core_webgpu_suffices(name, tuning, only_adapter, monkeypatch):
    """8 storage buffers, 16 KiB for a workgroup of 256, bindings of 128 MiB, neither halves nor subgroups."""
    only_adapter(Adapter())
    test_goldens._with_tuning(monkeypatch, tuning)
    asyncio.run(test_goldens._check(golden(name)))


def test_a_device_has_what_the_adapter_grants(only_adapter):
    only_adapter(Adapter())
    device = asyncio.run(request_device())
    assert device.limits == Limits()
    assert not {F16, SUBGROUPS} & set(device.info.features) and device.info.subgroup_min_size == 0
    device.destroy()


def test_an_adapter_without_info_and_with_few_limits_has_a_device(only_adapter):
    only_adapter(Adapter(info={}, limits={"max-buffer-size": 256 << 20}))
    device = asyncio.run(request_device())
    assert (device.info.vendor, device.info.is_software) == ("", False)
    assert device.limits == Limits()
    device.destroy()


def test_small_bindings_split_weights_and_bound_the_context(only_adapter):
    """A device as small as no browser's: 64 KiB bindings."""
    small = 64 << 10
    only_adapter(Adapter(limits={**CORE, "max-storage-buffer-binding-size": small}))

    async def scenario():
        device = await request_device()
        assert device.limits.max_storage_buffer_binding_size == small

        async def devices():
            return device

        path = MODELS / "llama-tied-f32.gguf"
        model = await load_model(path, LoadOptions(n_ctx=64, backend="webgpu"), devices=devices)
        split = model._session._placement.matrices["token_embd.weight"]
        assert len(split.parts) > 1
        assert len(await model.evaluate([1, 2, 3])) == 1
        await model.close()
        with pytest.raises(InputError, match=rf"takes \d+ bytes in one cache buffer; this device allows {small}, which is"):
            await load_model(path, LoadOptions(n_ctx=1 << 15, backend="webgpu"), devices=devices)
        assert device.counters.buffers == 0
        device.destroy()

    asyncio.run(scenario())


def test_no_adapter_is_an_error_with_its_reason(monkeypatch):
    def none(**options):
        raise RuntimeError("Request adapter failed (Unavailable)\nno backends")

    monkeypatch.setattr(wgpu.gpu, "request_adapter_sync", none)
    with pytest.raises(DeviceError, match=r"^no WebGPU adapter was found: Request adapter failed \(Unavailable\)$"):
        asyncio.run(request_device())


def test_an_adapter_that_gives_no_device_is_an_error_with_its_reason(only_adapter):
    def refuses(limits, features):
        raise RuntimeError("out of handles")

    only_adapter(Adapter(refuses=refuses))
    with (pytest.warns(UserWarning, match="was refused"),
          pytest.raises(DeviceError, match="^the WebGPU adapter gave no device: out of handles$")):
        asyncio.run(request_device())


def test_limits_that_are_told_but_not_granted_are_done_without(only_adapter):
    def refuses(limits, features):
        if limits:
            raise RuntimeError("Validation Error\n\nCaused by:\n  Limit 'max_buffer_size' value 1 is better than allowed 0")

    only_adapter(Adapter(refuses=refuses))
    with pytest.warns(UserWarning, match=r"\(Limit 'max_buffer_size' value 1 is better than allowed 0\); trying without"):
        device = asyncio.run(request_device())
    assert device.limits == Limits()
    assert device.notes == ("webgpu_limits_refused:using_defaults",)
    device.destroy()


@pytest.mark.parametrize("info, lanes", [
    ({"device": "llvmpipe (LLVM 15.0.6, 256 bits)", "stackgroup_min_size": 4}, 8),
    ({"device": "llvmpipe (LLVM 19.1.0, 128 bits)", "stackgroup_min_size": 4}, 4),
    ({"device": "SwiftShader Device (Subzero)", "subgroup_min_size": 4}, 4),
    ({"device": "Some GPU"}, 0),
])
def test_how_many_invocations_a_subgroup_has_at_least(info, lanes):
    assert _subgroup_min_size(info) == lanes


@pytest.mark.parametrize("features, least, lanes", [((SUBGROUPS,), 8, 8), ((SUBGROUPS,), 16, 8), ((SUBGROUPS,), 4, 4),
                                                    ((SUBGROUPS,), 1, None), ((), 8, None)])
def test_software_adapters_broadcast_among_as_many_as_there_are(features, least, lanes):
    info = AdapterInfo(is_software=True, features=features, subgroup_min_size=least)
    found = {getattr(shape, "lanes", None) for shape in tuning_for(info).matmul if isinstance(shape, BroadcastShape)}
    assert found == ({lanes} if lanes else set())
