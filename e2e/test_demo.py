"""The demo page with a scripted bridge: loading, chatting, stopping, settings, and what survives a reload."""

from __future__ import annotations

import re

import pytest
from e2e.demo_page import DEMO, DemoPage
from playwright.sync_api import expect

LONG = " ".join(f"word{n}" for n in range(200))
TWO_FACTS = re.compile(r"^\s*[^.]+ nothing you write leaves it\.\s+[^.]+\s98\.4\sMB\.\s*$")


@pytest.fixture
def demo(page, site):
    return DemoPage(page, site.url(DEMO))


# Loading


def test_the_empty_page_says_where_the_model_runs_and_what_it_costs(demo):
    demo.open()
    expect(demo.page.locator(".lede")).to_have_text(TWO_FACTS)
    expect(demo.page.locator("#load")).to_have_text("Load model, 98.4 MB")
    expect(demo.composer).to_be_hidden()
    assert demo.calls("constructor") == [], "the engine starts only when it is asked for"


def test_the_form_cannot_be_sent_before_the_page_is_ready(demo, messages):
    demo.page.route("**/app.js", lambda route: route.abort())
    demo.page.goto(demo.address)
    expect(demo.page.locator("#load")).to_be_disabled()
    messages.expect("ERR_FAILED")


def test_a_load_shows_bytes_rate_and_time_left_without_moving_anything(demo):
    demo.open(loadSteps=60, stepMs=20, holdLoadAt=50)
    demo.page.locator("#load").click()
    places = "() => ['#cancel-load', '.span', '#progress-bytes', '#progress-rate', '#progress-left']" \
        ".map((s) => document.querySelector(s).getBoundingClientRect()).map(({x, y, height}) => [x, y, height].map(Math.round))"
    expect(demo.page.locator("#progress-bytes")).to_have_text(re.compile(r"[\d.]+\sMB of 98\.4\sMB"))
    early = demo.page.evaluate(places)
    expect(demo.page.locator("#progress-rate")).to_have_text(re.compile(r"^[\d.]+\s[MG]B/s$"))
    expect(demo.page.locator("#progress-left")).to_have_text(re.compile(r"^\d+ s left$"))
    late = demo.page.evaluate(places)
    assert [place[:2] for place in early] == [place[:2] for place in late]
    expect(demo.page.get_by_role("progressbar", name="Loading the model")).to_have_attribute("value", re.compile(r"^0\.[1-9]"))


def test_a_cancelled_load_leaves_a_page_that_loads(demo):
    demo.open(holdLoadAt=3)
    demo.page.locator("#load").click()
    demo.page.get_by_role("button", name="Cancel").click()
    expect(demo.notice).to_have_text("Loading was cancelled.")
    expect(demo.alert).to_have_count(0)
    demo.change_script(holdLoadAt=None)
    demo.load()
    assert len(demo.calls("constructor")) == 1, "the engine that is already started is used again"


def test_the_options_for_loading_reach_the_bridge(demo):
    demo.open()
    demo.option("Context size").select_option("4096")
    demo.option("Runs in").select_option("page")
    demo.option("GPU layers").fill("7")
    demo.load()
    (made,), (load,) = demo.calls("constructor"), demo.calls("loadModelFromUrl")
    assert made["config"] == {"disableWorker": True}
    assert load["options"] == {"nCtx": 4096, "useCache": True, "nGpuLayers": 7}
    assert load["url"].endswith("/models/SmolLM2-135M-Instruct.Q4_1.gguf")


def test_another_place_to_run_means_another_engine(demo):
    demo.open().load()
    demo.page.get_by_role("button", name="Unload").click()
    demo.option("Runs in").select_option("page")
    demo.load()
    assert [call["config"]["disableWorker"] for call in demo.calls("constructor")] == [False, True]
    assert len(demo.calls("dispose")) == 1


def test_wrong_gpu_layers_are_refused_in_a_sentence(demo):
    demo.open()
    for layers in ("-1", "2.5", "many", "1000"):
        demo.option("GPU layers").fill(layers)
        demo.page.locator("#load").click()
        expect(demo.page.locator("#gpu-layers-problem")).to_have_text(
            f"GPU layers is “{layers}”; it must be a whole number from 0 to 999, or empty."
        )
    assert demo.calls("loadModelFromUrl") == []


def test_a_wrong_address_is_refused_where_it_was_typed(demo):
    problems = {
        "": "Paste the address of a GGUF file.",
        "http://": "This is not a web address.",
        "ftp://a.example/m.gguf": "The address begins with “ftp:”; it must begin with https: or http:.",
        "javascript:alert(1)": "The address begins with “javascript:”; it must begin with https: or http:.",
    }
    demo.open()
    demo.page.get_by_label("From a web address").check()
    for address, problem in problems.items():
        demo.page.locator("#model-url").fill(address)
        demo.page.locator("#load").click()
        expect(demo.page.locator("#url-problem")).to_have_text(problem)
        expect(demo.page.locator("#model-url")).to_be_focused()
    assert demo.calls("loadModelFromUrl") == []


