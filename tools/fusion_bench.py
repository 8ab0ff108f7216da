"""What fusion is worth on a WebGPU adapter: one model under several lists of rules, taken in turn within one run.

    python -m tools.fusion_bench MODEL                            llvmpipe (or whatever adapter wgpu finds)
    VK_ICD_FILENAMES=…/vk_swiftshader_icd.json python -m tools.fusion_bench MODEL      SwiftShader, which Chromium ships
    options: --rules residuals,software,hardware --prompt-tokens 32 -n 6 --repeat 4

``residuals`` only adds to products, ``software`` and ``hardware`` are what bridge.gpu.tuning gives such adapters;
kernels are those of the adapter in all of them. Times are medians in milliseconds after a first round that does not
count: elapsed, and in processor time, which a busy machine does not stretch (on software adapters that is the work).
Prints JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bridge.gguf import open_gguf
from bridge.gpu.session import GpuSession
from bridge.gpu.tuning import HARDWARE, SOFTWARE, tuning_for
from bridge.models import build_graph
from bridge.plan import lower
from bridge.plan.fusion import add_residual
from bridge.runtime.cancel import CancelToken
from bridge.runtime.sources import AsyncSource

RULES = {"residuals": (add_residual,), "software": SOFTWARE.rules, "hardware": HARDWARE.rules}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("--rules", default=",".join(RULES), help="comma-separated (default: %(default)s)")
    parser.add_argument("--prompt-tokens", type=int, default=32, help="in one batch (default: %(default)s)")
    parser.add_argument("-n", "--n-predict", type=int, default=6, help="single tokens after it (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=4, help="rounds (default: %(default)s)")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.rules.split(",") if name not in RULES]
    if unknown:
        parser.error(f"--rules names {unknown[0]!r}; there are {', '.join(RULES)}")
    print(json.dumps(asyncio.run(measure(options)), indent=1))
    return 0


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    from bridge.gpu.wgpu_device import request_device

    device = await request_device()
    sessions = {name: await _open(device, options, name) for name in options.rules.split(",")}
    times: dict[str, dict[str, list[tuple[float, float]]]] = {name: {"prompt": [], "token": []} for name in sessions}
    try:
        for _ in range(1 + options.repeat):
            for name, session in sessions.items():
                await _round(session, options, times[name])
        return {"adapter": device.info.description or device.info.device, "prompt_tokens": options.prompt_tokens,
                **{name: _summary(session, options, times[name]) for name, session in sessions.items()}}
    finally:
        for session in sessions.values():
            await session.close()
        device.destroy()


async def _open(device: Any, options: argparse.Namespace, name: str) -> GpuSession:
    n_tokens = options.prompt_tokens
    with open_gguf(options.model) as file:
        graph = build_graph(file.metadata, file.tensors, n_tokens + options.n_predict)
        session = await GpuSession.create(device, lower(graph, RULES[name]), n_ctx=n_tokens + options.n_predict,
                                          n_ubatch=n_tokens, tuning=replace(tuning_for(device.info), rules=RULES[name]))
        await session.load_weights(AsyncSource(file.source), file.tensors, lambda loaded, total: None, CancelToken())
    return session


async def _round(session: GpuSession, options: argparse.Namespace, times: dict[str, list[tuple[float, float]]]) -> None:
    n_tokens = options.prompt_tokens
    batches: list[tuple[str, Sequence[int], int]] = [("prompt", range(1, n_tokens + 1), 0)]
    batches += [("token", [1 + i], n_tokens + i) for i in range(options.n_predict)]
    for kind, tokens, start in batches:
        begin = time.perf_counter(), time.process_time()
        await session.evaluate(tokens, start, [len(tokens) - 1])
        times[kind].append((time.perf_counter() - begin[0], time.process_time() - begin[1]))


def _summary(session: GpuSession, options: argparse.Namespace,
             times: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    found: dict[str, Any] = {"dispatches_per_token": session.programs.n_dispatches}
    for kind, first in (("prompt", 1), ("token", options.n_predict)):
        for i, clock in enumerate(("ms", "cpu_ms")):
            found[f"{kind}_{clock}"] = round(1e3 * statistics.median(pair[i] for pair in times[kind][first:]), 1)
    return found


if __name__ == "__main__":
    sys.exit(main())
