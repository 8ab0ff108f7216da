"""web/gguf.js in Chromium: a real model by address, by a picked file and by a file handle, and what goes wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bridge.gguf import open_gguf
from e2e import conftest
from e2e.fault_server import Fault

GEMMA = "gemma-3-270m-q4_k_m.gguf"
TINY = conftest.ROOT / "tests" / "data" / "models" / "llama-untied-f16.gguf"
TABLE, ROW = "token_embd.weight", 12095

# Opens a source with web/gguf.js and prints what the file holds, and one row.
INSPECT = """async ({open, name, row}) => {
  const gguf = await import("/web/gguf.js");
  const model = await (new Function("gguf", "openGGUF", `return (${open})(gguf, openGGUF)`))(gguf, gguf.openGGUF);
  const types = {};
  for (const {dtype, nbytes} of model.tensors.values()) types[dtype] = (types[dtype] ?? 0) + nbytes;
  const found = {
    architecture: model.architecture, size: model.size, nTensors: model.tensors.size, types,
    table: model.tensors.get(name), tokens: model.metadata.get("tokenizer.ggml.tokens").length,
    row: [...await model.rows(name, [row])], ids: await model.tokenizer().encode("The capital of France is"),
    identity: model.identity(),
  };
  model.close();
  return found;
}"""
TO_HANDLE = """async (url) => {
  const folder = await navigator.storage.getDirectory();
  globalThis.handle = await folder.getFileHandle("model.gguf", {create: true});
  await (await fetch(url)).body.pipeTo(await handle.createWritable());
}"""


@pytest.fixture(scope="module")
def gemma() -> Path:
    path = conftest.SITE / "models" / GEMMA
    if not path.exists():
        pytest.skip(f"{GEMMA} is not there; 'make gemma' fetches it")
    return path


@pytest.fixture(scope="module")
def expected(gemma):
    with open_gguf(gemma) as file:
        types: dict[str, int] = {}
        for tensor in file.tensors.values():
            types[tensor.dtype] = types.get(tensor.dtype, 0) + tensor.nbytes
        table = file.tensors[TABLE]
        return {
            "architecture": "gemma3", "size": file.size, "nTensors": len(file.tensors), "types": types,
            "tokens": len(file.metadata["tokenizer.ggml.tokens"]), "row": file.rows(TABLE, [ROW])[0].tolist(),
            "ids": file.tokenizer().encode("The capital of France is"),
            "table": {"name": TABLE, "dtype": table.dtype, "shape": list(table.shape), "offset": table.offset,
                      "nbytes": table.nbytes, "shard": 0},
        }  # fmt: skip


def inspect(page, open_script: str, name: str = TABLE, row: int = ROW) -> dict:
    return page.evaluate(INSPECT, {"open": open_script, "name": name, "row": row})


def test_a_real_model_from_an_address_a_picked_file_and_a_handle(page, site, gemma, expected):
    url = site.url(f"/models/{GEMMA}")
    fetched = []
    page.on("response", lambda response: fetched.append(response) if GEMMA in response.url else None)

    by_address = inspect(page, f"(gguf, openGGUF) => openGGUF({json.dumps(url)})")
    identity = by_address.pop("identity")
    assert identity.startswith('"') and by_address == expected
    sizes = [int(response.headers["content-length"]) for response in fetched]
    with open_gguf(gemma) as file:
        header_reads, header_bytes = file.source.reads, file.bytes_read
        row_nbytes = file.tensors[TABLE].row_nbytes
    assert all(response.status == 206 for response in fetched)
    assert len(sizes) == header_reads + 2 and sum(sizes) == 1 + header_bytes + row_nbytes

    page.evaluate("""() => document.body.append(Object.assign(document.createElement("input"), {type: "file"}))""")
    page.locator("input").set_input_files(gemma)
    by_file = inspect(page, "(gguf, openGGUF) => openGGUF(document.querySelector('input').files[0])")
    assert by_file.pop("identity") is None and by_file == expected

    page.evaluate(TO_HANDLE, url)
    by_handle = inspect(page, "(gguf, openGGUF) => openGGUF(gguf.fromFileHandle(handle))")
    assert by_handle.pop("identity").startswith(f"{expected['size']}-") and by_handle == expected
    assert len(page.workers) == 1


def failure(page, url: str, then: str = "model") -> dict:
    return page.evaluate(
        """async ([url, then]) => {
          const {openGGUF} = await import("/web/gguf.js");
          try {
            const model = await openGGUF(url);
            await (new Function("model", `return ${then}`))(model);
            return null;
          } catch ({name, code, message, status}) {
            return {name, code, message, status: status ?? null};
          }
        }""",
        [url, then],
    )


def test_what_servers_do_wrong(page, site, messages):
    body = TINY.read_bytes()
    no_ranges = failure(page, site.fault("no-ranges.gguf", Fault(body, ranges=False)))
    assert no_ranges["code"] == "RANGE_NOT_HONOURED" and "whole entity" in no_ranges["message"]
    no_validator = failure(page, site.fault("no-validator.gguf", Fault(body, etag=None)))
    assert no_validator["code"] == "NO_VALIDATOR"
    page_instead = failure(page, site.fault("page.gguf", Fault(b"<!doctype html><title>Sign in</title>" * 9)))
    assert page_instead["code"] == "INVALID_GGUF" and page_instead["message"].startswith("not a GGUF file")
    changed = Fault(body, changed_body=body[:-1] + b"x", change_at=2)
    replaced = failure(page, site.fault("changed.gguf", changed), "model.bytes('output_norm.weight')")
    assert (replaced["name"], replaced["code"]) == ("ByteSourceError", "FILE_CHANGED")
    assert "changed identity" in replaced["message"] and len(changed.seen) == 3
    missing = failure(page, site.url("/models/none.gguf"))
    assert missing == {"name": "ByteSourceError", "code": "HTTP_STATUS", "message": "404 Not Found", "status": 404}
    messages.expect("404")
    for found in (no_ranges, no_validator, page_instead, replaced):
        assert "localhost" not in found["message"]


def test_a_dropped_connection_goes_on_where_it_broke(page, site, messages):
    fault = Fault(TINY.read_bytes(), drop_after=100_000, drops=2, bytes_per_second=500_000)
    assert failure(page, site.fault("dropped.gguf", fault)) is None
    assert fault.seen[0].range == "bytes=0-0" and len(fault.seen) == 3
    start = int(fault.seen[2].range.removeprefix("bytes=").partition("-")[0])
    assert 0 < start <= 100_000
    messages.expect("ERR_CONTENT_LENGTH_MISMATCH")


def test_where_the_worker_must_start_from_a_blob(page, site):
    """As on a page of another origin, whose workers may not be scripts from here."""
    page.evaluate("""() => {
      const Original = Worker;
      globalThis.Worker = class extends Original {
        constructor(url, options) {
          if (!String(url).startsWith("blob:")) throw new DOMException("another origin", "SecurityError");
          super(url, options);
        }
      };
    }""")
    assert failure(page, site.fault("tiny.gguf", Fault(TINY.read_bytes())), "model.floats('output_norm.weight')") is None


def test_assets_that_are_not_there(page, site):
    url = site.fault("tiny.gguf", Fault(TINY.read_bytes()))
    found = page.evaluate("""async (url) => {
      const {openGGUF} = await import("/web/gguf.js");
      return openGGUF(url, {assetBase: "/nowhere/"}).then(() => null, ({code, message}) => ({code, message}));
    }""", url)  # fmt: skip
    assert found["code"] == "READER_FAILED" and found["message"].startswith("the reader stopped: the reader did not start: ")


PYTHON = """
import json
import bridge_js
await bridge_js.loadPackage("pyodide-http")
await bridge_js.loadPackage("numpy")
from bridge.errors import BridgeError
from bridge.gguf import open_gguf

