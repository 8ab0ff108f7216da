"""The example of the documented API, word for word, on a server that holds the files where it expects them."""

from __future__ import annotations

from e2e.bridge_page import MODELS
from e2e.conftest import PAGE_TIMEOUT_MS, SITE, watch

from bridge.serve import create_app, running_server

LLAMA = MODELS / "llama-tied-f32.gguf"

PAGE = """<!doctype html>
<link rel="icon" href="data:,">
<script type="module">
import {
  LlamaWebGpuBridge,
  enableBridgeWorkerHost,
} from './webgpu_bridge/llama_webgpu_bridge.js';

const bridge = new LlamaWebGpuBridge({
  coreModuleUrl: './webgpu_bridge/llama_webgpu_core.js',
  wasmUrl: './webgpu_bridge/llama_webgpu_core.wasm',
  workerUrl: './webgpu_bridge/llama_webgpu_bridge_worker.js',
  threads: 2,
});

try {
  await bridge.loadModelFromUrl('./models/model.gguf', {
    nCtx: 2048,
    nGpuLayers: 0,
    progressCallback: ({ loaded, total }) => {
      if (total) {
        console.log(`loaded ${Math.round((loaded / total) * 100)}%`);
      }
    },
  });

  const answer = await bridge.createCompletion('2+2 =', {
    nPredict: 16,
    temp: 0,
    onToken: (piece, currentText) => {
      const text = typeof piece === 'string'
        ? piece
        : new TextDecoder().decode(piece);
      console.log('token', text, currentText);
    },
  });
  console.log(answer);
} finally {
  await bridge.dispose();
}
</script>
"""


def deployed(folder):
    """The site as a page of the documented API has it: the bridge's own folder under another name, the rest beside it."""
    for name in ("pyodide", "wheels", "simd", "snapshot"):
        (folder / name).symlink_to(SITE / name)
    (folder / "webgpu_bridge").symlink_to(SITE / "web")
    (folder / "models").mkdir()
    (folder / "models" / "model.gguf").symlink_to(LLAMA)
    (folder / "index.html").write_text(PAGE, encoding="utf-8")
    return folder


def test_the_documented_example_runs_unchanged(browser, tmp_path, messages):
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(PAGE_TIMEOUT_MS)
    watch(page, messages)
    workers = []
    page.on("worker", lambda worker: workers.append(worker.url))
    with running_server(create_app(deployed(tmp_path)), log_level="critical") as address:
        with page.expect_console_message(lambda line: not line.text.startswith(("loaded", "token"))) as answer:
            page.goto(f"{address}/index.html")
        said = [line.removeprefix("log: ") for line in messages.console]
        context.close()
    assert workers[0] == f"{address}/webgpu_bridge/llama_webgpu_bridge_worker.js"
    assert "loaded 100%" in said
    pieces = [line.removeprefix("token ").removesuffix(" ") for line in said if line.startswith("token ")]
    assert "".join(pieces).split() == answer.value.text.split() != []
    assert not messages.errors
