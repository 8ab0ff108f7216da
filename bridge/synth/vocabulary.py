"""A byte-level BPE vocabulary of any size: 256 bytes, then pairs of what is there already, then three control tokens.

Its words mean nothing, but any text can be encoded, any token has a text, and merges apply as in real vocabularies.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from itertools import islice
from typing import Any

from bridge.errors import InputError
from bridge.tokenizer.bpe import BYTE_TO_CHAR

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MIN_TOKENS = 256 + len(SPECIAL)
NORMAL, CONTROL = 1, 3  # tokenizer.ggml.token_type
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def vocabulary(n_vocab: int, pre: str) -> dict[str, Any]:
    """The ``tokenizer.*`` metadata for ``n_vocab`` tokens; raises InputError below 259."""
    if n_vocab < MIN_TOKENS:
        raise InputError(
            f"a vocabulary needs at least {MIN_TOKENS} tokens (256 bytes and 3 control tokens); got {n_vocab}"
        )
    merges = list(islice(_merges(), n_vocab - MIN_TOKENS))
    if len(merges) < n_vocab - MIN_TOKENS:
        raise InputError(f"a synthetic vocabulary has at most {MIN_TOKENS + len(merges)} tokens; got {n_vocab}")
    tokens = [*BYTE_TO_CHAR.values(), *(left + right for left, right in merges), *SPECIAL]
    first_special = n_vocab - len(SPECIAL)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [NORMAL] * first_special + [CONTROL] * len(SPECIAL),
        "tokenizer.ggml.merges": [f"{left} {right}" for left, right in merges],
        "tokenizer.ggml.bos_token_id": first_special,
        "tokenizer.ggml.eos_token_id": first_special + 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


def _merges() -> Iterator[tuple[str, str]]:
    """Space and letter, letter and letter, then any two of these pairs: about half a million distinct results."""
    space, letters = BYTE_TO_CHAR[ord(" ")], string.ascii_lowercase
    starts = [(space, letter) for letter in letters]
    pairs = [(left, right) for left in letters for right in letters]
    yield from starts
    yield from pairs
    words = [left + right for left, right in pairs]
    for right in words:  # common beginnings first, so that small vocabularies hold words with a leading space too
        for left in (*(space + letter for letter in letters), *words):
            yield left, right
