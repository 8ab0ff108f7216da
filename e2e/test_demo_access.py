"""The demo page for everyone: contrast, names, keyboard, screen readers, small screens, less motion."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import urljoin

import pytest
from e2e.demo_page import DEMO, DemoPage
from playwright.sync_api import expect

MODELS = Path(__file__).resolve().parent.parent / "web/demo/models.json"
RICH = "**Bold** and `code`\n\n> quote\n\n1. one\n2. two\n\n```py\nprint('a line that is much too long for a telephone')\n```"
SMALL = {"width": 360, "height": 640}


@pytest.fixture
def demo(page, site):
    return DemoPage(page, site.url(DEMO))


def start(demo):
    demo.open()
    demo.option("GPU layers").fill("-1")
    demo.page.locator("#load").click()


def loading(demo):
    demo.open(loadSteps=20, stepMs=30, holdLoadAt=20)
    demo.page.locator("#load").click()
    expect(demo.page.locator("#progress-rate")).not_to_be_empty()


def failed(demo):
    demo.open(loadError={"message": "Failed to fetch model shard: 404 Not Found"})
    demo.page.locator("#load").click()
    expect(demo.alert).to_be_visible()


def ready(demo):
    demo.open().load()


def chat(demo):
    demo.open(answer=RICH).load().ask("One")


def settings(demo):
    chat(demo)
    demo.settings().get_by_label("Top-p").fill("9")


def run(demo):
    chat(demo)
    button = demo.page.get_by_role("button", name="Run", exact=True)
    if button.get_attribute("aria-expanded") != "true":
        button.click()


STATES = [start, loading, failed, ready, chat, settings, run]

# WCAG 2: contrast of every visible piece of text with the nearest opaque background behind it.
LOW_CONTRAST = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (color) => {
    const [r, g, b] = color.map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = rgba(getComputedStyle(at).backgroundColor);
      if (color[3] === 255) return color;
    }
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const check = (element, color, words) => {
    const [a, b] = [luminance(rgba(color)), luminance(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found.push([contrast, words.trim().slice(0, 40)]);
  };
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const element = text.parentElement;
    if (!text.data.trim() || !element.checkVisibility({visibilityProperty: true})) continue;
    if (element.closest(":disabled, .hidden, .skip, [aria-hidden=true], [data-phase=loading] .options")) continue;
    check(element, getComputedStyle(element).color, text.data);
  }
  for (const field of document.querySelectorAll("input, textarea")) {
    if (field.checkVisibility()) check(field, getComputedStyle(field, "::placeholder").color, field.placeholder);
  }
  return {count: found.length, low: found.filter(([contrast]) => contrast < 4.5)};
}"""


STICKING_OUT = """() => [...document.querySelectorAll("body *")]
  .filter((e) => e.checkVisibility() && !e.closest("pre, svg, .hidden, .skip"))
  .filter((e) => { const {left, right} = e.getBoundingClientRect(); return left < -1 || right > innerWidth + 1; })
  .map((e) => e.outerHTML.slice(0, 80))"""
CONTROLS = {"button", "textbox", "combobox", "radio", "link", "progressbar", "meter", "log", "heading"}


@pytest.mark.parametrize("state", STATES)
def test_everyone_can_read_and_operate_it(demo, state):
    """In each state: contrast in both themes, a name for every control, and nothing outside a small screen."""
    state(demo)
    for theme in ("light", "dark"):
        demo.page.emulate_media(color_scheme=theme)
        measured = demo.page.evaluate(LOW_CONTRAST)
        assert measured["count"] > 10
        assert measured["low"] == [], theme

    tree = demo.page.context.new_cdp_session(demo.page).send("Accessibility.getFullAXTree")["nodes"]
    controls = [node for node in tree if not node["ignored"] and node["role"]["value"] in CONTROLS]
    assert len(controls) > 5
    assert [node for node in controls if not node.get("name", {}).get("value")] == []

    demo.page.set_viewport_size(SMALL)
    if state in (settings, run):
        demo.page.get_by_role("button", name=state.__name__.title(), exact=True).click()
        expect(demo.composer).to_be_hidden()
    assert demo.page.evaluate(STICKING_OUT) == []


def test_the_first_tab_stop_leads_past_the_bar(demo):
    demo.open()
    demo.page.keyboard.press("Tab")
    skip = demo.page.get_by_role("link", name="Skip to the conversation")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    demo.page.keyboard.press("Enter")
    expect(demo.page.locator("#main")).to_be_focused()


def test_a_chat_needs_no_mouse(demo):
    """Loads, asks, and opens the settings by keyboard alone; focus is never lost on the way and can always be seen."""
    demo.open()
    demo.page.get_by_label("SmolLM2").focus()
    outline = "getComputedStyle(document.activeElement.closest('.source') ?? document.activeElement).outlineStyle"
    for _ in range(2):  # past the options, to the button
        demo.page.keyboard.press("Tab")
        assert demo.page.evaluate(outline) == "solid"
    demo.page.keyboard.press("Enter")
    expect(demo.composer).to_be_focused()
    demo.page.keyboard.type("One")
    demo.page.keyboard.press("Enter")
    expect(demo.answer).to_have_text("Hello from the mock.")
    expect(demo.composer).to_be_focused()


