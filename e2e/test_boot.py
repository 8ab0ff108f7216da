"""Both ways of starting the engine, in a worker and on the page's thread, end with the same engine."""

from __future__ import annotations

import gzip
import json
import random
import shutil

import pytest
from bridge.serve import create_app, running_server

# What a booted engine can do: its version and modules, a kernel's text, a package loaded on demand, a random number.
PROBE = """
import json, random, sys
import bridge, bridge.host, bridge_js
from bridge.kernels import kernel_text
numpy_at_start = "numpy" in sys.modules
drawn = random.random()
await bridge_js.loadPackage("numpy")
import numpy
json.dumps({
    "version": bridge.__version__,
    "numpy_at_start": numpy_at_start,
    "numpy": numpy.__version__,
    "dot": float(numpy.arange(5) @ numpy.arange(5)),
    "kernel": kernel_text(KERNEL),
    "drawn": drawn,
})
"""
IN_PAGE = """async ({options, python}) => {
  const {bootEngine} = await import("/web/boot.js");
  const {pyodide, boot} = await bootEngine(options);
  return {answer: await pyodide.runPythonAsync(python), boot: structuredClone(boot)};
}"""
IN_WORKER = """(message) => new Promise((resolve, reject) => {
  const worker = new Worker("/_test/boot_worker.js", {type: "module"});
  const end = (settle, value) => { worker.terminate(); settle(value); };
  worker.onmessage = ({data}) => end(data.error ? reject : resolve, data.error ? new Error(data.error) : data);
  worker.onerror = (event) => end(reject, new Error(event.message));
  worker.postMessage(message);
})"""
PLACES = {"worker": IN_WORKER, "page": IN_PAGE}


@pytest.fixture(scope="module")
def kernel(pytestconfig):
    """A kernel source, by its name below kernels/."""
    folder = pytestconfig.rootpath / "kernels"
    return min(str(file.relative_to(folder).as_posix()) for file in folder.rglob("*.wgsl"))


def boot(page, place: str, python: str, **options) -> dict:
    return page.evaluate(PLACES[place], {"options": options, "python": python})


@pytest.mark.parametrize("place", PLACES)
def test_both_starts_give_the_same_engine(page, place, kernel, pytestconfig):
    python = f"KERNEL = {kernel!r}\n{PROBE}"
    fast, plain = boot(page, place, python), boot(page, place, python, useSnapshot=False)
    for started in (fast, plain):
        times = {name: round(value) for name, value in started["boot"]["milliseconds"].items()}
        print(f"\n{place}, {started['boot']['mode']}: {times} ms", end="")
    assert (fast["boot"]["mode"], fast["boot"]["notes"]) == ("snapshot", [])
    assert (plain["boot"]["mode"], plain["boot"]["notes"]) == ("plain", ["boot:plain"])

    answers = [json.loads(started["answer"]) for started in (fast, plain)]
    drawn = [answer.pop("drawn") for answer in answers]
    assert answers[0] == answers[1]
    assert answers[0]["kernel"] == (pytestconfig.rootpath / "kernels" / kernel).read_text()
    assert (answers[0]["numpy"], answers[0]["dot"]) == ("2.0.2", 30.0)
    assert answers[0]["numpy_at_start"] is False
    assert drawn[0] != drawn[1]


def test_two_starts_from_the_snapshot_draw_different_random_numbers(page):
    drawn = {boot(page, "worker", "import random\nrandom.random()")["answer"] for _ in range(2)}
    assert len(drawn) == 2


def test_it_starts_without_cross_origin_isolation(page, other_site):
    page.goto(other_site.url("/_test/blank.html"))
    assert page.evaluate("crossOriginIsolated") is False
    assert boot(page, "worker", "1 + 1")["boot"]["mode"] == "snapshot"


def test_the_snapshot_holds_every_module_that_does_not_need_compiled_packages(site):
    left_out = json.loads((site.folder / "snapshot" / "snapshot.json").read_text())["leftOut"]
    assert {name: why for name, why in left_out.items() if not why.endswith("is kept out of the snapshot")} == {}


@pytest.fixture
def broken_site(site, tmp_path):
    """A function that copies the site's small parts, lets ``change(folder)`` damage them, and serves the result."""
    servers = []

    def start(change) -> str:
        for part in ("web", "pyodide", "wheels", "snapshot"):
            shutil.copytree(site.folder / part, tmp_path / part)
        change(tmp_path)
        blank = "<!doctype html><link rel='icon' href='data:,'>"
        (tmp_path / "index.html").write_text(blank)
        server = running_server(create_app(tmp_path))
        servers.append(server)
        return server.__enter__()

    yield start
    for server in servers:
        server.__exit__(None, None, None)


def _no_snapshot(folder):
    shutil.rmtree(folder / "snapshot")


def _of_another_wheel(folder):
    _edit(folder / "snapshot" / "snapshot.json", wheel="0" * 64)


def _of_another_runtime(folder):
    image = next((folder / "snapshot").glob("*.snapshot"))
    content = bytearray(gzip.decompress(image.read_bytes()))
    content[16:48] = random.Random(1).randbytes(32)  # Pyodide's build id, after magic and two offsets
    image.write_bytes(gzip.compress(bytes(content), 1))


def _cut_short(folder):
    image = next((folder / "snapshot").glob("*.snapshot"))
    image.write_bytes(image.read_bytes()[:-1000])


def _edit(file, **values):
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@pytest.mark.parametrize(
    ("change", "reason", "said"),
    [
        (_no_snapshot, "there is no snapshot", "404"),
        (_of_another_wheel, "made from another wheel", None),
        (_of_another_runtime, "Snapshot build id mismatch", None),
        (_cut_short, "", None),
    ],
)
def test_a_snapshot_that_does_not_match_is_not_used(page, broken_site, messages, change, reason, said):
    page.goto(broken_site(change) + "/")
    started = page.evaluate(IN_PAGE, {"options": {}, "python": "import bridge\nbridge.__version__"})
    assert started["boot"]["notes"] == ["boot:plain"]
    assert reason in started["boot"]["reason"]
    assert started["answer"]
    if said:
        messages.expect(said)


@pytest.mark.parametrize("options", [{}, {"useSnapshot": False}])
def test_a_wheel_that_is_not_the_one_in_its_manifest_is_refused(page, broken_site, options):
    def swap(folder):
        wheel = next((folder / "wheels").glob("*.whl"))
        wheel.write_bytes(wheel.read_bytes() + b"\0")  # still a readable archive

    page.goto(broken_site(swap) + "/")
    said = page.evaluate(
        "async (options) => (await import('/web/boot.js')).bootEngine(options).catch((error) => error.message)", options
    )
    assert said == "The engine's wheel is not the one that wheels/wheel.json names"


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ("wheels", "The engine's wheel is missing: wheels/wheel.json could not be read"),
        ("pyodide", "Python could not be started: pyodide/pyodide."),
    ],
)
def test_a_site_without_a_part_says_which(page, broken_site, messages, part, sentence):
    page.goto(broken_site(lambda folder: shutil.rmtree(folder / part)) + "/")
    said = page.evaluate("async () => (await import('/web/boot.js')).bootEngine().catch((error) => error.message)")
    assert said.startswith(sentence)
    messages.expect("404")
