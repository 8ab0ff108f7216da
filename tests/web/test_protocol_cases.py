"""Every numbered case of the wire protocol that is about text has a test; this is the list of where.

A test whose title says "case 12" (or "cases 12 and 13", "cases 12 to 15") counts by itself; the others are named here by
their titles, which must exist.
"""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
FILES = [*TESTS.glob("js/*.mjs"), *TESTS.glob("host/*.py"), *TESTS.glob("tokenizer/*.py"), *TESTS.parent.glob("e2e/*.py")]
TEXT = "\n".join(path.read_text(encoding="utf-8") for path in FILES)

TITLED = {
    "init is posted first and no call before ready": [1],
    "the worker script is a module, and only a bridge module gets the mode parameter": [2, 3],
    "a worker that cannot start from a URL starts from a blob, which is revoked once": [4],
    "a worker that never starts leaves a bridge on the main thread, with the reason": [5],
    "disableWorker and coreModuleFactory construct no worker": [6, 7],
    "only whitelisted config crosses, with its defaults": [8, 9],
    "budgets: method over global over built-in, truncated and clamped": [11, 12],
    "a worker that is never ready is ended, and the waiting call moves to the main thread": [13],
    "ids start at 1 and count every call": [14],
    "a reply with an unknown id is ignored": [15],
    "a call before init is answered with an error under its id": [16],
    "init boots and answers ready once; other messages are ignored": [17, 18],
    "test_unknown_methods_and_messages": [19],
    "test_results_carry_a_state_only_where_the_protocol_says_so": [20, 21, 23],
    "the engine posts JSON with its buffers beside it, which are transferred once each": [26],
    "callbacks and signals never cross, everything else does": [29],
    "state bytes, adapters and heads travel as private copies": [31, 33, 34],
    "speculative options: duplicates dropped, cache URLs made absolute": [35],
    "a lost worker: the main thread reloads the model and repeats the call": [36, 74, 75, 91],
    "a load that fails with": [75, 81],
    "test_a_generation_stops_where_it_is": [48],
    "dispose during a fallback waits for its owner and for the old worker": [68],
    "an answer of the engine goes back unchanged": [72, 73],
    "each text method survives a request timeout, and returns an ordinary error as it is": [76, 77],
    "capability probes of speech fall back on any error": [78],
    "state methods never fall back, and a missing feature never costs the worker": [79],
    "a recoverable file error replaces the worker once and retries there": [80],
    "a load that times out moves to the main thread with its callbacks, without a restart": [82],
    "a restart whose retry fails leaves no model, and the old one is not brought back": [84],
    "a recovery whose reload fails ends with that error, and a new load works": [86],
    "a list of URLs is replayed as a list": [89],
    "warnings follow the log level and are not repeated": [92],
    "usage of an attempt that was lost is dropped; the retry reports its own": [131],
    "bad completion options are refused before the queue and before the disposed check": [134, 135, 139, 141],
    "the bounds themselves and absent values are accepted": [136, 137, 140, 143],
    "the draft limit follows the strategies": [142],
    "a broken transfer goes on with Range and If-Range": [171],
    "on resuming, ": [171],
    "test_plain_format": [179],
}

LATER = {
    "speech, decision heads, adapters, drafts": [24, 25, 27, 28, 32, 88, 145, *range(105, 115), *range(147, 152),
                                                 *range(154, 161), 163, 164],
    "projectors, images and audio": [87, *range(93, 105), 167],
    "embeddings": [185],
}
OTHERWISE = {
    138: "no engine of this project lacks the options",
    172: "a transfer that breaks before any byte is tried again, too",
}
"""Cases that cannot come up here, or in which this project does more than the protocol asks for."""

N_CASES = 186


def numbered(text):
    """Case numbers in titles of tests: "case 5", "cases 5 and 6", "cases 5 to 7", "test_cases_5_and_6_…"."""
    found = set()
    titles = re.findall(r"(?:test(?:InBothModes)?\(\s*['\"`]|def test_|^  ')(?:cases?[ _])?(\d.*?)(?:['\"`]|:|\()", text, re.MULTILINE)
    for title in titles:
        match = re.match(r"(\d+)(?:[ _](and|to)[ _](\d+))?(?=[:_ ]|$)", title)
        if match:
            first, joint, last = match.groups()
            found |= {int(first)} if not joint else {int(first), int(last)} if joint == "and" else set(range(int(first), int(last) + 1))
    return found


def test_every_case_is_tested_or_listed_for_later():
    by_title = {number for numbers in TITLED.values() for number in numbers}
    later = {number for numbers in LATER.values() for number in numbers}
    covered = by_title | numbered(TEXT) | later | set(OTHERWISE)
    missing = sorted(set(range(1, N_CASES + 1)) - covered)
    assert not missing, f"cases without a test: {missing}"
    assert not later & (by_title | numbered(TEXT)), f"tested by now: {sorted(later & (by_title | numbered(TEXT)))}"


def test_the_titles_exist():
    for title in TITLED:
        assert title in TEXT, f"no test is called {title!r}"
