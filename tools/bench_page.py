"""Compares the bridge with wllama (llama.cpp compiled to WebAssembly): ``make bench``, figures in build/bench.json.

One Chromium, a new page for each run, both engines in turn on the same model file: load it, evaluate the same prompt,
decode greedily, unload; so many rounds, the order of the engines changing from round to round. No model cache is used.
What is shown are medians and the ratios of medians: the figures of one run belong together, those of different machines
or hours do not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import sync_playwright
from starlette.responses import FileResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from bridge.errors import BridgeError
from bridge.serve import create_app, running_server
from tools.asset_sources import FetchError, NpmMember
from tools.assets import BUILD, Asset, ensure
from tools.browser import FLAGS, SetupError, require_browser
from tools.run_page import model_file, positive

PAGE = Path(__file__).with_suffix(".html")
TIMEOUT_MS = 900_000
POLL_SECONDS = 0.05
SETTLE_SECONDS = 1.0  # for the processes of a closed page to end
PEER = "@wllama/wllama@3.8.1"
PEER_FILES = (
    Asset("wllama", "bench", "bench/wllama/index.min.js", 331458,
          "834d7be963172248caf13c6f2ae786009b43edfeefc85eeadc20609e8447d118",
          (NpmMember(PEER, "package/esm/index.min.js"),)),
    Asset("wllama-wasm", "bench", "bench/wllama/wllama.wasm", 8763949,
          "551f13439366eff11e057b1b91fe46a7fdac29d56d67372d4c5f19a549dfe70c",
          (NpmMember(PEER, "package/esm/wasm/wllama.wasm"),)),
)
PROMPT = (
    "The history of the bridge begins with a tree that fell across a stream. People learned to lay beams on piers of "
    "stone, then to build arches, which carry their load by pressing each stone against its neighbours. The Romans "
    "built arches of brick and concrete, some of which still carry traffic. In the nineteenth century iron and then "
    "steel made it possible to hang a roadway from cables, and spans grew from tens of metres to more than a "
    "kilometre. A modern suspension bridge is a balance of a few large forces: the weight of the deck, the pull of "
    "the main cables, the push of the towers into the ground, and the grip of the anchorages. The most famous bridge "
    "in the world is"
)
FIGURES = (
    # title, unit, how it comes from a run, whether more is better
    ("load", "s", lambda run: run["loadMs"] / 1000, False),
    ("load to first token", "s", lambda run: run["toFirstTokenMs"] / 1000, False),
    ("prompt", "tokens/s", lambda run: 1000 * run["promptTokens"] / run["promptMs"], True),
    ("decode", "tokens/s", lambda run: 1000 * run["tokens"] / run["decodeMs"], True),
    ("peak memory", "MiB", lambda run: run["peakMiB"], False),
)


class Memory:
    """The most memory that processes of a browser took together beyond what they took at first (Linux; else 0)."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._before = self._resident()
        self.peak_mib = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        self._done.set()
        self._thread.join()
        return self.peak_mib

    def _poll(self) -> None:
        while not self._done.wait(POLL_SECONDS):
            self.peak_mib = max(self.peak_mib, (self._resident() - self._before) / 2**20)

    def _resident(self) -> int:
        """Bytes of memory of all processes below the root, shared pages counted once (proportional set size)."""
        total = 0
        for process in _descendants(self._root):
            try:
                rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
            except OSError:
                continue
            total += sum(1024 * int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
        return total


def _descendants(root: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*") if Path("/proc").is_dir() else ():
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
    found = [root]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found


@contextmanager
def open_browser(site: Path, models: dict[str, Path]) -> Iterator[tuple[Any, str]]:
    """A browser, and the address of a server with a page that can run both engines."""
    routes = [
        Route("/bench.html", lambda request: FileResponse(PAGE)),
        Mount("/bench/wllama", StaticFiles(directory=BUILD / "bench" / "wllama")),
        *(Route(f"/bench/models/{name}.gguf", lambda request, file=file: FileResponse(file))
          for name, file in models.items()),
    ]
    with running_server(create_app(site, routes=routes)) as address, sync_playwright() as playwright, \
            tempfile.TemporaryDirectory() as profile:
        context = playwright.chromium.launch_persistent_context(profile, executable_path=require_browser(),
                                                                args=list(FLAGS))
        try:
            context.set_default_timeout(TIMEOUT_MS)
            yield context, address
        finally:
            context.close()


def measure(browser: Any, address: str, engine: str, spec: dict) -> dict:
    """One run on a page of its own: when the one before was closed its process ended, and its memory is gone."""
    time.sleep(SETTLE_SECONDS)
    memory = Memory(os.getpid())
    page = browser.new_page()
    try:
        page.on("pageerror", lambda error: print(f"the page reported: {error}", file=sys.stderr))
        page.goto(f"{address}/bench.html")
        page.wait_for_function("() => window.run")
        run = page.evaluate("([engine, spec]) => window.run(engine, spec)", [engine, spec])
    finally:
        peak = memory.stop()
        page.close()
    return {**run, "peakMiB": peak}


def bench(browser: Any, address: str, models: dict[str, Path], options: argparse.Namespace) -> list[dict]:
    """All runs of a case at a time: {model, threads, runs: {engine: [run, …]}}."""
    cases = []
    for model in models:
        for threads in options.threads:
            runs: dict[str, list[dict]] = {"bridge": [], "wllama": []}
            for number in range(options.rounds):
                for engine in sorted(runs, reverse=number % 2 == 1):
                    # No engine may find it in a cache.
                    url = f"{address}/bench/models/{model}.gguf?run={time.time_ns()}"
                    spec = {"url": url, "prompt": PROMPT, "threads": threads, "nCtx": options.ctx,
                            "nPredict": options.predict, "layers": 0}
                    run = measure(browser, address, engine, spec)
                    runs[engine].append(run)
                    show = ", ".join(f"{title} {value(run):.1f} {unit}" for title, unit, value, _ in FIGURES)
                    case = f"{model}, {threads} threads, round {number + 1}, {engine}"
                    print(f"{case}: {show}", file=sys.stderr, flush=True)
            counts = {run["promptTokens"] for found in runs.values() for run in found}
            if len(counts) != 1:
                raise BridgeError(f"the engines evaluated prompts of {sorted(counts)} tokens; they must be the same")
            cases.append({"model": model, "threads": threads, "promptTokens": counts.pop(), "runs": runs})
    return cases


def summary(case: dict) -> dict:
    """Medians of each figure and their ratio, above 1 where the bridge is better."""
    figures = {}
    for title, unit, value, more_is_better in FIGURES:
        ours, theirs = (median(map(value, case["runs"][engine])) for engine in ("bridge", "wllama"))
        ratio = ours / theirs if more_is_better else theirs / ours
        figures[title] = {"unit": unit, "bridge": ours, "wllama": theirs, "ratio": ratio if ours and theirs else None}
    return {key: case[key] for key in ("model", "threads", "promptTokens")} | {"figures": figures}


def table(summaries: list[dict]) -> str:
    """Markdown: one row for each figure of each case."""
    lines = ["| model | threads | figure | bridge | wllama | ratio |", "|---|---|---|---|---|---|"]
    for case in summaries:
        for title, figure in case["figures"].items():
            ratio = f"{figure['ratio']:.1f} ×" if figure["ratio"] else "-"
            lines.append(f"| {case['model']} | {case['threads']} | {title}, {figure['unit']} "
                         f"| {figure['bridge']:.1f} | {figure['wllama']:.1f} | {ratio} |")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.bench_page", description="Compare the bridge with wllama.")
    parser.add_argument("--models", default="smollm2,gemma3", help="models by name or path, separated by commas")
    parser.add_argument("--threads", type=lambda text: [positive(part) for part in text.split(",")], default=[1, 2])
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--predict", type=positive, default=64, help="tokens to decode")
    parser.add_argument("--ctx", type=positive, default=1024, help="context size in tokens")
    parser.add_argument("--site", type=Path, default=BUILD / "site")
    parser.add_argument("--out", type=Path, default=BUILD / "bench.json")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    try:
        ensure(PEER_FILES, log=lambda text: print(text, file=sys.stderr))
        models = {Path(name).stem: model_file(name) for name in options.models.split(",")}
        with open_browser(options.site, models) as (browser, address):
            cases = bench(browser, address, models, options)
            version = browser.new_page().evaluate("() => navigator.userAgent")
    except (BridgeError, FetchError, SetupError) as error:
        print(error, file=sys.stderr)
        return 1
    summaries = [summary(case) for case in cases]
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count(), "browser": version}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"machine": machine, "summaries": summaries, "cases": cases}, indent=1))
    print(table(summaries))
    print(f"\nwritten to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
