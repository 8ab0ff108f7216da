"""The demo's modules that know nothing of the page: Markdown, progress, figures, errors, facts. They run in the browser."""

from __future__ import annotations

import pytest

IMPORT = "async ([module, name, ...given]) => (await import(`/web/demo/${module}.js`))[name](...given)"


@pytest.fixture(scope="module")
def page(browser, isolated_site):
    """One page for the whole table: what is called here keeps no state."""
    page = browser.new_page()
    page.goto(isolated_site.url("/_test/blank.html"))
    yield page
    page.close()


@pytest.fixture
def call(page):
    """call("module", "function", …) -> what it returns."""
    return lambda module, name, *given: page.evaluate(IMPORT, [module, name, *given])


def text(words):
    return {"type": "text", "text": words}


def paragraph(words):
    return {"type": "paragraph", "text": words}


def unordered(*items):
    return {"type": "list", "ordered": False, "start": 1, "items": [{"text": t, "blocks": list(b)} for t, *b in items]}


@pytest.mark.parametrize(
    ("source", "blocks"),
    [
        ("", []),
        ("one\ntwo\n\n\nthree", [paragraph("one\ntwo"), paragraph("three")]),
        ("one\r\n\r\ntwo", [paragraph("one"), paragraph("two")]),
        ("# A title #\ntext", [{"type": "heading", "text": "A title"}, paragraph("text")]),
        ("#hashtag", [paragraph("#hashtag")]),
        ("---", [{"type": "rule"}]),
        ("> a\n> b", [{"type": "quote", "text": "a\nb"}]),
        ("```py\nx = 1\n\n# y\n```\nend", [{"type": "code", "language": "py", "text": "x = 1\n\n# y"}, paragraph("end")]),
        ("````\n```\n````", [{"type": "code", "language": "", "text": "```"}]),
        ("~~~\na\n~~~", [{"type": "code", "language": "", "text": "a"}]),
        ("text\n```js\nstill ope", [paragraph("text"), {"type": "code", "language": "js", "text": "still ope"}]),
        ("- a\n- b\n  - c\n  - d\n- e", [unordered(["a"], ["b", unordered(["c"], ["d"])], ["e"])]),
        ("* a\n\n* b", [unordered(["a"], ["b"])]),
        ("- a\n  goes on", [unordered(["a\ngoes on"])]),
        ("3. a\n4. b", [{"type": "list", "ordered": True, "start": 3, "items": [{"text": "a", "blocks": []}, {"text": "b", "blocks": []}]}]),
        ("text:\n- a", [paragraph("text:"), unordered(["a"])]),
        ("- a\n\ntext", [unordered(["a"]), paragraph("text")]),
        ("    - deep\n- shallow", [unordered(["deep"]), unordered(["shallow"])]),
    ],
)
def test_markdown_blocks(call, source, blocks):
    assert call("markdown", "parseBlocks", source) == blocks


@pytest.mark.parametrize(
    ("source", "spans"),
    [
        ("plain", [text("plain")]),
        ("a **b** c", [text("a "), {"type": "strong", "spans": [text("b")]}, text(" c")]),
        ("*b*", [{"type": "em", "spans": [text("b")]}]),
        ("***b***", [{"type": "strong", "spans": [{"type": "em", "spans": [text("b")]}]}]),
        ("**a `b` c**", [{"type": "strong", "spans": [text("a "), {"type": "code", "text": "b"}, text(" c")]}]),
        ("`a ** b`", [{"type": "code", "text": "a ** b"}]),
        ("`` a`b ``", [{"type": "code", "text": "a`b"}]),
        ("2*3*4 and 2 * 3 * 4", [text("2*3*4 and 2 * 3 * 4")]),
        ("un**closed", [text("un**closed")]),
        ("one ` only", [text("one ` only")]),
        ("**", [text("**")]),
        ("****", [text("****")]),
        ("snake_case_name", [text("snake_case_name")]),
    ],
)
def test_markdown_spans(call, source, spans):
    assert call("markdown", "parseSpans", source) == spans


