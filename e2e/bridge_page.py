"""Drives the real bridge in a page: one instance at a time, every call with what it reported and how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.conftest import PAGE_TIMEOUT_MS, Messages, Site, watch
from playwright.sync_api import Browser, Page

MODELS = Path(__file__).resolve().parent.parent / "tests" / "data" / "models"
MODES = ("worker", "direct")

OPEN = """async (config) => {
  const {LlamaWebGpuBridge} = await import("/web/llama_webgpu_bridge.js");
  globalThis.bridge = new LlamaWebGpuBridge(config);
}"""

# Calls a method and records its callbacks. `stop` says when to stop it, after so many callbacks or milliseconds, and how:
# {after: "token" | "progress" | "ms", count, by: "abort" | "cancel"}.
CALL = """async ({method, args, callbacks, stop}) => {
  const controller = new AbortController();
  const seen = {pieces: [], texts: [], progress: [], usage: [], order: []};
  const stopNow = () => (stop.by === "abort" ? controller.abort() : bridge.cancel());
  const stopIf = (event) => {
    if (stop?.after === event && seen.order.filter((e) => e === event).length === stop.count) stopNow();
  };
  if (stop?.after === "ms") setTimeout(stopNow, stop.count);
  const heard = (event, note) => { seen.order.push(event); note(); stopIf(event); };
  if (callbacks) {
    const options = args.at(-1);
    const decode = (piece) => (typeof piece === "string" ? piece : {bytes: [...piece]});
    if (method === "createCompletion") {
      options.onToken = (piece, text) => heard("token", () => { seen.pieces.push(decode(piece)); seen.texts.push(text); });
      options.onUsage = (usage) => heard("usage", () => seen.usage.push(usage));
    } else {
      options.progressCallback = (progress) => heard("progress", () => seen.progress.push(progress));
    }
    options.signal = controller.signal;
  }
  try {
    return {value: await bridge[method](...args), ...seen};
  } catch (error) {
    return {error: {name: error.name, message: error.message, code: error.code ?? null}, ...seen};
  }
}"""


@dataclass
class Outcome:
    """What a call gave or raised, and its callbacks; ``order`` has their kinds as they came."""

    value: Any = None
    error: dict | None = None
    pieces: list = field(default_factory=list)
    texts: list = field(default_factory=list)
    progress: list = field(default_factory=list)
    usage: list = field(default_factory=list)
    order: list = field(default_factory=list)

    @property
    def result(self) -> Any:
        assert self.error is None, self.error
        return self.value

    @property
    def message(self) -> str:
        assert self.error is not None, f"the call gave {self.value!r}"
        return self.error["message"]


class BridgePage:
    """A page with one bridge, in worker or direct mode; ``messages`` is what the page said."""

    def __init__(self, page: Page, mode: str, messages: Messages | None = None):
        self.page, self.mode, self.messages = page, mode, messages

    def open(self, **config: Any) -> BridgePage:
        self.page.evaluate(OPEN, {"disableWorker": self.mode == "direct", **config})
        return self

    def call(self, method: str, *args: Any, stop: dict | None = None) -> Outcome:
        callbacks = method in ("createCompletion", "loadModelFromUrl")
        answer = self.page.evaluate(CALL, {"method": method, "args": list(args), "callbacks": callbacks, "stop": stop})
        return Outcome(**answer)

    def load(self, url: str | list[str], stop: dict | None = None, **options: Any) -> Outcome:
        """On the GPU, software as it may be, and without the model cache unless ``options`` say otherwise."""
        return self.call("loadModelFromUrl", url, {"nCtx": 128, "nGpuLayers": 99, "useCache": False, **options}, stop=stop)

    def complete(self, prompt: str, stop: dict | None = None, **options: Any) -> Outcome:
        return self.call("createCompletion", prompt, {"temp": 0, "penalty": 1, "nPredict": 6, **options}, stop=stop)

    def get(self, expression: str) -> Any:
        """A synchronous member, such as ``getContextSize()``."""
        return self.page.evaluate(f"bridge.{expression}")

    def metadata(self, key: str) -> str | None:
        return self.get("getModelMetadata()").get(f"llamadart.webgpu.{key}")

    def dispose(self) -> None:
        self.page.evaluate("bridge.dispose()")

    def expect_network_error(self, part: str) -> None:
        """The browser itself complains of a failed transfer, but not of one in a worker."""
        if self.mode == "direct":
            self.messages.expect(part)


@contextmanager
def shared_bridge(browser: Browser, site: Site, mode: str) -> Iterator[BridgePage]:
    """One bridge for many tests, for those that are about calls and not about start-up."""
    page = browser.new_context().new_page()
    page.set_default_timeout(PAGE_TIMEOUT_MS)
    messages = Messages()
    watch(page, messages)
    page.goto(site.url("/_test/blank.html"))
    yield BridgePage(page, mode, messages).open()
    page.context.close()
    assert not messages.errors, f"the page reported errors: {messages.errors}"
