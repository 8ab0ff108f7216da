"""The inspect page: what it shows of a model, how little it reads for that, and what it says when something is wrong."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from bridge.gguf import open_gguf
from bridge.serve import create_app, running_server
from e2e import conftest
from e2e.fault_server import Fault
from tests.gguf.split_model import write_shards

PAGE = "/web/inspect/index.html"
TINY = conftest.ROOT / "tests" / "data" / "models" / "gemma3-q4_0.gguf"
SMOL = "SmolLM2-135M-Instruct.Q4_1.gguf"


class Inspector:
    """One visit of the page."""

    def __init__(self, page: Page, address: str):
        self.page, self._address = page, address

    def visit(self, url: str = "") -> Inspector:
        self.page.goto(self._address + PAGE + (f"?url={url}" if url else ""))
        self.page.locator("body[data-started]").wait_for()
        return self

    def wait(self) -> Inspector:
        expect(self.page.locator("body")).to_have_attribute("data-phase", "open", timeout=conftest.PAGE_TIMEOUT_MS)
        return self

    def open_address(self, url: str) -> None:
        self.page.get_by_label("Address of a GGUF file").fill(url)
        self.page.get_by_role("button", name="Open", exact=True).click()

    def look_at_rows(self, tensor: str):
        """Opens the rows of a tensor and returns the field for their number."""
        self.page.get_by_role("button", name=tensor, exact=True).click()
        expect(self.page.locator(".row-values")).not_to_be_empty(timeout=conftest.PAGE_TIMEOUT_MS)
        return self.page.get_by_label(f"Row of {tensor}", exact=True)

    @property
    def alert(self):
        return self.page.get_by_role("alert").locator("p")

    def rows_of(self, table: str) -> list[list[str]]:
        return self.page.locator(f"#{table} tbody tr").evaluate_all("(rows) => rows.map((row) => [...row.cells].map((cell) => cell.innerText))")


@pytest.fixture
def inspector(page, site):
    return Inspector(page, site.address)


@pytest.fixture(scope="module")
def tiny(browser):
    """A small model, opened once for the tests that only look at it."""
    context, said = browser.new_context(), conftest.Messages()
    page = context.new_page()
    page.set_default_timeout(conftest.PAGE_TIMEOUT_MS)
    conftest.watch(page, said)
    with running_server(create_app(conftest.SITE)) as address:
        inspector = Inspector(page, address).visit()
        page.get_by_label("From this computer").set_input_files(TINY)
        yield inspector.wait()
        context.close()
    assert not said.errors


@pytest.fixture(scope="module")
def file():
    with open_gguf(TINY) as opened:
        yield opened


def test_sizes_per_type_and_layer(tiny, file):
    types = {row[0]: row for row in tiny.rows_of("types")}
    for dtype in {tensor.dtype for tensor in file.tensors.values()}:
        assert types[dtype][1] == str(sum(tensor.dtype == dtype for tensor in file.tensors.values()))
    n_layers = file.metadata["gemma3.block_count"]
    expect(tiny.page.locator("#layers .layer")).to_have_count(n_layers)
    caption = tiny.page.locator("#layers-caption")
    expect(caption).to_contain_text(f"{n_layers} layers, layer 0 to layer {n_layers - 1}, up to ")
    tiny.page.locator("#layers .layer").nth(1).hover()
    in_layer = [tensor for name, tensor in file.tensors.items() if name.startswith("blk.1.")]
    expect(caption).to_have_text(f"layer 1: {round(sum(t.nbytes for t in in_layer) / 1000)}\u00a0kB in {len(in_layer)} tensors.")
    expect(tiny.page.locator("#facts-line")).to_contain_text("gemma3 · ")


def test_tensors_are_listed_filtered_and_sorted(tiny, file):
    first = next(iter(file.tensors.values()))
    assert [row[0] for row in tiny.rows_of("tensors")] == list(file.tensors)[:40]
    tiny.page.get_by_role("button", name=f"Show all {len(file.tensors)}").click()
    assert [row[0] for row in tiny.rows_of("tensors")] == list(file.tensors)
    assert tiny.rows_of("tensors")[0][1:3] == [first.dtype, " × ".join(map(str, first.shape))]
    search = tiny.page.get_by_placeholder("Name or type")
    search.fill("attn_q.")
    names = [row[0] for row in tiny.rows_of("tensors")]
    assert names == [name for name in file.tensors if "attn_q." in name]
    expect(tiny.page.locator("#tensor-count")).to_have_text(f"{len(names)} of {len(file.tensors)} tensors")
    search.fill("q4_0")
    assert {row[1] for row in tiny.rows_of("tensors")} == {"Q4_0"}
    search.fill("")
    sizes = sorted(tensor.nbytes for tensor in file.tensors.values())
    size = tiny.page.get_by_role("button", name="Size", exact=True)
    size.click()
    assert [file.tensors[row[0]].nbytes for row in tiny.rows_of("tensors")] == sizes[::-1]
    size.click()
    assert [file.tensors[row[0]].nbytes for row in tiny.rows_of("tensors")] == sizes
    expect(tiny.page.locator("#tensors th").nth(3)).to_have_attribute("aria-sort", "ascending")


def test_metadata_is_listed_and_filtered(tiny, file):
    assert [row[0] for row in tiny.rows_of("metadata")] == list(file.metadata)
    tiny.page.get_by_placeholder("Key or value").fill("tokenizer.ggml.tokens")
    visible = tiny.page.locator("#metadata tbody tr:visible")
    expect(visible).to_have_count(1)
    expect(visible).to_contain_text(f"{len(file.metadata['tokenizer.ggml.tokens'])} in all")
    tiny.page.get_by_placeholder("Key or value").fill("")


def test_text_becomes_tokens_while_it_is_written(tiny, file):
    tokenizer = file.tokenizer()
    text, ids_shown = tiny.page.get_by_label("Text", exact=True), tiny.page.locator("#tokens small")
    first = tokenizer.encode(text.input_value(), add_special=False)
    expect(ids_shown).to_have_text(list(map(str, first)))
    text.fill("Hello 😀\nx")
    tiny.page.get_by_label("Add begin and end tokens").check()
    second = tokenizer.encode("Hello 😀\nx", add_special=True)
    expect(ids_shown).to_have_text(list(map(str, second)))
    expect(tiny.page.locator("#token-count")).to_have_text(f"{len(second)} tokens for 12 bytes")
    tiny.page.get_by_label("Add begin and end tokens").uncheck()
    text.fill("")
    expect(tiny.page.locator("#token-count")).to_have_text("0 tokens for 0 bytes")


def test_rows(tiny, file):
    row = tiny.look_at_rows("token_embd.weight")
    row.fill("5")
    row.press("Enter")
    values = file.rows("token_embd.weight", [5])[0]
    expect(tiny.page.locator(".row-values")).to_contain_text(f"{values[0]:#.4g}"[:6])
    expect(tiny.page.locator(".row-facts")).to_contain_text(f"decoded, not {round(file.tensors['token_embd.weight'].nbytes / 1000)}")
    for wrong, said in ((str(file.tensors["token_embd.weight"].n_rows), "is not one of its"), ("-1", "row -1 is not"), ("0.5", "row 0.5 is not"), ("", "row NaN is not")):
        row.fill(wrong)
        row.press("Enter")
        expect(tiny.page.locator(".row-view .problem")).to_contain_text(said)
    tiny.page.get_by_role("button", name="token_embd.weight", exact=True).click()
    expect(tiny.page.locator(".row-view")).to_have_count(0)


def test_nothing_sticks_out_and_everything_has_a_name(tiny):
    tiny.look_at_rows("output_norm.weight")
    for width in (360, 1280):
        tiny.page.set_viewport_size({"width": width, "height": 800})
        assert tiny.page.evaluate("document.documentElement.scrollWidth") <= width
    unnamed = tiny.page.evaluate("""() => [...document.querySelectorAll("input, textarea, button, a")]
      .filter((control) => control.checkVisibility() && !control.labels?.length && !control.ariaLabel && !control.textContent.trim())
      .map((control) => control.outerHTML)""")
    assert unnamed == []
    tiny.page.get_by_role("button", name="output_norm.weight", exact=True).click()


def test_a_large_model_is_looked_into_not_downloaded(inspector):
    fetched = []
    inspector.page.on("response", lambda response: fetched.append(response) if SMOL in response.url and "inspect" not in response.url else None)
    inspector.visit().page.get_by_role("button", name="SmolLM2").click()
    inspector.wait()
    row = inspector.look_at_rows("token_embd.weight")
    row.fill("49151")
    row.press("Enter")
    expect(inspector.page.locator("#read-line")).to_contain_text("of 98.4\u00a0MB read, in ")
    with open_gguf(conftest.SITE / "models" / SMOL) as file:
        reads, nbytes = file.source.reads, file.bytes_read
        last = file.rows("token_embd.weight", [49151])[0]
        row_nbytes = file.tensors["token_embd.weight"].row_nbytes
    expect(inspector.page.locator(".row-values")).to_contain_text(f"{last[0]:#.4g}"[:6])
    sizes = [int(response.headers["content-length"]) for response in fetched]
    assert len(sizes) == 1 + reads + 2 and sum(sizes) == 1 + nbytes + 2 * row_nbytes


def test_a_split_model_from_the_disk(inspector, tmp_path):
    n = len(open_gguf(TINY).tensors)
    paths = write_shards(TINY, tmp_path, [4, n - 4])
    inspector.visit().page.get_by_label("From this computer").set_input_files(list(reversed(paths)))
    inspector.wait()
    expect(inspector.page.locator("#facts-line")).to_contain_text(" in 2 files · ")
    inspector.page.get_by_label("From this computer").set_input_files(paths[1])
    expect(inspector.alert).to_have_text("The file is shard 2 of 2 of a split model, and all 2 are needed.")


def test_a_file_is_dropped(inspector, site):
    inspector.visit()
    url = site.fault("dropped.gguf", Fault(TINY.read_bytes()))
    inspector.page.evaluate("""async (url) => {
      const files = new DataTransfer();
      files.items.add(new File([await (await fetch(url)).blob()], "dropped.gguf"));
      const send = (type) => dispatchEvent(new DragEvent(type, {dataTransfer: files, bubbles: true, cancelable: true}));
      send("dragover");
      globalThis.shown = !document.getElementById("drop").hidden;
      send("drop");
    }""", url)  # fmt: skip
    inspector.wait()
    assert inspector.page.evaluate("shown") and inspector.page.locator("#drop").is_hidden()


def test_what_goes_wrong_is_said_and_the_model_before_stays(inspector, site, messages):
    inspector.visit(site.fault("tiny.gguf", Fault(TINY.read_bytes()))).wait()
    name = inspector.page.locator("#model-name").inner_text()
    for fault, said in (
        (Fault(b"<!doctype html>" * 30), "This is not a GGUF file. An address must lead to the file itself"),
        (Fault(TINY.read_bytes(), ranges=False), "This server sends whole files only"),
        (Fault(TINY.read_bytes(), etag=None), "by which a changed file could be noticed"),
        (Fault(b"", status=403), "does not give this file to everyone (status 403)"),
        (Fault(TINY.read_bytes()[:2000]), "The file is cut off inside its header."),
    ):
        inspector.open_address(site.fault("wrong.gguf", fault))
        expect(inspector.alert).to_contain_text(said)
        expect(inspector.page.locator("#model-name")).to_have_text(name)
        expect(inspector.page.locator("body")).to_have_attribute("data-phase", "open")
    messages.expect("403")
    inspector.look_at_rows("output_norm.weight")


def test_what_is_no_address(inspector):
    inspector.visit()
    for text, said in (
        ("", "Paste the address"),
        ("http://", "This is not a web address."),
        ("ftp://h/m.gguf", "begins with “ftp:”"),
    ):
        inspector.open_address(text)
        expect(inspector.page.locator("#address-problem")).to_contain_text(said)
        expect(inspector.page.locator("body")).to_have_attribute("data-phase", "idle")


def test_the_last_of_two_opens_wins(inspector, site):
    slow = site.fault("slow.gguf", Fault(TINY.read_bytes(), first_byte_after=20))
    inspector.visit().open_address(slow)
    inspector.open_address(site.fault("fast.gguf", Fault(TINY.read_bytes())))
    inspector.wait()
    expect(inspector.alert).to_have_count(0)
    expect(inspector.page.locator("#opening")).to_be_empty()