def test_markdown_takes_time_in_proportion_to_the_text(page):
    """Marks without a partner are what makes naive parsers quadratic: four times the text must not take 16 times as long."""
    hostile = """async () => {
      const {parseBlocks, parseSpans} = await import("/web/demo/markdown.js");
      const time = (n) => {
        const texts = ["*a".repeat(n), "`a``".repeat(n), "**a ".repeat(n), "- ".repeat(n), "> ".repeat(n)];
        const started = performance.now();
        for (const text of texts) for (const block of parseBlocks(text)) if (block.text) parseSpans(block.text);
        return performance.now() - started;
      };
      time(2000);
      return [time(10000), time(40000)];
    }"""
    small, large = page.evaluate(hostile)
    assert large < 12 * max(small, 5)


HOSTILE = """<img src=x onerror="globalThis.hit = 1"> **<script>globalThis.hit = 1</script>** `<b>` [x](javascript:alert(1))

<iframe srcdoc="x"></iframe>

- <svg onload="globalThis.hit = 1">

```html"><img src=x onerror="globalThis.hit = 1">
<script>globalThis.hit = 1</script>
```
"""
SHOW = """async (steps) => {
  const {showMarkdown} = await import("/web/demo/markdown_view.js");
  const box = document.body.appendChild(document.createElement("div"));
  for (const text of steps) showMarkdown(box, text);
  return {html: box.innerHTML, text: box.textContent, tags: [...new Set([...box.querySelectorAll("*")].map((e) => e.localName))].sort()};
}"""


def test_html_from_a_model_stays_text(page):
    shown = page.evaluate(SHOW, [HOSTILE])
    assert set(shown["tags"]) <= {"p", "strong", "code", "ul", "li", "figure", "figcaption", "span", "button", "pre"}
    assert '<img src=x onerror="globalThis.hit = 1">' in shown["text"]
    assert page.evaluate("globalThis.hit") is None


def test_a_streamed_answer_ends_as_one_shown_at_once(page):
    source = "# T\n\nOne **two** `three`\n\n1. a\n2. b\n   - c\n\n```py\nx = 1\ny = 2\n```\n\n> q\n\nend"
    streamed = page.evaluate(SHOW, [source[:n] for n in range(1, len(source) + 1)])
    assert streamed["html"] == page.evaluate(SHOW, [source])["html"]


def test_finished_blocks_stay_while_an_answer_grows(page):
    kept = page.evaluate("""async () => {
      const {showMarkdown} = await import("/web/demo/markdown_view.js");
      const box = document.body.appendChild(document.createElement("div"));
      showMarkdown(box, "first\\n\\n```\\nx");
      const [paragraph, code] = box.children;
      showMarkdown(box, "first\\n\\n```\\nxy\\n```\\n\\nmore");
      return [paragraph === box.children[0], code === box.children[1], box.children.length];
    }""")
    assert kept == [True, True, 3]


