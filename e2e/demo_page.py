"""Drives the demo page with a scripted bridge (mock_bridge.js) in the place of the real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, expect

MOCK = Path(__file__).with_name("mock_bridge.js")
START_TIMEOUT_MS = 20_000
DEMO = "/web/demo/index.html"


class DemoPage:
    """One visit. ``script`` says what the bridge does (see mock_bridge.js); ``calls`` what it was asked to do."""

    def __init__(self, page: Page, address: str):
        self.page = page
        self.address = address

    def open(self, **script: Any) -> DemoPage:
        self.page.route("**/web/llama_webgpu_bridge.js", lambda route: route.fulfill(path=MOCK, content_type="text/javascript"))
        self.page.add_init_script(f"globalThis.bridgeScript ??= {json.dumps(script)}")
        self.page.goto(self.address)
        return self.wait()

    def reload(self) -> DemoPage:
        self.page.reload()
        return self.wait()

    def wait(self) -> DemoPage:
        """Until the page has taken control of its form."""
        self.page.locator("#load-form input:checked").wait_for(timeout=START_TIMEOUT_MS)
        return self

    def change_script(self, **script: Any) -> None:
        self.page.evaluate("(script) => Object.assign(globalThis.bridgeScript, script)", script)

    def load(self) -> DemoPage:
        self.page.locator("#load").click()
        expect(self.composer).to_be_visible()
        return self

    def ask(self, text: str) -> DemoPage:
        """Asks and waits until the answer is complete."""
        self.send(text)
        expect(self.page.locator("#send")).to_be_visible()
        return self

    def send(self, text: str) -> None:
        self.composer.fill(text)
        self.composer.press("Enter")

    def option(self, name: str) -> Locator:
        """A control among the options for loading, which are folded away at first."""
        if self.page.locator(".options").get_attribute("open") is None:
            self.page.get_by_text("Options for loading").click()
        return self.page.get_by_label(name, exact=True)

    def settings(self) -> Locator:
        button = self.page.get_by_role("button", name="Settings", exact=True)
        if button.get_attribute("aria-expanded") != "true":
            button.click()
        return self.page.locator("#settings")

    def calls(self, method: str) -> list[dict]:
        return [call for call in self.page.evaluate("globalThis.bridgeCalls ?? []") if call["method"] == method]

    @property
    def composer(self) -> Locator:
        return self.page.get_by_label("Your message")

    @property
    def alert(self) -> Locator:
        return self.page.locator("#alert-region p")

    @property
    def notice(self) -> Locator:
        return self.page.locator("#notice-region p")

    @property
    def answer(self) -> Locator:
        """The last answer's text."""
        return self.page.locator(".message.assistant").last.locator(".body")

    @property
    def outcome(self) -> Locator:
        return self.page.locator(".message.assistant").last.locator(".outcome")
