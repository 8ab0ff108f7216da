"""Lets a page in a headless Chromium load a model and complete a prompt, and shows it here: ``make run``.

The page (run_page.html) uses the bridge as any page would: a script tag and LlamaWebGpuBridge. This program serves the
site and the model, draws the progress and prints the text as it is streamed, then the speed and what it ran on.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from playwright.sync_api import Error as PageError
from playwright.sync_api import TimeoutError as PageTimeout
from playwright.sync_api import sync_playwright
from starlette.responses import FileResponse
from starlette.routing import Route

from bridge.errors import BridgeError, InputError
from bridge.serve import create_app, running_server
from tools.assets import ASSETS, BUILD, ensure
from tools.asset_sources import FetchError
from tools.browser import FLAGS, SetupError, require_browser

PAGE = Path(__file__).with_suffix(".html")
BAR_WIDTH = 30
GPU_LAYERS = {"": {}, "0": {"nGpuLayers": 0}, "1": {"nGpuLayers": 999}}


class Screen:
    """Draws what the page reports: a bar on stderr while the model loads, prompt and text on stdout as it comes."""

    def __init__(self, prompt: str):
        self._prompt = prompt
        self._drawn = -1
        self._live = sys.stderr.isatty()

    def report(self, message: dict) -> None:
        match message["event"]:
            case "progress":
                self._progress(message["loaded"], message["total"])
            case "loaded":
                self._line(f"loaded in {message['milliseconds'] / 1000:.1f} s")
                print(self._prompt, end="", flush=True)
            case "text":
                print(message["text"], end="", flush=True)

    def _progress(self, loaded: int, total: int) -> None:
        percent = int(100 * loaded / total) if total else 0
        if percent == self._drawn or (not self._live and percent // 10 == self._drawn // 10):
            return
        self._drawn = percent
        filled = BAR_WIDTH * percent // 100
        bar = f"loading [{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {percent:3d} %  {loaded / 2**20:.1f} of {total / 2**20:.1f} MiB"
        print(f"\r{bar}" if self._live else bar, end="" if self._live else "\n", file=sys.stderr, flush=True)

    def _line(self, text: str) -> None:
        print(f"\n{text}" if self._live else text, file=sys.stderr, flush=True)


def model_file(name: str) -> Path | None:
    """The file that ``name`` means: an asset (fetched when missing) or a path; None for an http(s) address."""
    if name.startswith(("http://", "https://")):
        return None
    for asset in ASSETS:
        if asset.name == name and asset.path.startswith("models/"):
            ensure([asset], log=lambda text: print(text, file=sys.stderr))
            return BUILD / asset.path
    path = Path(name)
    if not path.is_file():
        known = ", ".join(asset.name for asset in ASSETS if asset.path.startswith("models/"))
        raise InputError(f"MODEL is one of {known}, a GGUF file or an http(s) address; there is no file {name!r}")
    return path


def positive(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, got {text!r}")
    return number


def complete(site: Path, model: str, prompt: str, n_predict: int, load_options: dict) -> dict:
    """Runs one completion in a fresh browser and returns the page's result (see run_page.html)."""
    file = model_file(model)
    routes = [Route("/_run/", lambda request: FileResponse(PAGE))]
    if file:
        routes.append(Route("/_run/model.gguf", lambda request: FileResponse(file), methods=["GET", "HEAD"]))
    with running_server(create_app(site, routes=routes)) as address, sync_playwright() as playwright:
        with playwright.chromium.launch(executable_path=require_browser(), args=list(FLAGS)) as browser:
            page = browser.new_page()
            page.set_default_timeout(30_000)
            page.on("pageerror", lambda error: print(f"page: {error}", file=sys.stderr))
            page.expose_function("report", Screen(prompt).report)
            page.goto(f"{address}/_run/")
            page.wait_for_function("Boolean(window.complete && window.LlamaWebGpuBridge)")
            options = {"prompt": prompt, "nPredict": n_predict, "loadOptions": load_options}
            options["modelUrl"] = "/_run/model.gguf" if file else model
            return page.evaluate("(options) => window.complete(options)", options)


def summary(result: dict) -> str:
    """The closing lines: speed, backend and adapter."""
    lines = []
    if usage := result["usage"]:
        first, total = usage["timeToFirstTokenMs"], usage["durationMs"]
        evaluated = usage["promptTokens"] - usage["cachedPromptTokens"]
        if first:
            lines.append(f"prompt   {evaluated} tokens, {1000 * evaluated / first:.2f} tokens/s (first token after {first:.0f} ms)")
        more = usage["completionTokens"] - 1
        if first and more > 0 and total > first:
            lines.append(f"decode   {more + 1} tokens, {1000 * more / (total - first):.2f} tokens/s ({usage['finishReason']})")
    lines.append(f"backend  {result['backend']}, {result['execution']}")
    lines.append(f"adapter  {result['adapter']}")
    if result["notes"]:
        lines.append(f"notes    {result['notes']}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.run_page", description=__doc__.splitlines()[0])
    parser.add_argument("--prompt", required=True)
    parser.add_argument("--model", default="smollm2", help="an asset's name, a GGUF file or an http(s) address")
    parser.add_argument("--n-predict", type=positive, default=32, help="tokens to generate")
    parser.add_argument("--gpu", choices=list(GPU_LAYERS), default="", help="1 forces WebGPU, 0 the CPU")
    parser.add_argument("--site", type=Path, default=BUILD / "site")
    options = parser.parse_args()
    try:
        result = complete(options.site, options.model, options.prompt, options.n_predict, GPU_LAYERS[options.gpu])
    except PageTimeout:
        print("\nthe page did not start: web/llama_webgpu_bridge.js set no LlamaWebGpuBridge", file=sys.stderr)
        return 1
    except (BridgeError, FetchError, SetupError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except PageError as error:
        print(f"\n{error.message.splitlines()[0].removeprefix('Page.evaluate: ').removeprefix('Error: ')}", file=sys.stderr)
        return 1
    print(f"\n\n{summary(result)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