TRANSFER = """async (samples) => {
  const {Transfer} = await import("/web/demo/progress.js");
  const transfer = new Transfer();
  for (const [now, loaded, total] of samples) transfer.add({loaded, total}, now);
  return {rate: transfer.rate, secondsLeft: transfer.secondsLeft, isComplete: transfer.isComplete};
}"""


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([], {"rate": None, "secondsLeft": None, "isComplete": False}),
        ([(0, 0, 100)], {"rate": None, "secondsLeft": None, "isComplete": False}),
        ([(0, 0, 100), (200, 50, 100)], {"rate": None, "secondsLeft": None, "isComplete": False}),
        ([(0, 0, 100), (1000, 20, 100)], {"rate": 20, "secondsLeft": 4, "isComplete": False}),
        # Only the last seconds count: fast until 10 s, then slow.
        ([(0, 0, 1000), (10_000, 800, 1000), (12_000, 810, 1000), (15_000, 820, 1000)], {"rate": 10 / 3, "secondsLeft": 54, "isComplete": False}),
        ([(0, 0, 0), (1000, 20, 0)], {"rate": 20, "secondsLeft": None, "isComplete": False}),  # a server that tells no size
        ([(0, 50, 100), (1000, 50, 100)], {"rate": 0, "secondsLeft": None, "isComplete": False}),
        ([(0, 0, 100), (1000, 100, 100)], {"rate": 100, "secondsLeft": 0, "isComplete": True}),
    ],
)
def test_transfer(page, samples, expected):
    assert page.evaluate(TRANSFER, samples) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("function", "value", "shown"),
    [
        ("bytes", 0, "0\u00a0bytes"), ("bytes", 999, "999\u00a0bytes"), ("bytes", 1000, "1\u00a0kB"),
        ("bytes", 98362432, "98.4\u00a0MB"), ("bytes", 4.2e9, "4.2\u00a0GB"),
        ("integer", 49152, "49,152"),
        ("speed", 134.3, "134"), ("speed", 11.24, "11.2"), ("speed", 0.531, "0.53"),
        ("milliseconds", 420, "0.42 s"), ("milliseconds", 12_340, "12.3 s"), ("milliseconds", 125_000, "2 min 5 s"),
        ("duration", 4.6, "5 s"), ("duration", 59.6, "1 min 0 s"), ("duration", 4200, "1 h 10 min"),
    ],
)
def test_figures(call, function, value, shown):
    assert call("format", function, value) == shown


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, {"prompt": None, "decode": None, "firstMs": None}),
        ({"promptTokens": 30, "cachedPromptTokens": 10, "completionTokens": 50, "timeToFirstTokenMs": 550, "durationMs": 3000,
          "promptMs": 500, "decodeMs": 2500}, {"prompt": 40, "decode": 20, "firstMs": 550}),
        # Without the two additive times they follow from the documented ones.
        ({"promptTokens": 30, "completionTokens": 50, "timeToFirstTokenMs": 500, "durationMs": 3000},
         {"prompt": 60, "decode": 20, "firstMs": 500}),
        ({"promptTokens": 30, "cachedPromptTokens": 30, "completionTokens": 1, "timeToFirstTokenMs": None, "durationMs": 9},
         {"prompt": None, "decode": None, "firstMs": None}),
    ],
)
def test_speeds(call, usage, expected):
    assert call("usage", "speeds", usage) == expected


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, None), ("", None), ("SwiftShader", "SwiftShader"),
        ('{"vendor":"acme","architecture":"r2","device":"","description":""}', "acme r2"),
        ('{"vendor":"acme","description":"ACME Roadrunner 2"}', "ACME Roadrunner 2"),
        ("{}", None), ("7", "7"), ("{broken", "{broken"),
    ],
)
def test_adapter_name(call, value, name):
    assert (call("facts", "adapterName", value) or None) == name


def test_model_facts_leave_out_what_the_file_does_not_say(call):
    assert call("facts", "modelFacts", {}) == [["Name", "Unnamed model"]]
    facts = dict(call("facts", "modelFacts", {
        "general.name": "M", "general.architecture": "qwen3", "general.file_type": "15", "general.parameter_count": 596049920,
        "qwen3.block_count": 28, "qwen3.context_length": "40960", "llamadart.webgpu.model_bytes": "0",
    }))
    assert facts == {"Name": "M", "Architecture": "qwen3", "Parameters": "596 million", "Quantisation": "Q4_K_M", "Layers": "28",
                     "Trained for": "40,960 tokens"}


def test_runtime_notes_are_explained_where_they_are_known(call):
    notes = call("facts", "runtimeNotes", {"llamadart.webgpu.runtime_notes": "n_ctx_exceeds_training:8192;some_new:1;"})
    assert notes == [
        {"code": "n_ctx_exceeds_training:8192", "meaning": "The context is longer than the 8,192 tokens that the model was trained on."},
        {"code": "some_new:1", "meaning": None},
    ]


@pytest.mark.parametrize("thrown", [None, "", {}, {"message": "undefined"}, {"message": "[object Object]"}])
def test_an_error_without_words_is_still_a_sentence(call, thrown):
    sentence = call("errors", "explain", thrown, "Try again.")
    assert sentence == "Something went wrong, and the engine did not say what. Try again."
