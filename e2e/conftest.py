"""Fixtures for tests in a real browser. What a test gets:

``site``      the built site on a local server, cross-origin isolated. ``site.url("/web/boot.js")`` is an address;
              ``site.fault(name, Fault(body, …))`` registers a misbehaving address (see fault_server.py) and returns it;
              after the test its registrations are gone. ``/_test/…`` serves e2e/pages; ``/_test/blank.html`` is empty.
``page``      a fresh Playwright page (own context, so own Cache Storage) on ``/_test/blank.html``, WebGPU enabled on the
              software adapter. Use ``page.evaluate("async (x) => …", x)``; modules are imported by absolute path:
              ``const {bootEngine} = await import("/web/boot.js")``.
``messages``  what the page said: ``messages.console`` (every console line) and ``messages.errors`` (uncaught exceptions,
              unhandled rejections, console errors). A test fails at the end when ``messages.errors`` is not empty: one
              that provokes errors takes them out with ``messages.expect("part of the text")``.
``other_site``  the same site on another origin (another port) without isolation headers, with CORS closed.

``make site`` must have run (``make test`` does it). Run one file: ``.venv/bin/python -m pytest e2e/test_boot.py -s``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from bridge.serve import create_app, running_server
from e2e.fault_server import Fault, FaultServer
from tools.browser import FLAGS, require_browser

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "site"
PAGE_TIMEOUT_MS = 120_000  # two cores shared by the server, the browser and software WebGPU


@dataclass
class Site:
    """Addresses of one running server and the faults registered on it."""

    address: str
    faults: FaultServer
    folder: Path = SITE

    def url(self, path: str) -> str:
        return self.address + path

    def fault(self, name: str, fault: Fault) -> str:
        return self.url(self.faults.add(name, fault))


@dataclass
class Messages:
    console: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    _expected: list[str] = field(default_factory=list)

    def expect(self, part: str) -> list[str]:
        """Removes the errors whose text holds ``part`` and returns them; at least one must be there, or have been before.

        More of them may still come: the console is told of a failed request when it pleases the browser.
        """
        found = [text for text in self.errors if part in text]
        assert found or part in self._expected, f"no error with {part!r} among {self.errors}"
        self.errors = [text for text in self.errors if part not in text]
        self._expected.append(part)
        return found

    def add_error(self, text: str) -> None:
        if not any(part in text for part in self._expected):
            self.errors.append(text)


def _run_site(isolated: bool):
    if not (SITE / "wheels" / "wheel.json").is_file():
        pytest.fail("build/site is not there: run 'make site' first", pytrace=False)
    faults = FaultServer()
    routes = [faults.route, Mount("/_test", StaticFiles(directory=ROOT / "e2e" / "pages"))]
    app = create_app(SITE, isolated=isolated, routes=routes)
    # Dropped connections are what some tests ask for: the server's log of them is noise.
    with running_server(app, log_level="critical") as address:
        yield Site(address, faults)


@pytest.fixture(scope="session")
def isolated_site():
    yield from _run_site(isolated=True)


@pytest.fixture(scope="session")
def plain_site():
    yield from _run_site(isolated=False)


@pytest.fixture
def site(isolated_site):
    yield isolated_site
    isolated_site.faults.clear()


@pytest.fixture
def other_site(plain_site):
    yield plain_site
    plain_site.faults.clear()


@pytest.fixture(scope="session")
def browser() -> Browser:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=require_browser(), args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def messages() -> Messages:
    return Messages()


@pytest.fixture
def page(browser: Browser, site: Site, messages: Messages) -> Page:
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(PAGE_TIMEOUT_MS)
    watch(page, messages)
    page.goto(site.url("/_test/blank.html"))
    yield page
    context.close()
    assert not messages.errors, f"the page reported errors: {messages.errors}"


def watch(page: Page, messages: Messages) -> None:
    """Records the page's console and uncaught errors in ``messages``."""

    def on_console(message):
        messages.console.append(f"{message.type}: {message.text}")
        if message.type == "error":
            messages.add_error(message.text)

    page.on("console", on_console)
    page.on("pageerror", lambda error: messages.add_error(str(error)))
