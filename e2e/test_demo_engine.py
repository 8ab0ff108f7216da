"""The demo page with the real bridge and engine: a small model answers, and wrong files are refused in sentences."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from e2e.demo_page import DEMO, DemoPage
from e2e.fault_server import Fault
from playwright.sync_api import expect

MODELS = Path(__file__).resolve().parent.parent / "tests" / "data" / "models"
TINY = MODELS / "qwen3-f16.gguf"
LOAD_MS = 120_000  # starting Python and compiling shaders, on a machine shared with others


@pytest.fixture
def demo(page, site):
    demo = DemoPage(page, site.url(DEMO))
    page.goto(site.url(DEMO))
    return demo.wait()


def choose_address(demo, address):
    demo.page.get_by_label("From a web address").check()
    demo.page.locator("#model-url").fill(address)


def load(demo):
    demo.page.locator("#load").click()
    expect(demo.composer).to_be_visible(timeout=LOAD_MS)


@pytest.mark.parametrize(
    ("place", "layers", "engine"),
    [
        ("worker", "99", "BackendWebGPUAdapter.+Graphicsin useRuns ina worker"),
        ("page", "0", "BackendWASM SIMD.*Runs inthe page’s thread"),
        ("worker", "0", "BackendWASM SIMD.*Runs ina worker"),
    ],
)
def test_a_local_file_answers(demo, place, layers, engine):
    demo.page.get_by_label("From this computer").check()
    demo.page.locator("#model-file").set_input_files(TINY)
    demo.option("Context size").select_option("1024")
    demo.option("Runs in").select_option(place)
    demo.option("GPU layers").fill(layers)
    demo.settings().get_by_label("Longest answer").fill("8")
    demo.settings().get_by_label("Temperature").fill("0")
    load(demo)
    demo.send("Hello there, how are you?")
    expect(demo.outcome).to_have_text(re.compile(r"^\d tokens?"), timeout=LOAD_MS)
    expect(demo.answer).not_to_have_text(re.compile("^(The model ended.*)?$"))
    expect(demo.alert).to_have_count(0)
    demo.page.get_by_role("button", name="Run", exact=True).click()
    expect(demo.page.locator("#engine-facts")).to_have_text(re.compile(engine))
    expect(demo.page.locator("#model-facts")).to_contain_text("Architectureqwen3QuantisationF16")
    expect(demo.page.locator("#context-text")).to_have_text(re.compile(r"^\d+ of 1,024 tokens used$"))
    demo.page.get_by_role("button", name="Unload").click()
    expect(demo.page.locator("#load")).to_be_focused()


def test_wrong_files_are_refused_and_the_right_one_loads_after_them(demo, site):
    wrong = {
        site.url("/models/none.gguf"): "There is no file at this address (status 404).",
        site.fault("page.gguf", Fault(b"<!doctype html><title>not a model</title>" * 100)): "This is not a GGUF model file.",
        site.fault("cut.gguf", Fault(TINY.read_bytes()[:2000])): "The model file is cut off.",
    }
    for address, sentence in wrong.items():
        choose_address(demo, address)
        demo.page.locator("#load").click()
        expect(demo.alert).to_have_text(re.compile(re.escape(sentence)), timeout=LOAD_MS)
        expect(demo.page.locator("#load")).to_be_focused()
    choose_address(demo, site.fault("tiny.gguf", Fault(TINY)))
    load(demo)


def test_a_server_that_keeps_its_files_to_itself_is_explained(demo, other_site):
    choose_address(demo, other_site.url("/models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    demo.page.locator("#load").click()
    expect(demo.alert).to_have_text(re.compile(r"does not let other sites read its files \(CORS\)"), timeout=LOAD_MS)


def test_a_load_can_be_cancelled_in_mid_transfer(demo, site):
    choose_address(demo, site.fault("slow.gguf", Fault(TINY, bytes_per_second=20_000)))
    demo.page.locator("#load").click()
    expect(demo.page.locator("#progress-bytes")).to_have_text(re.compile(r"of"), timeout=LOAD_MS)
    demo.page.get_by_role("button", name="Cancel").click()
    expect(demo.notice).to_have_text("Loading was cancelled.")
    choose_address(demo, site.fault("tiny.gguf", Fault(TINY)))
    load(demo)
