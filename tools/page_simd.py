"""The CPU kernels in a headless Chromium, driven from CPython through the very modules a page uses.

web/simd_host.js runs in a page, ``bridge.simd.js_host`` here, on the stand-in for ``pyodide.ffi`` of tools/page_gpu.py:
so the kernels can be tested on the browser's own WebAssembly compiler, with and without threads, without starting
Pyodide.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.browser import FLAGS, require_browser
from tools.build_simd import OUT
from tools.page_gpu import ORIGIN, WEB, Page, stand_in_for_pyodide

PROMISES = {"reserve", "upload", "run"}
ISOLATION = {"cross-origin-opener-policy": "same-origin", "cross-origin-embedder-policy": "require-corp"}
MEDIA_TYPES = {".js": "text/javascript", ".wasm": "application/wasm"}

PAGE = """<!doctype html><script type=module>
import { openHost } from './web/simd_host.js';
import { fromBytes } from './web/byte_source.js';

const toBytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const toText = (bytes) => {
  let text = '';
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.slice(i, i + 32768));
  return btoa(text);
};
const decode = (value) => {
  if (value?.bytes !== undefined) return toBytes(value.bytes);
  if (value?.source !== undefined) return fromBytes(toBytes(value.source));
  if (value?.callback) return (...values) => reports.push(values);
  return value;
};
let host;
let reports = [];
const answer = async (compute) => {
  reports = [];
  try {
    const result = await compute();
    return { result: result instanceof Uint8Array ? { bytes: toText(result) } : result ?? null, reports };
  } catch (error) {
    return { error: { name: error.name, message: error.message, code: error.code ?? null } };
  }
};
window.open = (options) => answer(async () => { host = await openHost(options); });
window.call = (method, values) => answer(() => host[method](...values.map(decode)));
window.ready = true;
</script>"""


class SimdPage(Page):
    """A headless Chromium with one host open; ``isolated`` pages have shared memory."""

    def __init__(self, isolated: bool, flags: tuple[str, ...]) -> None:
        self._headers = ISOLATION if isolated else {}
        self._flags = flags
        super().__init__()

    async def _open(self) -> None:
        from playwright.async_api import async_playwright

        self._playwright = await async_playwright().start()
        flags = [*FLAGS, *self._flags]
        self._browser = await self._playwright.chromium.launch(executable_path=require_browser(), args=flags)
        self._page = await self._browser.new_page()
        await self._page.route(f"{ORIGIN}/**", self._serve)
        await self._page.goto(f"{ORIGIN}/page.html")
        await self._page.wait_for_function("() => window.ready")

    async def _serve(self, route: Any) -> None:
        path = route.request.url.removeprefix(f"{ORIGIN}/")
        if path == "page.html":
            await route.fulfill(body=PAGE, content_type="text/html", headers=self._headers)
            return
        folder, _, name = path.partition("/")
        file = {"web": WEB, "simd": OUT}.get(folder, Path("/nowhere")) / name
        if file.is_file():
            headers = {**self._headers, "content-type": MEDIA_TYPES[file.suffix]}
            await route.fulfill(body=file.read_bytes(), headers=headers)
        else:
            await route.fulfill(status=404)

    def open_host(self, options: str) -> None:
        """Raises JsException when the page's module cannot open a host."""
        self.wait(self.answer("([, [options]]) => window.open(options)", "open", (options,)))

    def evaluate(self, script: str) -> Any:
        return self.wait(self._page.evaluate(script))


class PageSimd:
    """The SimdHost of the page: its methods by name, as a JsProxy has them."""

    def __init__(self, page: SimdPage) -> None:
        self._page = page

    def __getattr__(self, method: str) -> Any:
        page = self._page
        if method in PROMISES:
            return lambda *values: asyncio.wrap_future(page.start(page.call(method, values)))
        return lambda *values: page.wait(page.call(method, values))


@contextmanager
def open_page_host(threads: int | None = None, *, isolated: bool = True, memory64: bool | None = None,
                   flags: tuple[str, ...] = (), before: str = "0") -> Iterator[Any]:
    """A ``bridge.simd.js_host.JsHost`` in a headless Chromium, which is closed at the end; ``page`` is its page.

    ``before`` is a script to run in the page before the host is opened.
    """
    stand_in_for_pyodide()
    from bridge.simd.js_host import JsHost, _host_error
    from tools.page_gpu import JsException

    class PageHost(JsHost):
        async def run(self, *arguments: Any) -> memoryview | None:
            rows = await super().run(*arguments)
            return rows and rows.__buffer__(0)  # which Python looks for by itself from 3.12 on

    page = SimdPage(isolated, flags)
    try:
        page.evaluate(before)
        try:
            page.open_host(json.dumps({"pool": threads, "memory64": memory64}))
        except JsException as error:
            raise _host_error(error) from None
        host = PageHost(PageSimd(page), prefers_memory64=memory64 is True)
        host.page = page
        yield host
        host.close()
    finally:
        page.close()