def test_a_typed_address_loads_and_is_kept(demo):
    demo.open()
    demo.page.get_by_label("From a web address").check()
    demo.page.locator("#model-url").fill(" https://a.example/m.gguf ")
    demo.load()
    assert demo.calls("loadModelFromUrl")[0]["url"] == "https://a.example/m.gguf"
    demo.reload()
    expect(demo.page.get_by_label("From a web address")).to_be_checked()
    expect(demo.page.locator("#model-url")).to_have_value("https://a.example/m.gguf")


READ_BLOB = "async () => (await fetch(bridgeCalls.find((call) => call.method === 'loadModelFromUrl').url)).text()"


def test_a_picked_file_is_read_in_place_and_not_kept(demo):
    demo.open()
    demo.page.get_by_label("From this computer").check()
    demo.page.locator("#load").click()
    expect(demo.page.locator("#file-problem")).to_have_text("Choose a file first.")
    demo.page.locator("#model-file").set_input_files({"name": "tiny.gguf", "mimeType": "", "buffer": b"GGUF and more"})
    expect(demo.page.locator(".lede")).to_contain_text("nothing is downloaded")
    demo.load()
    assert demo.calls("loadModelFromUrl")[0]["options"]["useCache"] is False
    assert demo.page.evaluate(READ_BLOB) == "GGUF and more"
    assert "tiny.gguf" not in demo.page.evaluate("JSON.stringify({...localStorage})")
    demo.reload()
    expect(demo.page.get_by_label("SmolLM2")).to_be_checked()


def test_a_dropped_file_is_chosen(demo):
    demo.open()
    demo.page.evaluate("""() => {
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File(["GGUF dropped"], "dropped.gguf"));
      for (const type of ["dragover", "drop"]) document.body.dispatchEvent(new DragEvent(type, {dataTransfer, bubbles: true}));
    }""")
    expect(demo.page.locator("#file-note")).to_contain_text("dropped.gguf, 12 bytes")
    demo.load()
    assert demo.page.evaluate(READ_BLOB) == "GGUF dropped"


def test_an_empty_file_is_refused(demo):
    demo.open()
    demo.page.get_by_label("From this computer").check()
    demo.page.locator("#model-file").set_input_files({"name": "none.gguf", "mimeType": "", "buffer": b""})
    demo.page.locator("#load").click()
    expect(demo.page.locator("#file-problem")).to_have_text("This file is empty.")


def test_unloading_frees_the_engine_and_keeps_the_chat(demo):
    demo.open().load().ask("Hello?")
    demo.page.get_by_role("button", name="Unload").click()
    expect(demo.page.get_by_role("heading", name="Choose a model")).to_be_visible()
    expect(demo.answer).to_have_text("Hello from the mock.")
    assert [call["again"] for call in demo.calls("dispose")] == [False]


def test_the_bar_names_the_model(demo):
    demo.open().load()
    expect(demo.page.locator("#loaded-name")).to_have_text("SmolLM2 135M Instruct")
    demo.page.get_by_role("button", name="Unload").click()
    demo.page.get_by_label("From a web address").check()
    demo.page.locator("#model-url").fill("https://a.example/m.gguf")
    demo.load()
    expect(demo.page.locator("#loaded-name")).to_have_text("Mock 135M")


def test_a_software_adapter_is_named_as_the_reason_for_slow_answers(demo):
    demo.open(adapter="google swiftshader").load()
    expect(demo.notice).to_contain_text("software graphics adapter")


# Chatting


def test_an_answer_streams_and_ends_with_its_figures(demo):
    demo.open(answer=LONG, tokenMs=15).load()
    demo.send("Count")
    expect(demo.answer).to_contain_text("word20")
    expect(demo.page.get_by_role("button", name="Stop the answer")).to_be_visible()
    demo.change_script(tokenMs=0)
    expect(demo.outcome).to_have_text(re.compile(r"^200 tokens · [\d.]+ tokens/s · first token after [\d.]+ s$"))
    expect(demo.answer).to_have_text(LONG)
    expect(demo.page.locator("#context-text")).to_have_text("207 of 2,048 tokens used")
    expect(demo.page.locator("#figures")).to_have_text(re.compile(r"Answer[\d.]+tok/sPrompt[\d.]+tok/sFirst token[\d.]+s"))


def test_without_usage_the_answer_is_shown_without_figures(demo):
    demo.open(supportsUsage=False).load().ask("Hello?")
    expect(demo.answer).to_have_text("Hello from the mock.")
    expect(demo.outcome).to_have_text("")


