"""The WebGPU of a headless Chromium, driven from CPython through the very modules a page uses.

web/gpu_device.js runs in a page; ``bridge.gpu.js_device`` runs here, on a stand-in for ``pyodide.ffi`` that passes calls on
to the page. So kernels can be tested and measured on the browser's own shader compiler without starting Pyodide:

    with open_page_device() as device: ...
"""

from __future__ import annotations

import asyncio
import base64
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from tools.browser import FLAGS, require_browser

WEB = Path(__file__).parents[1] / "web"
ORIGIN = "http://localhost"  # a secure context; nothing listens there, every request is answered from WEB
PROMISES = {"createPipeline", "readBuffer", "run", "runChain", "recall", "keep", "check", "drain", "upload"}

PAGE = """<!doctype html><script type=module>
import { requestDevice } from './gpu_device.js';
import { fromBytes } from './byte_source.js';

const toBytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const toText = (bytes) => {
  let text = '';
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return btoa(text);
};
const decode = (value) => {
  if (value?.bytes !== undefined) return toBytes(value.bytes);
  if (value?.source !== undefined) return fromBytes(toBytes(value.source));
  if (value?.callback) return (...values) => reports.push(values);
  return value;
};
const encode = (value) => {
  if (value instanceof Uint8Array) return { bytes: toText(value) };
  return Array.isArray(value) ? value.map(encode) : value ?? null;
};
let device;
let reports = [];
window.open = async () => { device = await requestDevice(); };
window.call = async (method, values) => {
  reports = [];
  try {
    return { result: encode(await device[method](...values.map(decode))), reports };
  } catch ({ name, message }) {
    return { error: { name, message } };
  }
};
window.ready = true;
</script>"""


class JsException(Exception):
    """An error thrown in the page."""

    def __init__(self, name: str, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.name, self.message, self.code = name, message, code


class PageBytes:
    """What stands for a Uint8Array of the page."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def assign_to(self, target: Any) -> None:
        target[:] = self._data

    def to_bytes(self) -> bytes:
        return self._data


class _Proxy:
    def __init__(self, function: Any) -> None:
        self.function = function

    def destroy(self) -> None:
        self.function = None


class PageSource:
    """Bytes that live in the page, as a source with a ``js`` part."""

    def __init__(self, data: bytes) -> None:
        self.size, self.js = len(data), {"source": base64.b64encode(data).decode()}


class Page:
    """A headless Chromium with one device open, on an event loop and a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.wait(self._open())

    async def _open(self) -> None:
        from playwright.async_api import async_playwright

        self._playwright = await async_playwright().start()
        self._browser = await self._playwright.chromium.launch(executable_path=require_browser(), args=list(FLAGS))
        self._page = await self._browser.new_page()
        await self._page.route(f"{ORIGIN}/**", _serve)
        await self._page.goto(f"{ORIGIN}/page.html")
        await self._page.wait_for_function("() => window.ready")
        await self._page.evaluate("() => window.open()")

    def close(self) -> None:
        self.wait(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _close(self) -> None:
        await self._browser.close()
        await self._playwright.stop()

    async def call(self, method: str, values: tuple[Any, ...]) -> Any:
        """What the device's method returns; raises JsException for what it throws."""
        return await self.answer("([method, values]) => window.call(method, values)", method, values)

    async def answer(self, script: str, method: str, values: tuple[Any, ...]) -> Any:
        """What ``script`` gives for a method and values, as the page writes results and errors."""
        answer = await self._page.evaluate(script, [method, [_encoded(value) for value in values]])
        if "error" in answer:
            raise JsException(**answer["error"])
        for proxy in values:
            if isinstance(proxy, _Proxy):
                for report in answer["reports"]:
                    proxy.function(*report)
        return _decoded(answer["result"])

    def wait(self, coroutine: Any) -> Any:
        return self.start(coroutine).result()

    def start(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)


async def _serve(route: Any) -> None:
    path = route.request.url.removeprefix(f"{ORIGIN}/")
    file = WEB / path
    if path == "page.html":
        await route.fulfill(body=PAGE, content_type="text/html")
    elif file.is_file():
        await route.fulfill(path=file, content_type="text/javascript")
    else:
        await route.fulfill(status=404)


class PageGpu:
    """The GpuDevice of the page: its methods by name, as a JsProxy has them."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def __getattr__(self, method: str) -> Any:
        page = self._page
        if method in PROMISES:
            return lambda *values: asyncio.wrap_future(page.start(page.call(method, values)))
        return lambda *values: page.wait(page.call(method, values))


def _encoded(value: Any) -> Any:
    if isinstance(value, memoryview):
        return {"bytes": base64.b64encode(value).decode()}
    return {"callback": True} if isinstance(value, _Proxy) else value


def _decoded(value: Any) -> Any:
    if isinstance(value, dict):
        return PageBytes(base64.b64decode(value["bytes"]))
    return [_decoded(item) for item in value] if isinstance(value, list) else value


def stand_in_for_pyodide() -> None:
    """Make ``pyodide.ffi`` importable, with what the modules that drive JavaScript take from it."""
    if "pyodide" not in sys.modules:
        ffi = ModuleType("pyodide.ffi")
        ffi.JsException, ffi.create_proxy, ffi.to_js = JsException, _Proxy, lambda value: value
        sys.modules["pyodide"], sys.modules["pyodide.ffi"] = ModuleType("pyodide"), ffi


@contextmanager
def open_page_device() -> Iterator[Any]:
    """A ``bridge.gpu.js_device.JsDevice`` on the WebGPU of a headless Chromium, which is closed at the end."""
    stand_in_for_pyodide()
    from bridge.gpu.js_device import JsDevice

    page = Page()
    try:
        device = JsDevice(PageGpu(page))
        yield device
        device.destroy()
    finally:
        page.close()
