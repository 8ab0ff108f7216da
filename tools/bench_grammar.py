"""What following a grammar costs per token, and once per vocabulary: ``python -m tools.bench_grammar MODEL``.

The same in Pyodide under Node: ``node tools/in_pyodide.mjs build/site tools.bench_grammar /disk/path/of/MODEL``.

Texts are tokenized and followed token by token; for each the whole vocabulary's mask is computed, which a sampler asks for
only when the grammar refuses its own pick.
"""

from __future__ import annotations

import argparse
import json
import time
from statistics import median

from bridge.gguf import open_gguf
from bridge.sampling.grammar import Grammar, GrammarConstraint
from bridge.sampling.grammar.vocabulary import vocabulary_of
from bridge.tokenizer import Tokenizer

JSON = r"""root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""
SCHEMA = r"""root ::= "{\"name\": \"" char{1,40} "\", \"kind\": \"" ("person" | "place" | "thing") "\", \"year\": " [0-9]{4} "}"
char ::= [^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" [0-9a-fA-F]{4})
"""
PEOPLE = [{"name": f"Person number {n}", "height": 1.5 + n / 100, "tags": ["a few", "words", None, n % 2 == 0]} for n in range(12)]
CASES = {
    "JSON": (JSON, json.dumps({"people": PEOPLE}, indent=1)),
    "schema": (SCHEMA, '{"name": "A rather long name of somebody", "kind": "place", "year": 1987}'),
}


def milliseconds(action) -> float:
    started = time.perf_counter()
    action()
    return 1000 * (time.perf_counter() - started)


def followed(source: str, text: str, tokenizer: Tokenizer) -> list[float]:
    """Milliseconds per token of ``text``: its mask, and taking it."""
    constraint = GrammarConstraint(Grammar.for_tokenizer(source, tokenizer), tokenizer)
    times = []
    for token in tokenizer.encode(text, add_special=False, parse_special=False):
        masks: list[bool] = []

        def step(token: int = token) -> None:
            masks.append(token in constraint.mask())
            constraint.accept(token)

        times.append(milliseconds(step))
        assert masks[0], f"the grammar does not allow token {token}"
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    arguments = parser.parse_args()
    with open_gguf(arguments.model) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    tokenizer.encode("warm")
    print(f"{tokenizer.n_vocab} tokens, prepared in {milliseconds(lambda: vocabulary_of(tokenizer)):.0f} ms")
    for name, (source, text) in CASES.items():
        for round in ("first", "again"):
            times = followed(source, text, tokenizer)
            mean = sum(times) / len(times)
            print(f"{name}, {round}: {len(times)} tokens, mean {mean:.2f} ms, median {median(times):.2f} ms, most {max(times):.1f} ms")


if __name__ == "__main__":
    main()