def test_the_whole_conversation_goes_through_the_models_template(demo):
    demo.open().load()
    demo.settings().get_by_label("System prompt").fill("Be brief.")
    demo.ask("One").ask("Two")
    prompts = [call["prompt"] for call in demo.calls("createCompletion")]
    assert prompts == [
        "<|system|>Be brief.<|user|>One<|assistant|>",
        "<|system|>Be brief.<|user|>One<|assistant|>Hello from the mock.<|user|>Two<|assistant|>",
    ]


def test_a_template_that_fails_is_replaced_by_a_plain_format_with_a_note(demo):
    demo.open(templateError={"message": "the template calls raise_exception"}).load().ask("One")
    expect(demo.page.locator(".note")).to_have_text(
        "A plain format was used in the place of the model’s own chat template. The template calls raise_exception."
    )
    assert demo.calls("createCompletion")[0]["prompt"] == "user: One\nassistant: "


def test_a_model_without_a_template_is_asked_in_a_plain_format_with_a_note(demo):
    demo.open(chatTemplate="").load().ask("One")
    expect(demo.page.locator(".note")).to_have_text("This model was made without a chat template, so a plain format was used.")
    assert demo.calls("createCompletion")[0]["prompt"] == "user: One\nassistant: "


@pytest.mark.parametrize("answer", ["", " \n "])
def test_an_answer_without_a_word_says_so(demo, answer):
    demo.open(answer=answer).load().ask("One")
    expect(demo.answer).to_have_text("The model ended its answer without a word.")


def test_turns_that_no_longer_fit_are_left_out_with_a_note(demo):
    demo.open(tokensPerCharacter=1).load().ask("A" * 700).ask("B" * 700).ask("C" * 700)
    last = demo.calls("createCompletion")[-1]["prompt"]
    assert last.startswith("<|user|>B") and last.endswith("C<|assistant|>")
    assert len(last) <= 2048 - 512, "a quarter of the context is left for the answer"
    expect(demo.page.locator(".message").last.locator(".note")).to_contain_text("no longer fit the context and were left out")


@pytest.mark.parametrize("place", ["worker", "page"])
def test_a_stopped_answer_keeps_its_text_and_the_next_one_works(demo, place):
    demo.open(answer=LONG, tokenMs=15)
    demo.option("Runs in").select_option(place)
    demo.load()
    demo.send("Count")
    expect(demo.answer).to_contain_text("word5")
    demo.page.keyboard.press("Escape")
    expect(demo.outcome).to_have_text(re.compile(r"^\d+ tokens · .* · stopped$"))
    expect(demo.answer).to_contain_text("word5")
    expect(demo.answer).not_to_contain_text("word199")
    demo.change_script(answer="Back.")
    demo.ask("Again")
    expect(demo.answer).to_have_text("Back.")


def test_regenerating_asks_the_same_question_again(demo):
    demo.open().load().ask("One")
    demo.change_script(answer="Another.")
    demo.page.get_by_role("button", name="Regenerate").click()
    expect(demo.answer).to_have_text("Another.")
    first, second = (call["prompt"] for call in demo.calls("createCompletion"))
    assert first == second
    expect(demo.page.locator(".message")).to_have_count(2)


def test_copy_takes_the_text_as_the_model_wrote_it(demo):
    demo.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    demo.open(answer="**Bold**\n\n```py\nx = 1\n```").load().ask("One")
    demo.page.get_by_role("button", name="Copy", exact=True).click()
    assert demo.page.evaluate("navigator.clipboard.readText()") == "**Bold**\n\n```py\nx = 1\n```"
    demo.page.get_by_role("button", name="Copy this code").click()
    assert demo.page.evaluate("navigator.clipboard.readText()") == "x = 1"


def test_clearing_can_be_undone(demo):
    demo.open().load().ask("One")
    demo.page.get_by_role("button", name="Clear chat").click()
    expect(demo.page.locator(".message")).to_have_count(0)
    demo.page.get_by_role("button", name="Undo").click()
    expect(demo.answer).to_have_text("Hello from the mock.")


def test_a_suggestion_is_a_question(demo):
    demo.open().load()
    demo.page.get_by_role("button", name="Explain the tides in three sentences").click()
    expect(demo.answer).to_have_text("Hello from the mock.")
    assert "Explain the tides" in demo.calls("createCompletion")[0]["prompt"]


def test_enter_sends_and_shift_enter_starts_a_line(demo):
    demo.open().load()
    demo.composer.press_sequentially("one")
    demo.composer.press("Shift+Enter")
    demo.composer.press_sequentially("two")
    # An Enter that picks a character in an input method belongs to the input method.
    demo.composer.dispatch_event("keydown", {"key": "Enter", "isComposing": True})
    assert demo.calls("createCompletion") == []
    demo.composer.press("Enter")
    expect(demo.answer).to_have_text("Hello from the mock.")
    assert "<|user|>one\ntwo<" in demo.calls("createCompletion")[0]["prompt"]
    demo.composer.press_sequentially("   ")
    demo.composer.press("Enter")
    assert len(demo.calls("createCompletion")) == 1, "a message needs a visible character"


