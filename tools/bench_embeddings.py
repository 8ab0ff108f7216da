"""Compares embeddings by the bridge with those by wllama: 100 sentences, MiniLM; a part of ``make bench``.

Each engine is measured in turn, on a page of its own. The bridge gets all sentences in one call, wllama one by one, since its
call for a list gives one vector only. The vectors must be the same up to the rounding of both. By itself:
``python -m tools.bench_embeddings``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from bridge.errors import BridgeError
from tools.asset_sources import FetchError
from tools.assets import BUILD, ensure
from tools.bench_page import PEER_FILES, PROMPT, open_browser
from tools.browser import SetupError
from tools.minilm import model_path

N_TEXTS = 100
N_CTX = 512
COSINE = 0.995
"""Both round activations to eight bits, each in its own way."""


def sentences(count: int) -> list[str]:
    """Runs of 6 to 30 words of the benchmark's prompt, no two the same."""
    words = PROMPT.split()
    return [" ".join((words[i:] + words)[:6 + 7 * i % 25]) for i in range(count)]


def cosine(a: list[float], b: list[float]) -> float:
    def dot(x: list[float], y: list[float]) -> float:
        return sum(p * q for p, q in zip(x, y, strict=True))

    return dot(a, b) / (dot(a, a) * dot(b, b)) ** 0.5


def measure(browser: Any, address: str, engine: str, **spec: Any) -> dict:
    page = browser.new_page()
    try:
        page.on("pageerror", lambda error: print(f"the page reported: {error}", file=sys.stderr))
        page.goto(f"{address}/bench.html")
        page.wait_for_function("() => window.embed")
        return page.evaluate("([engine, spec]) => window.embed(engine, spec)", [engine, spec])
    finally:
        page.close()


def compare(browser: Any, address: str, threads: int, rounds: int, n_texts: int) -> dict:
    """Medians of sentences per second, and their ratio, above 1 where the bridge is better."""
    texts = sentences(n_texts)
    runs: dict[str, list[float]] = {"bridge": [], "wllama": []}
    vectors: dict[str, list] = {}
    for number in range(rounds):
        for engine in sorted(runs, reverse=number % 2 == 1):
            url = f"{address}/bench/models/minilm.gguf?run={number}"
            run = measure(browser, address, engine, url=url, texts=texts, threads=threads, nCtx=N_CTX)
            vectors[engine] = run["vectors"]
            runs[engine].append(1000 * n_texts / run["embedMs"])
            print(f"minilm, {threads} threads, round {number + 1}, {engine}: {runs[engine][-1]:.1f} sentences/s",
                  file=sys.stderr, flush=True)
    worst = min(map(cosine, vectors["wllama"], vectors["bridge"]))
    if worst < COSINE:
        raise BridgeError(f"the vectors of wllama and of the bridge have a cosine of only {worst:.4f}")
    ours, theirs = median(runs["bridge"]), median(runs["wllama"])
    return {"model": "MiniLM", "threads": threads, "sentences": n_texts, "unit": "sentences/s", "bridge": ours,
            "wllama": theirs, "ratio": ours / theirs, "cosine": worst}


def table(found: list[dict]) -> str:
    """Markdown, one row for each number of threads."""
    lines = ["| model | threads | embeddings | bridge | wllama | ratio |", "|---|---|---|---|---|---|"]
    for case in found:
        lines.append(f"| {case['model']} | {case['threads']} | {case['sentences']} sentences, sentences/s "
                     f"| {case['bridge']:.1f} | {case['wllama']:.1f} | {case['ratio']:.1f} × |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench_embeddings", description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=lambda text: [int(part) for part in text.split(",")], default=[2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=N_TEXTS)
    parser.add_argument("--type", default="Q8_0", help="of the model's matrices (default: %(default)s)")
    parser.add_argument("--site", type=Path, default=BUILD / "site")
    options = parser.parse_args()
    try:
        ensure(PEER_FILES, log=lambda text: print(text, file=sys.stderr))
        with open_browser(options.site, {"minilm": model_path(options.type)}) as (browser, address):
            found = [compare(browser, address, threads, options.rounds, options.sentences) for threads in options.threads]
    except (BridgeError, FetchError, SetupError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(found, indent=1))
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
