"""Checks and measures the WebGPU backend on the GPU of this machine, within a few minutes; run by tools/gpu_check.sh.

    python -m tools.gpu_check all [--budget SECONDS] [--out FILE]    everything, one part after the other
    python -m tools.gpu_check probe                                   what adapter there is

Parts: ``device`` (what the adapter says and how fast it is), ``correctness`` (the tests of kernels and plans against
numpy and llama.cpp, in several processes), ``bench MODEL`` (bridge.bench on synthetic models), ``variants`` (every
kernel, tile and type that products can be computed with, tools.kernel_bench). Each runs in processes of its own with a
share of the time left, and FILE holds what is known so far after each, so that a driver that hangs or crashes costs one
part only. On a software adapter sizes are small, and the figures mean little.

Exit status: 0 all is right; 1 something is wrong (a test or a part failed); 2 there is no adapter; 3 nothing was wrong,
but the time did not suffice for all; 4 all is right, on a software adapter.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tools import gpu_check_tests

ROOT = Path(__file__).resolve().parent.parent
PASSED, WRONG, NO_ADAPTER, INCOMPLETE, ONLY_SOFTWARE = range(5)
HARDWARE_FOUND, NOTHING_FOUND, SOFTWARE_FOUND = 0, 1, 3  # status of probe
BUDGET = 330
OUT_OF_TIME = "the budget is spent"
LOADING = 30.0
"""Seconds for a model to be loaded and kernels to be compiled before anything is measured."""
GRACE = 15.0
"""Seconds that a process gets beyond its share, to write down what it has."""
CORRECTNESS_SHARE = 0.45
"""Of the budget; tests that have not begun by then are not run."""
MOST_PROCESSES = 6
MODELS = (
    "synth:1b-Q4_K_M", "synth:3b-Q4_K_M", "synth:1b-Q8_0", "synth:3b-Q8_0",
    "synth:1b-Q4_K_M --ubatch 256", "synth:1b-Q8_0 --ubatch 512", "synth:135m-Q8_0", "synth:135m-Q4_0", "synth:1b-Q4_0",
    "synth:1b-Q6_K", "synth:1b-F16", "synth:3b-Q4_0", "synth:3b-Q6_K", "synth:3b-F16",
    "synth:135m-Q4_K_M", "synth:135m-Q6_K", "synth:135m-F16",
)
"""With further options of the bench, where they have some."""
BENCH = ("--prompt-tokens", "512,16", "--n-predict", "64", "--repeat", "2", "--ctx", "1024")
SECONDS_A_MODEL = 20.0
MOST_TELLING = 4
"""Models before the variants; the others come after them, as long as there is time."""
VARIANTS = ("--formats", "Q4_K,Q8_0,Q4_0,Q6_K,F16", "--n-in", "2048", "--n-out", "8192", "--tokens", "1,512",
            "--copies", "16")
SOFTWARE_VARIANTS = ("--formats", "Q8_0", "--n-in", "64", "--n-out", "64", "--tokens", "1", "--cpu")
SECONDS_OF_VARIANTS = 45.0
SOFTWARE_MODELS = ("synth:tiny-Q4_K_M", "synth:tiny-Q8_0")
SOFTWARE_BENCH = ("--prompt-tokens", "32,8", "--n-predict", "8", "--repeat", "2", "--ctx", "64", "--cpu")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="gpu_check", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("probe")
    commands.add_parser("device")
    whole = commands.add_parser("all")
    whole.add_argument("--budget", type=float, default=BUDGET, metavar="SECONDS", help="(default: %(default)s)")
    whole.add_argument("--out", type=Path, default=ROOT / "gpu-check.json", metavar="FILE", help="results as JSON")
    whole.add_argument("--only", default="", metavar="WORDS", help="tests with one of these words in their name")
    whole.add_argument("--models", default="", metavar="NAMES", help="instead of those that suit the adapter")
    options = parser.parse_args(arguments)
    if options.command == "probe":
        return probe()
    if options.command == "device":
        print(json.dumps(asyncio.run(describe_device())))
        return 0
    return Check(options).run()


def probe() -> int:
    """Name the adapter; the status says of what kind it is."""
    from bridge.errors import DeviceError
    from bridge.gpu.wgpu_device import request_device

    try:
        device = asyncio.run(request_device())
    except DeviceError as error:
        print(error)
        return NOTHING_FOUND
    kind = "a software adapter only" if device.info.is_software else "the GPU"
    print(f"found {kind}: {device.info.device or device.info.description}")
    device.destroy()
    return SOFTWARE_FOUND if device.info.is_software else HARDWARE_FOUND


async def describe_device() -> dict[str, Any]:
    from bridge.bench.device_speed import measure_device
    from bridge.bench.program_timer import ProgramTimer
    from bridge.gpu.wgpu_device import request_device

    device = await request_device()
    timer = ProgramTimer(device)
    speed = await measure_device(device, timer)
    timer.close()
    device.destroy()
    return {"info": asdict(device.info), "limits": asdict(device.limits), **speed.figures()}


class Check:
    """The run of all parts; ``results`` is what the file holds."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._begin = time.monotonic()
        self._problems: list[str] = []
        self._missing: list[str] = []
        self.results: dict[str, Any] = {
            "budget_s": options.budget, "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "python": sys.version.split()[0], "cpus": os.cpu_count()}

    @property
    def left(self) -> float:
        return self._options.budget - (time.monotonic() - self._begin)

    def run(self) -> int:
        device = self._part("device", [sys.executable, "-m", "tools.gpu_check", "device"], 40)
        if "json" not in device:
            self._finish(NO_ADAPTER)
            return NO_ADAPTER
        is_software = device["json"]["info"]["is_software"]
        print(f"{device['json']['info']['device']}: copies {device['json']['copy_gb_per_second']} GB/s, computes "
              f"{device['json']['peak_f32_gflops']} GFLOP/s", flush=True)
        if is_software:
            print("THIS IS A SOFTWARE ADAPTER: sizes are small, and the figures say nothing about GPUs.", flush=True)
        self._correctness(1 if is_software else max(1, min(MOST_PROCESSES, (os.cpu_count() or 1) // 2)))
        named = [name for name in self._options.models.split(",") if name]
        models = named or (SOFTWARE_MODELS if is_software else MODELS)
        for model in models[:MOST_TELLING]:
            self._bench(model, SOFTWARE_BENCH if is_software else BENCH)
        self._variants(SOFTWARE_VARIANTS if is_software else VARIANTS)
        for model in models[MOST_TELLING:]:
            self._bench(model, SOFTWARE_BENCH if is_software else BENCH)
        status = WRONG if self._problems else INCOMPLETE if self._missing else ONLY_SOFTWARE if is_software else PASSED
        self._finish(status)
        return status

    def _correctness(self, n_processes: int) -> None:
        seconds = CORRECTNESS_SHARE * self.left
        with tempfile.TemporaryDirectory() as folder:
            found = gpu_check_tests.run_in_processes(n_processes, seconds, seconds + GRACE, Path(folder),
                                                     self._options.only)
        self.results["correctness"] = found
        self._problems += [f"test {test['test']}: {_last_words(test['message'])}" for test in found["failed"]]
        self._problems += found["crashed"]
        self._missing += found["stopped"]
        if found["not_run"]:
            self._missing.append(f"{found['not_run']} tests")
        print(f"correctness: {found['passed']} passed, {len(found['failed'])} failed, {found['not_run']} not run "
              f"({found['seconds']} s in {n_processes} processes)", flush=True)
        self._write()

    def _bench(self, model: str, arguments: Sequence[str]) -> None:
        if self.left < GRACE:
            self._missing.append(model)
            return
        seconds = max(1, int(min(SECONDS_A_MODEL, self.left - GRACE)))
        command = [sys.executable, "-m", "bridge", "bench", *model.split(), "--backend", "webgpu", *arguments,
                   "--seconds", str(seconds)]
        found = self._part(f"bench {model}", command, seconds + LOADING)
        if "json" in found:
            print(_summary(model, found["json"]), flush=True)
            if not all(found["json"][f"{batch}_kernels"]["complete"] for batch in ("decode", "prompt")):
                self._missing.append(f"some kernels of {model}")

    def _variants(self, arguments: Sequence[str]) -> None:
        """Every kernel and tile for products beside each other: what the defaults for an adapter should be."""
        if self.left < 2 * GRACE:
            self._missing.append("variants")
            return
        seconds = max(1, int(min(SECONDS_OF_VARIANTS, self.left - GRACE)))
        command = [sys.executable, "-m", "tools.kernel_bench", "--variants", "--json", *arguments,
                   "--seconds", str(seconds)]
        found = self._part("variants", command, seconds + LOADING)
        fastest: dict[tuple[str, int], dict[str, Any]] = {}
        for row in found.get("json", []):
            case = " ".join(row["kernel"].split()[:3]), row["tokens"]
            if case not in fastest or row["microseconds"] < fastest[case]["microseconds"]:
                fastest[case] = row
        for (case, n_tokens), row in fastest.items():
            print(f"fastest {case}, {n_tokens} tokens:{row['kernel'].removeprefix(case)}, {row['gb_per_second']} GB/s, "
                  f"{row['gflops']} GFLOP/s", flush=True)

    def _part(self, name: str, command: Sequence[str], seconds: float) -> dict[str, Any]:
        """One process's JSON, or how it ended and the last it said."""
        begin, found, limit = time.monotonic(), {}, max(1.0, min(seconds, self.left))
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit)
            log, ended = done.stderr, f"ended with status {done.returncode}"
            if done.returncode == 0:
                found["json"] = json.loads(done.stdout)
        except subprocess.TimeoutExpired as error:
            log, ended = (error.stderr or b"").decode(errors="replace"), f"was stopped after {limit:.0f} s"
            log += OUT_OF_TIME if limit < seconds else ""
        if "json" not in found:
            found |= {"problem": ended, "log": log[-4000:]}
            # That the budget or the device's memory did not suffice is no mistake.
            expected = any(word in log.lower() for word in (OUT_OF_TIME, "memory"))
            (self._missing if expected else self._problems).append(f"{name}, which {ended}")
            print(f"{name} {ended}: {' '.join(log.split())[-300:]}", flush=True)
        found["seconds"] = round(time.monotonic() - begin, 1)
        self.results.setdefault("parts", {})[name] = found
        self._write()
        return found

    def _finish(self, status: int) -> None:
        self.results |= {"status": status, "problems": self._problems, "missing": self._missing,
                         "seconds": round(time.monotonic() - self._begin, 1)}
        self._write()
        for problem in self._problems:
            print(f"WRONG: {problem}")
        for missing in self._missing:
            print(f"no time for: {missing}")
        print(f"status {status}, {self.results['seconds']} s; results are in {self._options.out}")

    def _write(self) -> None:
        partial = self._options.out.with_name(self._options.out.name + ".part")
        partial.write_text(json.dumps(self.results, indent=1))
        os.replace(partial, self._options.out)


def _last_words(message: str) -> str:
    """The line of a test's report that says what was wrong."""
    lines = [line for line in message.splitlines() if line.strip()]
    errors = [line.removeprefix("E").strip() for line in lines if line.startswith("E ")]
    return (errors or lines or [""])[-1]


def _summary(model: str, figures: dict[str, Any]) -> str:
    reached = {key: "?" if value is None else f"{value:.0%}" for key, value in figures["reached"].items()}
    return (f"{model}: decode {figures['decode_tokens_per_second']} tokens/s, {reached['decode_of_copy']} of copying "
            f"(its kernels {reached['decode_kernels_of_copy']}); prompt of {figures['prompt_tokens']} "
            f"{figures['prompt_tokens_per_second']} tokens/s, {reached['prompt_of_peak']} of the peak (its kernels "
            f"{reached['prompt_kernels_of_peak']})")


if __name__ == "__main__":
    sys.exit(main())