# Settings

SAMPLING = {"Temperature": "0", "Longest answer": "64", "Top-k": "5", "Top-p": "0,5", "Min-p": "0.1", "Repeat penalty": "1",
            "Presence penalty": "-0.5", "Seed": "7"}
DEFAULTS = {"temp": 0.8, "nPredict": 512, "topK": 40, "topP": 0.95, "minP": 0, "penalty": 1.1, "presencePenalty": 0,
            "tokenEventEncoding": "text"}


def test_sampling_settings_reach_the_bridge_survive_a_reload_and_can_be_reset(demo):
    demo.open()
    for label, text in SAMPLING.items():
        demo.settings().get_by_label(label, exact=True).fill(text)
    demo.reload().load().ask("One")
    assert demo.calls("createCompletion")[0]["options"] == {
        "temp": 0, "nPredict": 64, "topK": 5, "topP": 0.5, "minP": 0.1, "penalty": 1, "presencePenalty": -0.5, "seed": 7,
        "tokenEventEncoding": "text",
    }
    demo.settings().get_by_role("button", name="Reset to defaults").click()
    demo.ask("Two")
    assert demo.calls("createCompletion")[1]["options"] == DEFAULTS
    expect(demo.settings().get_by_label("Seed")).to_have_value("")


WRONG_SETTINGS = [
    ("Temperature", "-0.1", "Temperature is “-0.1”; it must be a number from 0 to 5."),
    ("Top-p", "1.5", "Top-p is “1.5”; it must be a number from 0 to 1."),
    ("Top-k", "2.5", "Top-k is “2.5”; it must be a whole number from 0 to 1000."),
    ("Min-p", "lots", "Min-p is “lots”; it must be a number from 0 to 1."),
    ("Longest answer", "", "Longest answer is empty; it must be a whole number from 1 to 32768."),
    ("Repeat penalty", "Infinity", "Repeat penalty is “Infinity”; it must be a number from 0.1 to 5."),
    ("Seed", "-1", "Seed is “-1”; it must be a whole number from 0 to 4294967295, or empty."),
]


def test_wrong_settings_say_so_and_the_last_right_values_are_used(demo):
    demo.open().load()
    for label, text, problem in WRONG_SETTINGS:
        field = demo.settings().get_by_label(label, exact=True)
        field.fill(text)
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(field).to_have_accessible_description(re.compile(re.escape(problem)))
    demo.ask("One")
    assert demo.calls("createCompletion")[0]["options"] == DEFAULTS
    demo.settings().get_by_role("button", name="Reset to defaults").click()
    expect(demo.page.locator("#settings .problem").filter(has_text=re.compile("."))).to_have_count(0)


def test_the_chat_survives_a_reload(demo):
    demo.open(answer="A **kept** answer.").load().ask("One")
    demo.reload()
    expect(demo.answer).to_have_text("A kept answer.")
    expect(demo.page.get_by_role("heading", name="Choose a model")).to_be_visible()
    expect(demo.page.get_by_role("button", name="Regenerate")).to_be_hidden()
    demo.load().ask("Two")
    assert "A **kept** answer.<|user|>Two" in demo.calls("createCompletion")[0]["prompt"]


def test_a_reload_in_mid_answer_keeps_what_was_there(demo):
    demo.open(answer=LONG, tokenMs=15).load()
    demo.send("Count")
    expect(demo.answer).to_contain_text("word5")
    demo.reload()
    expect(demo.answer).to_contain_text("word5")
    expect(demo.outcome).to_have_text("stopped")


@pytest.mark.parametrize("kept", ["{", "null", "7", '"text"', '[{"role":"user"},7,{"role":"root","content":"x"}]', '{"temp":"<b>","source":7}'])
def test_a_page_with_broken_storage_starts_as_new(demo, kept):
    demo.page.add_init_script(
        "for (const key of ['conversation', 'settings', 'loader', 'pane', 'theme'])"
        f" localStorage.setItem('bridge-demo.' + key, {kept!r})"
    )
    demo.open().load().ask("One")
    assert demo.calls("createCompletion")[0]["options"] == DEFAULTS


def test_a_browser_without_storage_says_that_the_chat_is_not_kept(demo):
    demo.page.add_init_script("Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError') }")
    demo.open().load().ask("One")
    expect(demo.answer).to_have_text("Hello from the mock.")
    expect(demo.notice).to_contain_text("gone after a reload")
