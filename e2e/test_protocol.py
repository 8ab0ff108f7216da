"""The page's side of the wire protocol in Chromium: the suites of tests/js, which Node runs too, over their fake Worker."""

from __future__ import annotations

import mimetypes
from pathlib import Path

import pytest
from e2e.conftest import ROOT

PAGE = "https://e.test/app/index.html"  # the address that the suites expect; nothing of it is ever asked of a network
IMPORTS = '{"imports": {"node:test": "/repo/e2e/pages/node_test.js", "node:assert/strict": "/repo/e2e/pages/node_assert.js"}}'
HTML = f'<!doctype html><link rel="icon" href="data:,"><script type="importmap">{IMPORTS}</script>'
NEED_NODE = {"bridge_api_document", "bridge_types", "bridge_engine_host"}
"""They read files of the repository, or stand for a worker."""
SUITES = sorted({path.name.removesuffix(".test.mjs") for path in (ROOT / "tests" / "js").glob("bridge_*.test.mjs")} - NEED_NODE)

RUN = """async (suite) => {
  await import(`/repo/tests/js/${suite}.test.mjs`);
  const { runTests } = await import("/repo/e2e/pages/node_test.js");
  return runTests();
}"""


def serve(route):
    path = route.request.url.removeprefix("https://e.test/").split("?")[0]
    if path == "app/index.html":
        route.fulfill(body=HTML, content_type="text/html")
        return
    file = ROOT / path.removeprefix("repo/")
    is_ours = path.startswith("repo/") and file.suffix in (".js", ".mjs") and file.is_file()
    kind = "text/javascript" if is_ours else mimetypes.guess_type(Path(path).name)[0]
    route.fulfill(path=file, content_type=kind) if is_ours else route.fulfill(status=404)


@pytest.fixture(scope="module")
def page(browser):
    context = browser.new_context()
    context.route("https://e.test/**", serve)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("suite", SUITES)
def test_the_suite_holds_in_a_page(page, suite):
    page.goto(PAGE)  # anew for each: suites replace globals
    outcomes = page.evaluate(RUN, suite)
    failed = [f"{outcome['title']}\n{outcome['error']}" for outcome in outcomes if outcome["error"]]
    assert not failed, "\n\n".join(failed)
    assert sum(not outcome["skip"] for outcome in outcomes) > 2
