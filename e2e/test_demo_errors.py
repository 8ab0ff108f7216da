"""What the demo page says when something fails, and that the next attempt works; with a scripted bridge."""

from __future__ import annotations

import pytest
from e2e.demo_page import DEMO, DemoPage
from playwright.sync_api import expect

LONG = " ".join(f"word{n}" for n in range(200))


@pytest.fixture
def demo(page, site):
    return DemoPage(page, site.url(DEMO))


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        ({"message": "Failed to fetch model shard: 404 Not Found"},
         "There is no file at this address (status 404). Check the address, or choose another model."),
        ({"message": "Failed to fetch model shard: 403 Forbidden"},
         "The server does not give this file to everyone (status 403). Download it where you are signed in, and choose it from this computer."),
        ({"message": "Failed to fetch model shard: 503 Service Unavailable"},
         "The server did not send the file (status 503). Wait a moment and load it again."),
        ({"message": 'Failed to load GGUF model: not a GGUF file: it starts with bytes 3c 21 64 6f, not with 47 47 55 46 ("GGUF")'},
         "This is not a GGUF model file. Choose a file that ends in .gguf; an address must lead to the file itself, not to a page about it."),
        ({"message": "Failed to fetch", "name": "TypeError"},
         "The file could not be read: the server did not answer, or it does not let other sites read its files (CORS)."
         " Check the connection, or download the file and choose it from this computer."),
        ({"message": "Failed to fetch model shard: the connection broke", "code": "NETWORK"},
         "The file could not be read: the server did not answer, or it does not let other sites read its files (CORS)."
         " Check the connection, or download the file and choose it from this computer."),
        ({"message": "Failed to load GGUF model: the architecture 'zebra' is not supported; supported are gemma2, llama", "code": "UNSUPPORTED"},
         "The architecture 'zebra' is not supported; supported are gemma2, llama. Choose another model, or another file of this one."),
        ({"message": "this device has no WebGPU adapter", "code": "DEVICE_FAILED"},
         "This device has no WebGPU adapter."
         " Use a current Chrome, Edge or Safari with graphics acceleration on, or set GPU layers to 0."),
        ({"message": "tensor 'output.weight' has shape (404, 4); (500, 4) is needed"},
         "Tensor 'output.weight' has shape (404, 4); (500, 4) is needed. Load it again, or choose another model."),
        ({"message": ""}, "Something went wrong, and the engine did not say what. Load it again, or choose another model."),
    ],
)
def test_a_failed_load_is_a_sentence_and_advice_and_the_next_one_works(demo, error, sentence):
    demo.open(loadError=error)
    demo.page.locator("#load").click()
    expect(demo.page.get_by_role("alert")).to_contain_text(sentence)
    expect(demo.alert).to_have_text(sentence)
    demo.change_script(loadError=None)
    demo.load()
    expect(demo.alert).to_have_count(0)


def test_a_missing_bridge_is_a_sentence(demo, messages):
    demo.page.route("**/web/llama_webgpu_bridge.js", lambda route: route.abort())
    demo.page.goto(demo.address)
    demo.wait().page.locator("#load").click()
    expect(demo.alert).to_contain_text("could not be read")
    messages.expect("ERR_FAILED")


def test_an_answer_that_fails_at_once_leaves_the_question_to_try_again(demo):
    error = {"message": "the prompt has 3000 tokens, which exceeds the context size of 2048", "code": "CONTEXT_OVERFLOW"}
    demo.open(answerError=error).load()
    demo.send("One")
    expect(demo.alert).to_have_text(
        "The prompt has 3000 tokens, which exceeds the context size of 2048."
        " Write less, clear the chat, or unload the model and load it with a larger context."
    )
    expect(demo.page.locator(".message")).to_have_count(1)
    demo.change_script(answerError=None)
    demo.page.get_by_role("button", name="Try again").click()
    expect(demo.answer).to_have_text("Hello from the mock.")
    expect(demo.alert).to_have_count(0)


def test_an_answer_that_breaks_off_keeps_its_text(demo):
    demo.open(answer=LONG, answerError={"message": "the device was lost: power"}, failAfter=10).load()
    demo.send("Count")
    expect(demo.alert).to_have_text("The device was lost: power. Load the model again; if that fails too, set GPU layers to 0 or use another browser.")
    expect(demo.answer).to_contain_text("word9")
    expect(demo.outcome).to_have_text("failed")
    demo.change_script(answer="Back.", answerError=None)
    demo.ask("Again")
    expect(demo.answer).to_have_text("Back.")


@pytest.mark.parametrize(
    ("world", "sentence"),
    [
        ("Object.defineProperty(globalThis, 'isSecureContext', {value: false})", "Browsers switch WebGPU off on pages opened over plain http."),
        ("Object.defineProperty(Navigator.prototype, 'gpu', {get: () => undefined})", "This browser offers no WebGPU"),
    ],
)
def test_a_browser_without_webgpu_is_told_at_once(demo, world, sentence):
    demo.page.add_init_script(world)
    demo.open()
    expect(demo.notice).to_contain_text(sentence)


def test_the_page_works_without_cross_origin_isolation(page, other_site):
    demo = DemoPage(page, other_site.url(DEMO)).open().load().ask("One")
    expect(demo.answer).to_have_text("Hello from the mock.")
    expect(page.locator("#browser-facts")).to_contain_text("no, so the processor works on one thread")