def test_focus_follows_a_load_that_fails_or_is_cancelled(demo):
    demo.open(holdLoadAt=1)
    demo.page.locator("#load").press("Enter")
    expect(demo.page.get_by_role("button", name="Cancel")).to_be_focused()
    demo.page.keyboard.press("Enter")
    expect(demo.page.locator("#load")).to_be_focused()
    demo.change_script(holdLoadAt=None, loadError={"message": "out of memory"})
    demo.page.keyboard.press("Enter")
    expect(demo.alert).to_have_text(re.compile("^There is not enough memory"))
    expect(demo.page.locator("#load")).to_be_focused()


def test_on_a_small_screen_a_pane_covers_the_chat_and_escape_returns(demo):
    demo.page.set_viewport_size(SMALL)
    demo.open().load()
    opener = demo.page.get_by_role("button", name="Settings", exact=True)
    opener.click()
    expect(demo.page.get_by_role("heading", name="Settings")).to_be_focused()
    expect(demo.composer).to_be_hidden()
    demo.page.keyboard.press("Escape")
    expect(demo.composer).to_be_visible()
    expect(opener).to_be_focused()


def test_on_a_wide_screen_a_pane_stands_beside_the_chat(demo):
    demo.page.set_viewport_size({"width": 1280, "height": 800})
    demo.open().load()
    for name in ("Settings", "Run"):
        demo.page.get_by_role("button", name=name, exact=True).click()
        expect(demo.page.get_by_role("complementary", name=name)).to_be_visible()
        expect(demo.composer).to_be_visible()
        expect(demo.page.get_by_role("complementary")).to_have_count(1)


def test_an_answer_is_spoken_in_sentences_not_in_tokens(demo):
    sentences = [f"This is sentence number {n}." for n in range(60)]
    demo.open(answer=" ".join(sentences), tokenMs=15).load()
    demo.page.evaluate("""() => {
      globalThis.spoken = [];
      new MutationObserver(() => spoken.push(document.getElementById("announcer").textContent))
        .observe(document.getElementById("announcer"), {childList: true});
    }""")
    demo.send("Speak")
    expect(demo.outcome).not_to_be_empty(timeout=30_000)
    spoken = demo.page.evaluate("spoken")
    assert 2 <= len(spoken) <= 10, "once every few seconds"
    assert " ".join(spoken) == " ".join(sentences), "all of it, once, cut between sentences"
    expect(demo.page.get_by_role("log")).to_have_attribute("aria-live", "off")


def test_a_stopped_answer_is_announced(demo):
    demo.open(answer="word " * 100, tokenMs=20).load()
    demo.send("Speak")
    expect(demo.answer).to_contain_text("word")
    demo.page.keyboard.press("Escape")
    expect(demo.page.locator("#announcer")).to_have_text(re.compile(r"The answer was stopped\.$"))


@pytest.mark.parametrize(("motion", "moving"), [("no-preference", True), ("reduce", False)])
def test_motion_stops_where_less_of_it_is_wished(demo, motion, moving):
    demo.page.emulate_media(reduced_motion=motion)
    demo.open(answer="word " * 200, tokenMs=20).load()
    demo.send("Speak")
    expect(demo.answer).to_contain_text("word")
    assert (demo.page.evaluate("document.getAnimations().length") > 0) is moving


def test_the_theme_follows_the_system_until_it_is_chosen_and_is_kept(demo):
    color = "getComputedStyle(document.body).color"
    demo.page.emulate_media(color_scheme="dark")
    demo.open()
    dark = demo.page.evaluate(color)
    button = demo.page.get_by_role("button", name=re.compile("^Theme: "))
    expect(button).to_have_accessible_name("Theme: system. Change to light")
    button.click()
    light = demo.page.evaluate(color)
    assert light != dark
    demo.reload()
    assert demo.page.evaluate(color) == light
    button.click()
    assert demo.page.evaluate(color) == dark
    button.click()
    expect(button).to_have_accessible_name("Theme: system. Change to light")


def test_the_page_follows_the_end_of_an_answer_unless_the_reader_scrolls_up(demo):
    demo.page.set_viewport_size({"width": 800, "height": 500})
    demo.open(answer="\n\n".join(f"Paragraph {n}" for n in range(80)), tokenMs=10).load()
    demo.send("Write")
    below = "() => { const m = document.getElementById('main'); return m.scrollHeight - m.scrollTop - m.clientHeight }"
    expect(demo.answer).to_contain_text("Paragraph 30")
    assert demo.page.evaluate(below) < 60
    demo.page.locator("#main").evaluate("(main) => main.scrollTo(0, 0)")
    latest = demo.page.get_by_role("button", name="Latest")
    expect(latest).to_be_visible()
    expect(demo.outcome).not_to_be_empty()
    assert demo.page.locator("#main").evaluate("(main) => main.scrollTop") == 0
    latest.click()
    assert demo.page.evaluate(below) < 60
    expect(latest).to_be_hidden()


def test_the_page_asks_for_nothing_from_other_places(demo):
    asked = []
    demo.page.on("request", lambda request: asked.append(request.url))
    chat(demo)
    origin = demo.page.evaluate("location.origin")
    assert [url for url in asked if not url.startswith((origin, "data:", "blob:"))] == []


def test_the_manifest_names_models_that_the_site_has(site):
    """The size that the page tells people is the size that they will download."""
    for model in json.loads(MODELS.read_text())["models"]:
        assert set(model) == {"name", "file", "bytes", "description"}
        path = urljoin(DEMO, model["file"])
        assert (site.folder / path.lstrip("/")).stat().st_size == model["bytes"]
