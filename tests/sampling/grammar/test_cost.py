"""What following a grammar costs, in states made and trie nodes looked at, which do not depend on the machine."""

import random

import pytest

from bridge.sampling.grammar import AmbiguityError, Grammar, GrammarConstraint, GrammarError, machine, masks
from tests.sampling.grammar.reference import ListTokenizer

JSON = r"""root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""
FIELD = r"""root ::= "{\"text\": \"" char{0,300} "\"}"
char ::= [^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" [0-9a-fA-F]{4})
"""


@pytest.fixture(scope="module")
def tokenizer():
    """20000 tokens: bytes, words with and without a space before, and the usual punctuation behind and between words."""
    rng = random.Random(1)
    syllables = [a + b for a in "bcdfgklmnprst" for b in "aeiou"]
    words = sorted({"".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(9000)})
    pieces = [bytes([byte]) for byte in range(256)]
    pieces += [text.encode() for word in words for text in (word, " " + word)]
    pieces += [(rng.choice(words) + end).encode() for end in ('"', '":', '",', '"}', "\\n", ".\n", "],") for _ in range(150)]
    pieces += [text.encode() for text in ('{"', '":', '": "', '", "', '"}', "}}", "]}", "[[", "  ", "\n  ", "true", "null", "-1")]
    pieces += [b"-" * n for n in range(2, 80)]
    return ListTokenizer(list(dict.fromkeys(pieces)) + [b"<end>"], eog=[len(dict.fromkeys(pieces))])


def written(tokenizer, grammar, text, n_checked=None):
    """Per token of ``text``, cut greedily: nodes looked at for a mask, and states made for it and for the token."""
    constraint = GrammarConstraint(grammar, tokenizer)
    ids = {piece: token for token, piece in enumerate(tokenizer.pieces)}
    made, looked = grammar.reader.machine, grammar.masks_for(tokenizer)
    costs, data = [], text.encode()
    while data:
        piece = next(data[:n] for n in range(min(40, len(data)), 0, -1) if data[:n] in ids)
        before = looked.n_visited, made.n_states
        assert ids[piece] in constraint.mask()
        constraint.accept(ids[piece])
        costs.append((looked.n_visited - before[0], made.n_states - before[1]))
        data = data[len(piece) :]
    assert constraint.may_end
    return costs


def json_text(words, n):
    return "{" + ",".join(f'"{words[3 * i]}": "{words[3 * i + 1]} {words[3 * i + 2]}"' for i in range(n)) + "}"


def test_a_grammar_is_learned_once(tokenizer):
    grammar = Grammar(JSON)
    words = [piece.decode() for piece in tokenizer.pieces[256:2000:2]]
    first = written(tokenizer, grammar, json_text(words, 30))
    assert grammar.reader.machine.n_states < 200
    assert max(nodes for nodes, _ in first) < tokenizer.n_vocab / 4
    assert sum(nodes for nodes, _ in first) < tokenizer.n_vocab
    again = written(tokenizer, grammar, json_text(words[100:], 30))
    assert sum(nodes for nodes, _ in again) < 500
    assert sum(states for _, states in again) < 5


def test_depth_costs_little_per_level(tokenizer):
    grammar = Grammar(JSON)
    depth = 40
    costs = written(tokenizer, grammar, '{"a": ' * depth + "1" + "}" * depth)
    settled = costs[len(costs) // 4 :]
    assert max(nodes for nodes, _ in settled) < 2500
    assert max(states for _, states in settled) < 80


def test_counted_characters_cost_a_few_states_per_token(tokenizer):
    grammar = Grammar(FIELD)
    words = [piece.decode() for piece in tokenizer.pieces[256:400:2]]
    costs = written(tokenizer, grammar, '{"text": "' + " ".join(words[:40]) + '"}')
    nodes, states = (sorted(kind)[len(costs) // 2] for kind in zip(*costs, strict=True))
    assert nodes < 1500
    assert states < 40


def test_asking_for_one_token_looks_at_no_nodes(tokenizer):
    grammar = Grammar(JSON)
    constraint = GrammarConstraint(grammar, tokenizer)
    assert sum(constraint.allows(token) for token in range(tokenizer.n_vocab)) == 2
    assert grammar.masks_for(tokenizer).n_visited == 0


def test_words_with_common_beginnings_share_their_states():
    words = [a + b + c for a in "abcdefghij" for b in "klmnopqrst" for c in "uvwxyzabcd"]
    grammar = Grammar("root ::= (" + " | ".join(f'"{word}"' for word in words) + ')+ "."')
    assert grammar.accepts("".join(words).encode() + b".")
    assert grammar.reader.machine.n_states < 200


def test_states_are_forgotten_without_harm(monkeypatch, tokenizer):
    monkeypatch.setattr(machine, "MAX_STATES", 40)
    monkeypatch.setattr(masks, "MASKS_KEPT", 2)
    grammar, kept = Grammar(JSON), Grammar(JSON)
    monkeypatch.undo()
    monkeypatch.setattr(machine, "MAX_STATES", 40)
    words = [piece.decode() for piece in tokenizer.pieces[256:2000:2]]
    for n in (1, 7):
        text = '{"a": ' * n + json_text(words, 3) + "}" * n
        assert grammar.accepts(text.encode()) and not grammar.accepts(text.encode()[:-1])
        written(tokenizer, grammar, text)
    assert len(grammar.reader.machine._states) <= 40 < kept.reader.machine.n_states + grammar.reader.machine.n_states


N = 5000
HOSTILE = {
    "groups in groups": ("root ::= " + "(" * N + '"a"' + ")" * N, b"a"),
    "groups never closed": ("root ::= " + "(" * N + '"a"', None),
    "quantifier upon quantifier": ('root ::= "a"' + "+" * 1000, b"aaa"),
    "counts in counts": ('root ::= (("a"{0,10}){0,10}){0,10}', b"a" * 500),
    "a count of alternatives that overlap": ('root ::= ("a" | "aa" | "aaa"){0,600}', b"a" * 300),
    "a huge count": ('root ::= "a"{1,100000}', b"a" * N),
    "the largest count": ('root ::= "a"{2000}', b"a" * 2000),
    "stacks that would double": ('root ::= "a" root "b" | "a" root "c" | "a"', b"a" * 1000 + b"bc" * 499 + b"b"),
    "trees without end": ('root ::= "a" root root | "a"', AmbiguityError),
    "too many ways": ('root ::= x{0,30}\nx ::= "a" x? | y y | "a"\ny ::= "a" root "a"? | "a"', AmbiguityError),
    "a chain of rules": ("root ::= r0\n" + "".join(f"r{n} ::= r{n + 1}\n" for n in range(N)) + f'r{N} ::= "a"', b"a"),
    "a chain that returns": ('root ::= r0 "."\n' + "".join(f'r{n} ::= r{n + 1} "b"\n' for n in range(N)) + f"r{N} ::= [a]",
                             b"a" + b"b" * N + b"."),
    "many words": ("root ::= " + " | ".join(f'"w{n}x"' for n in range(N)), b"w777x"),
    "many classes at one place": ("root ::= (" + " | ".join(f"[^{chr(0x4E00 + n)}]" for n in range(2000)) + ")*", AmbiguityError),
    "a class of many ranges": ("root ::= [" + "".join(chr(0x100 + 2 * n) for n in range(20000)) + "]*", "Ā".encode() * 9),
    "nothing but optional parts": ("root ::= " + '("a"? | "b"?) ' * 1000, b"ab" * 10),
    "optional parts without end": ("root ::= " + "x " * 9000 + '\nx ::= "a" | y\ny ::= "b" |', AmbiguityError),
    "a long literal": ('root ::= "' + "a" * 20000 + '"', b"a" * 20000),
}


@pytest.mark.parametrize("grammar, text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_grammars_end_with_an_answer_or_an_error(grammar, text):
    if text is None:
        with pytest.raises(GrammarError):
            Grammar(grammar)
    elif text is AmbiguityError:
        with pytest.raises(AmbiguityError, match="too ambiguous|overlap at one place"):
            Grammar(grammar).accepts(b"a" * 1000)
    else:
        grammar = Grammar(grammar)
        assert grammar.accepts(text)
        assert grammar.reader.machine.n_states <= 2 * len(text) + 10


def test_a_mask_that_would_take_too_long_is_an_error(monkeypatch, tokenizer):
    monkeypatch.setattr(masks, "MAX_EFFORT", 5000)
    grammar = Grammar('root ::= [a-z] root [a-m] | [a-m] root [n-z] | [^x] root "b" | [a-z ]')
    with pytest.raises(AmbiguityError, match="finding the tokens it allows would take too long"):
        GrammarConstraint(grammar, tokenizer).mask()
