"""Measures models on the WebGPU of a Chromium: ``make bench-webgpu``, figures in build/bench-webgpu.json.

What ``python -m bridge bench MODEL --backend webgpu`` does under CPython, in a page: the same code (bridge/bench) in
Pyodide, on the browser's own implementation, calls from Python to JavaScript included. Each model has its own browser.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from playwright.sync_api import Error as PageError
from playwright.sync_api import sync_playwright
from starlette.responses import FileResponse
from starlette.routing import Route

from bridge.bench.measure import BenchOptions
from bridge.commands.arguments import positive, positive_list
from bridge.errors import BridgeError
from bridge.serve import create_app, running_server
from bridge.synth import PREFIX
from tools.asset_sources import FetchError
from tools.assets import BUILD
from tools.browser import FLAGS, SetupError, require_browser
from tools.run_page import model_file

PAGE = Path(__file__).with_suffix(".html")
ENGINE = Path(__file__).with_name("bench_webgpu_engine.py")
SOFTWARE = "--use-webgpu-adapter=swiftshader"
HARDWARE_FLAGS = (*(flag for flag in FLAGS if flag != SOFTWARE), "--ignore-gpu-blocklist", "--use-angle=vulkan")
DEFAULT_SECONDS = 120


def bench(site: Path, model: str, options: dict[str, Any], flags: Sequence[str]) -> dict[str, Any]:
    """The figures (bridge.bench.measure) of one model: an asset's name, a file, an address or a synthetic one's name."""
    file = None if model.startswith(PREFIX) else model_file(model)
    routes = [Route("/bench.html", lambda request: FileResponse(PAGE)),
              Route("/bench/engine.py", lambda request: FileResponse(ENGINE))]
    if file:
        routes.append(Route("/bench/model.gguf", lambda request: FileResponse(file), methods=["GET", "HEAD"]))
    with running_server(create_app(site, routes=routes)) as address, sync_playwright() as playwright:
        with playwright.chromium.launch(executable_path=require_browser(), args=list(flags)) as browser:
            page = browser.new_page()
            page.on("pageerror", lambda error: print(f"page: {error}", file=sys.stderr))
            page.expose_function("report", lambda line: print(line, file=sys.stderr, flush=True))
            page.goto(f"{address}/bench.html")
            page.wait_for_function("() => window.ready")
            asked = {"model": f"{address}/bench/model.gguf" if file else model, **options}
            figures = json.loads(page.evaluate("(options) => window.measure(options)", json.dumps(asked)))
            return {"model": model, "browser": browser.version, **figures}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench_webgpu", description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="smollm2,gemma3",
                        help="assets, files, addresses or synthetic models, separated by commas (default: %(default)s)")
    parser.add_argument("--prompt-tokens", type=positive_list, default=(64, 8), metavar="N,…")
    parser.add_argument("-n", "--n-predict", type=positive, default=16)
    parser.add_argument("--repeat", type=positive, default=2)
    parser.add_argument("--seconds", type=positive, default=DEFAULT_SECONDS, help="a model (default: %(default)s)")
    parser.add_argument("--ctx", type=positive, default=1024)
    parser.add_argument("--ubatch", type=positive, help="most tokens in a batch (default: what the adapter gets)")
    parser.add_argument("--hardware", action="store_true", help="this machine's GPU instead of the software adapter")
    parser.add_argument("--site", type=Path, default=BUILD / "site")
    parser.add_argument("--out", type=Path, default=BUILD / "bench-webgpu.json")
    options = parser.parse_args(arguments)
    measured = BenchOptions(options.prompt_tokens, options.n_predict, options.repeat, options.seconds)
    asked = {"load": {"n_ctx": options.ctx, "n_ubatch": options.ubatch}, "bench": asdict(measured)}
    processor = platform.processor() or platform.machine()
    found: dict[str, Any] = {"processor": processor, "cores": os.cpu_count(), "models": []}
    for model in options.models.split(","):
        print(model, file=sys.stderr)
        try:
            found["models"].append(bench(options.site, model, asked, HARDWARE_FLAGS if options.hardware else FLAGS))
        except (BridgeError, FetchError, SetupError, PageError) as error:
            print(f"{model}: {error}", file=sys.stderr)
            return 1
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=1))
    print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