def code(url, **options):
    try:
        open_gguf(url, **options)
    except BridgeError as error:
        return str(error)

with open_gguf(URL) as file:
    found = {"architecture": file.architecture, "row": file.rows("token_embd.weight", [3])[0].tolist(),
             "requests": file.source.requests, "identity": file.source.identity}
json.dumps([found, code(WHOLE), code(GONE)])
"""


def test_python_in_a_worker_reads_an_address(page, site):
    body = TINY.read_bytes()
    fault = Fault(body)
    urls = {"URL": site.fault("tiny.gguf", fault), "WHOLE": site.fault("whole.gguf", Fault(body, ranges=False)),
            "GONE": site.url("/models/none.gguf")}  # fmt: skip
    python = "".join(f"{name} = {url!r}\n" for name, url in urls.items()) + PYTHON
    answer = page.evaluate(
        """(message) => new Promise((resolve, reject) => {
          const worker = new Worker("/_test/boot_worker.js", {type: "module"});
          worker.onmessage = ({data}) => (data.error ? reject(new Error(data.error)) : resolve(data.answer));
          worker.postMessage(message);
        })""",
        {"options": {}, "python": python},
    )
    found, whole, gone = json.loads(answer)
    with open_gguf(TINY) as file:
        np.testing.assert_array_equal(np.float32(found["row"]), file.rows("token_embd.weight", [3])[0])
    assert found["architecture"] == "llama" and found["identity"].startswith('"')
    assert found["requests"] == len(fault.seen) == 3
    assert "did not honour the range request" in whole and gone == "404"
