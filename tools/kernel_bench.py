"""Speed of single kernels: GFLOP/s of matmul for each block format, microseconds of the others.

    python -m tools.kernel_bench                                  llvmpipe (or whatever adapter wgpu finds)
    VK_ICD_FILENAMES=…/vk_swiftshader_icd.json python -m tools.kernel_bench      SwiftShader, which Chromium ships
    python -m tools.kernel_bench --chromium                       the browser's own shader compiler, on SwiftShader
    python -m tools.kernel_bench --variants --copies 8 --n-in 2048 --n-out 8192 --tokens 1,512      which tile is best
    options: --formats Q4_1,Q8_0 --n-in 576 --n-out 1536 --tokens 1,64 --kernels hardware --positions 512 --json

For kernels as they are written, without a model; those of a model, with its weights and beside the device's own speed,
are measured by ``python -m bridge bench MODEL --backend webgpu``. With ``--cpu`` a software adapter's work is measured in
processor time, which a busy machine does not stretch (GFLOP per second of one core). Defaults are the shapes of
SmolLM2-135M.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from bridge.bench.program_timer import Deadline, ProgramTimer
from bridge.gpu.autotune import other_lanes, other_tiles
from bridge.gpu.calls import Call, CallBuilder, Operand, quads
from bridge.gpu.device import F16, PACKED_DOT, SUBGROUPS, AdapterInfo, Dispatch
from bridge.gpu.formats import FORMATS, grid_bytes
from bridge.gpu.steps import calls_of
from bridge.gpu.tuning import HARDWARE, SOFTWARE, Tuning, tuning_for, with_products, with_staging, with_subgroups
from bridge.gpu.weights import LOAD, place_weights
from bridge.gpu.wgsl import kernel_source
from bridge.graph.cache import CacheLayout
from bridge.graph.graph import TOKENS, KvLayer, Weight
from bridge.graph.rope import RopeTable
from bridge.plan import BatchLayout, Plan, Step
from bridge.quants.random import random_blocks

N_HEAD, N_HEAD_KV, HEAD_DIM = 9, 3, 64
COMMON = "F16,Q4_0,Q4_1,Q5_0,Q8_0,Q2_K,Q3_K,Q4_K,Q5_K,Q6_K,IQ4_NL,IQ4_XS"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chromium", action="store_true", help="measure in a headless Chromium")
    parser.add_argument("--formats", default=COMMON, help="comma-separated, or 'all'")
    parser.add_argument("--n-in", type=int, default=576)
    parser.add_argument("--n-out", type=int, default=1536)
    parser.add_argument("--tokens", default="1,64")
    parser.add_argument("--positions", type=int, default=512, help="length of the cache that attention reads")
    parser.add_argument("--kernels", choices=("software", "hardware"), help="default: what the adapter gets")
    parser.add_argument("--variants", action="store_true",
                        help="products only, with each tile and type that the search at load chooses from")
    parser.add_argument("--copies", type=int, default=1, metavar="N",
                        help="of the weights, taken in turn, so that no cache keeps them (default: %(default)s)")
    parser.add_argument("--seconds", type=float, help="begin nothing new after so long")
    parser.add_argument("--cpu", action="store_true", help="processor time instead of elapsed time (not with --chromium)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    rows = run(options)
    if options.json:
        print(json.dumps(rows, indent=1))
    return 0


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    with _device(options.chromium) as device:
        if not options.json:
            print(" ".join(filter(None, (device.info.vendor, device.info.architecture, device.info.device))))
        return asyncio.run(_Bench(device, options).run())


@contextlib.contextmanager
def _device(chromium: bool):
    if chromium:
        from tools.page_gpu import open_page_device

        with open_page_device() as device:
            yield device
    else:
        from bridge.gpu.wgpu_device import request_device

        device = asyncio.run(request_device())
        yield device
        device.destroy()


class _Bench:
    def __init__(self, device: Any, options: argparse.Namespace) -> None:
        self.device, self.options = device, options
        self.tuning = {"software": SOFTWARE, "hardware": HARDWARE, None: tuning_for(device.info)}[options.kernels]
        self.deadline = Deadline(options.seconds)
        self.rows: list[dict[str, Any]] = []
        self.rng = np.random.default_rng(0)
        self.timer = ProgramTimer(device, time.process_time if options.cpu else None)
        self._weights = b""  # the blocks of the matmul being measured
        self._copies: list[Any] = []  # buffers with them

    async def run(self) -> list[dict[str, Any]]:
        o = self.options
        formats = list(FORMATS) if o.formats == "all" else o.formats.split(",")
        for n_tokens in map(int, o.tokens.split(",")):
            for name in formats:
                block = FORMATS[name].type.block_size
                n_in = -(-o.n_in // block) * block
                weight = Weight("w", (o.n_out, n_in), name)
                step = Step("matmul", (0,), 1, (weight,), {}, TOKENS, o.n_out, "w")
                self._weights = random_blocks(name, o.n_out * n_in // block, self.rng).tobytes()
                for _ in range(o.copies):
                    self._filled(self._copies, self._weights)
                for variant, self.tuning in self._variants(n_tokens):
                    await self._measure(f"matmul {name} {n_in}x{o.n_out}{variant}", step, [n_in, o.n_out], n_tokens,
                                        2 * n_in * o.n_out * n_tokens)
                self.device.free(self._copies)
                self._copies.clear()
            for label, step, widths in () if o.variants else self._other_steps():
                await self._measure(label, step, widths, n_tokens)
        self.timer.close()
        return self.rows

    def _variants(self, n_tokens: int) -> list[tuple[str, Tuning]]:
        return variants(self.device.info, n_tokens) if self.options.variants else [("", self.tuning)]

    def _other_steps(self) -> list[tuple[str, Step, list[int]]]:
        n_embd, kv, n_ff = N_HEAD * HEAD_DIM, N_HEAD_KV * HEAD_DIM, 1536
        norm = Weight("n", (n_embd,), "F32")
        heads = {"layer": 0, "n_head": N_HEAD, "n_head_kv": N_HEAD_KV, "head_dim": HEAD_DIM, "head_dim_v": HEAD_DIM,
                 "scale": 0.125, "softcap": 0.0, "window": 0}
        rope = {"table": "main", "head_dim": HEAD_DIM, "n_rot": HEAD_DIM, "style": "norm"}
        return [
            ("rms_norm", Step("rms_norm", (0,), 1, (norm,), {"eps": 1e-5, "group": n_embd}, TOKENS, n_embd, "n"), [n_embd] * 2),
            ("rope", Step("rope", (0,), 1, (), rope, TOKENS, n_embd, "rope"), [n_embd] * 2),
            ("kv_write", Step("kv_write", (0, 1), None, (), {"layer": 0}, TOKENS, 0, "kv"), [kv] * 2),
            (f"attention over {self.options.positions}",
             Step("attention", (0,), 1, (), heads, TOKENS, n_embd, "attention"), [n_embd] * 2),
            ("glu", Step("glu", (0, 1), 2, (), {"act": "silu"}, TOKENS, n_ff, "glu"), [n_ff] * 3),
        ]

    async def _measure(self, label: str, step: Step, widths: Sequence[int], n_tokens: int, flop: int = 0) -> None:
        if self.deadline.is_over:
            return
        kv = KvLayer(N_HEAD_KV * HEAD_DIM, N_HEAD_KV * HEAD_DIM, 0)
        plan = Plan((step,), (), {}, 0, {"main": RopeTable(HEAD_DIM, 10000.0)}, (kv,))
        cache = CacheLayout(plan.kv_layers, self.options.positions, n_tokens, "f16", "f16")
        builder = CallBuilder(plan, place_weights(plan, self.device.limits), self.tuning, cache=cache,
                              max_workgroups=self.device.limits.max_compute_workgroups_per_dimension)
        n_splits = self.tuning.splits_of(self.options.positions) if n_tokens == 1 else 1
        calls = [call for call in calls_of(builder, step) if call.takes(n_tokens, n_splits)]
        layout = BatchLayout(plan)
        handles: list[Any] = []
        try:
            params = self._buffer(handles, layout.nbytes(n_tokens, 1))
            dispatches = [await self._dispatch(handles, call, params, widths, n_tokens, weights)
                          for weights in self._copies or [None] for call in calls]
            start = max(0, self.options.positions - n_tokens)
            block = layout.pack([0] * n_tokens, start, [])
            seconds = len(calls) * await self.timer.seconds(dispatches, params, block)
        finally:
            self.device.free(handles)
        row = {"kernel": label, "tokens": n_tokens, "microseconds": round(seconds * 1e6, 1)}
        if flop:
            row["gflops"] = round(flop / seconds / 1e9, 3)
            row["gb_per_second"] = round(len(self._weights) / seconds / 1e9, 3)
        self.rows.append(row)
        if not self.options.json:
            width = 64 if self.options.variants else 28
            print(f"{label:{width}} {n_tokens:4} tokens {seconds * 1e6:10.1f} us" + (f" {row['gflops']:8.3f} GFLOP/s" if flop else ""),
                  flush=True)

    async def _dispatch(self, handles: list[Any], call: Call, params: Any, widths: Sequence[int], n_tokens: int,
                        weights: Any) -> Dispatch:
        key, x, y = call.choose(n_tokens)
        pipeline = await self.device.create_pipeline(kernel_source(key.file, dict(key.values)), key.label, key.bindings)
        dims = self._buffer(handles, 64, uniform=True)
        self.device.write_buffer(dims, 0, call.dims)
        buffers: dict[Operand, Any] = {}
        for operand in call.operands:
            if operand not in buffers:
                is_weight = operand.kind == "matrix"
                buffers[operand] = weights if is_weight else self._operand(handles, operand, widths, n_tokens)
        entries = [(dims, 0, 64), (params, 0, None), *((buffers[operand], 0, None) for operand in call.operands)]
        handles.append(self.device.create_bind_group(key.bindings, entries, call.name))
        await self.device.check()
        return Dispatch(pipeline, handles[-1], (x, y, 1))

    def _operand(self, handles: list[Any], operand: Operand, widths: Sequence[int], n_tokens: int) -> Any:
        if operand.kind == "slot":
            return self._buffer(handles, 16 * quads(widths[operand.key]) * -(-n_tokens // 8) * 8)
        if operand.kind in ("k", "v"):
            return self._buffer(handles, 2 * N_HEAD_KV * HEAD_DIM * self.options.positions)
        if operand.kind == "vector":
            return self._buffer(handles, 4 * N_HEAD * HEAD_DIM)
        if operand.kind == "partials":
            return self._buffer(handles, operand.key)
        return self._filled(handles, grid_bytes(operand.key))

    def _buffer(self, handles: list[Any], size: int, uniform: bool = False) -> Any:
        handles.append(self.device.create_buffer(size, uniform=uniform, label="bench"))
        return handles[-1]

    def _filled(self, handles: list[Any], data: bytes) -> Any:
        data = data.ljust(-(-len(data) // LOAD) * LOAD, b"\0")
        buffer = self._buffer(handles, len(data))
        self.device.write_buffer(buffer, 0, data)
        return buffer


def variants(info: AdapterInfo, n_tokens: int) -> list[tuple[str, Tuning]]:
    """What bridge.gpu.autotune chooses from, by name: lanes for a single token, tiles and types of products for more."""
    named = {"": HARDWARE, " direct": with_staging(HARDWARE, False)}
    if SUBGROUPS in info.features:
        named |= {f"{name} subgroups": with_subgroups(tuning) for name, tuning in named.items()}
    if n_tokens > 1:
        types = ["f32", *(name for name, needs in (("f16", F16), ("int8", PACKED_DOT)) if needs in info.features)]
        named = {f" {name}": with_products(HARDWARE, name) for name in types}
    others = other_lanes if n_tokens == 1 else other_tiles
    return [(f"{name} {size}", tuning) for name, base in named.items()
            for size, tuning in {"default": base, **others(base)}.items()]


if __name__ == "__main__":
    sys.exit(main())
