"""Takes pictures of the demo page in every state, to look at: ``python -m tools.demo_screenshots [--out DIR] [STATE …]``.

No model runs: the page talks to e2e/mock_bridge.js, which stands in for the bridge. Files are named
STATE-WIDTH-THEME.png; the default folder is build/screenshots.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from bridge.serve import create_app, running_server
from tools.assets import BUILD, ROOT
from tools.browser import require_browser

MOCK = ROOT / "e2e/mock_bridge.js"
WIDTHS = {"desktop": (1280, 800), "phone": (390, 844), "small": (360, 640)}
THEMES = ("light", "dark")

ANSWER = """**Tides** are the sea answering the Moon. Three things matter:

1. The Moon pulls the near side of the ocean a little *more* than the Earth below it.
2. On the far side the pull is weaker, so water lags behind and bulges too.
3. The Earth turns through both bulges, so most coasts see two high tides a day.

A rough height for one day, with `period` in hours:

```python
def tide(hour, height=1.2, period=12.42):
    \"\"\"Height above mean sea level, in metres.\"\"\"
    return height * math.cos(2 * math.pi * hour / period)  # a very simple model of a very complicated sea
```

Winds, the shape of the coast and the Sun all change the picture."""


@dataclass(frozen=True)
class State:
    """``act`` brings the page there; ``script`` is what the mock does on the way."""

    act: Callable[[Page], None]
    script: dict = field(default_factory=dict)


def empty(page: Page) -> None:
    page.locator("#load").wait_for()


def load(page: Page) -> None:
    page.locator("#load").click()
    page.locator("#composer").wait_for()


def loading(page: Page) -> None:
    page.locator("#load").click()
    page.locator("#progress-left:not(:empty)").wait_for()


def ask(page: Page, text: str) -> None:
    page.locator("#prompt").fill(text)
    page.keyboard.press("Enter")


def chatting(page: Page) -> None:
    load(page)
    ask(page, "Why are there tides? Show me some code too.")
    page.get_by_text("first token after").wait_for()


def streaming(page: Page) -> None:
    load(page)
    ask(page, "Why are there tides? Show me some code too.")
    page.get_by_text("def tide").wait_for()


def broken(page: Page) -> None:
    page.locator("#load").click()
    page.get_by_role("alert").locator("p").wait_for()


def elsewhere(page: Page) -> None:
    page.get_by_label("From a web address").check()
    page.get_by_text("Options for loading").click()
    page.locator("#load").click()


def with_pane(name: str) -> Callable[[Page], None]:
    def act(page: Page) -> None:
        chatting(page)
        if page.locator(f"#open-{name}").get_attribute("aria-expanded") != "true":
            page.locator(f"#open-{name}").click()

    return act


def wrong_setting(page: Page) -> None:
    with_pane("settings")(page)
    page.get_by_label("Top-p").fill("1.5")


FAST = {"answer": ANSWER, "tokenMs": 3, "prefillMs": 120, "runtimeNotes": "boot:plain;n_ubatch:64"}
STATES = {
    "empty": State(empty),
    "elsewhere": State(elsewhere),
    "loading": State(loading, {"loadSteps": 100, "stepMs": 60}),
    "loaded": State(load),
    "streaming": State(streaming, {**FAST, "tokenMs": 60}),
    "chatting": State(chatting, FAST),
    "error": State(broken, {"loadError": {"message": "Failed to fetch model shard: 404 Not Found"}}),
    "run": State(with_pane("run"), FAST),
    "settings": State(with_pane("settings"), FAST),
    "wrong_setting": State(wrong_setting, FAST),
}


def take(browser: Browser, address: str, name: str, width: str, theme: str, out: Path) -> None:
    w, h = WIDTHS[width]
    state = STATES[name]
    context = browser.new_context(viewport={"width": w, "height": h}, color_scheme=theme, device_scale_factor=1.5 if w < 600 else 1)
    page = context.new_page()
    page.on("pageerror", lambda error: print(f"{name}-{width}-{theme}: {error}"))
    page.route("**/web/llama_webgpu_bridge.js", lambda route: route.fulfill(path=MOCK, content_type="text/javascript"))
    page.add_init_script(f"globalThis.bridgeScript = {json.dumps(state.script)}")
    page.goto(f"{address}/web/demo/index.html")
    state.act(page)
    page.screenshot(path=out / f"{name}-{width}-{theme}.png")
    context.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.demo_screenshots", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=BUILD / "screenshots")
    parser.add_argument("--widths", nargs="+", choices=WIDTHS, default=["desktop", "phone"])
    parser.add_argument("--themes", nargs="+", choices=THEMES, default=THEMES)
    parser.add_argument("states", nargs="*", default=list(STATES), help=f"any of: {', '.join(STATES)}")
    options = parser.parse_args()
    if unknown := set(options.states) - STATES.keys():
        parser.error(f"there is no state {', '.join(sorted(unknown))}; there are: {', '.join(STATES)}")
    options.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright, running_server(create_app(ROOT)) as address:
        browser = playwright.chromium.launch(executable_path=require_browser(), args=["--no-sandbox", "--disable-gpu"])
        for name in options.states:
            for width in options.widths:
                for theme in options.themes:
                    take(browser, address, name, width, theme, options.out)
        browser.close()


if __name__ == "__main__":
    main()
