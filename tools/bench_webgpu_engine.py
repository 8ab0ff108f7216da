"""Runs inside Pyodide, in the page of tools/bench_webgpu.py: loads a model on the page's WebGPU and measures it."""

import json
import time

import bridge_js
from bridge.bench.measure import BenchOptions, measure
from bridge.gpu.js_device import request_device
from bridge.host.sources import open_page_source
from bridge.runtime import CancelToken, LoadOptions, load_model
from bridge.runtime.sources import AsyncSource
from bridge.synth import PREFIX, open_synth


async def bench(text: str) -> str:
    """The figures of bridge.bench.measure, as JSON.

    ``text``: JSON with "model" (an address, or a synthetic model's name), "load" (of LoadOptions) and "bench" (of
    BenchOptions).
    """
    asked = json.loads(text)
    device = await request_device(bridge_js.gpu_device)

    async def devices():
        return device

    started = time.perf_counter()
    source = await source_of(asked["model"])
    try:
        model = await load_model(source, LoadOptions(backend="webgpu", **asked["load"]), devices=devices)
        load_ms = (time.perf_counter() - started) * 1000
        try:
            options = BenchOptions(**{**asked["bench"], "prompts": tuple(asked["bench"]["prompts"])})
            return json.dumps(await measure(model, load_ms, options, device, bridge_js.report))
        finally:
            await model.close()
    finally:
        source.close()
        device.destroy()


async def source_of(name: str):
    if name.startswith(PREFIX):
        return AsyncSource(open_synth(name))
    return await open_page_source(bridge_js.model_files, [name], {"useCache": False}, CancelToken())
