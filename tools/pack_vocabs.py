"""Cuts vocabularies down to what recorded tokenizations can touch: `python -m tools.pack_vocabs CASES VOCABS... `.

CASES is a folder of JSON files, each naming a GGUF file (looked for in the VOCABS folders; `ggml-vocab-*.gguf` are in
vendor/llama.cpp/models of the llama-cpp-python 0.3.36 source distribution) and what llama.cpp made of some texts with
it. A tokenizer only ever looks up pieces of its (normalised) input, so tokens and merges that are no part of any input
cannot matter; the result is checked against all cases all the same, and so is the whole vocabulary.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import json
import sys
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bridge.gguf import open_gguf
from bridge.tokenizer import Tokenizer
from bridge.tokenizer.bpe import BYTE_TO_CHAR
from bridge.tokenizer.characters import category, decode_leniently, lower, without_accent
from bridge.tokenizer.special_tokens import ALWAYS_SHOWN, END_OF_GENERATION_TEXTS, KNOWN_TEXTS
from bridge.tokenizer.vocab import BYTE, KEY, NORMAL, SPECIAL_ID_KEYS
from bridge.tokenizer.words import SPACE_MARK
from tests.tokenizer.packed import DATA, given, metadata_of, wrong_answers

_ARRAYS = ("tokens", "token_type", "scores", "merges", "precompiled_charsmap")
_SPECIAL_TEXTS = {text for texts in KNOWN_TEXTS.values() for text in texts} | {*END_OF_GENERATION_TEXTS, *ALWAYS_SHOWN}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("cases", type=Path)
    parser.add_argument("vocabs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=DATA)
    arguments = parser.parse_args()
    for path in sorted(arguments.cases.glob("*.json")):
        case_file = json.loads(path.read_text())
        record = pack(case_file, _find(case_file, arguments.vocabs))
        data = gzip.compress(json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode(), mtime=0)
        (arguments.out / f"{path.stem}.json.gz").write_bytes(data)
        print(f"{path.stem}: {len(record['tokens'])} of {record['n_vocab']} tokens, {len(record['merges'])} merges, {len(data)} bytes")
    return 0


def _find(case_file: dict[str, Any], folders: Iterable[Path]) -> Path:
    for folder in folders:
        path = folder / case_file["file"]
        if path.is_file():
            if hashlib.sha256(path.read_bytes()).hexdigest() != case_file["sha256"]:
                sys.exit(f"{path} is not the file that the cases were recorded with (sha256 {case_file['sha256']})")
            return path
    sys.exit(f"{case_file['file']} is in none of the folders given")


def pack(case_file: dict[str, Any], path: Path) -> dict[str, Any]:
    """Record for one vocabulary; exits if the whole or the cut vocabulary gives anything but the recorded answers."""
    with open_gguf(path) as model:
        metadata = {key: value for key, value in model.metadata.items() if key.startswith((KEY, "general.name", "general.arch"))}
    tokens = list(metadata[KEY + "tokens"])
    types, scores = metadata.get(KEY + "token_type"), metadata.get(KEY + "scores")
    haystack = "\n\n".join(form for case in case_file["cases"] for form in _written_forms(given(case)))

    def touched(text: str) -> bool:
        return text in haystack or text.removeprefix(SPACE_MARK) in haystack  # any piece may begin a word

    kept = {token for token, text in enumerate(tokens) if touched(text) or text in _SPECIAL_TEXTS}
    kept |= {token for token, *_ in case_file["pieces"]}
    kept |= {metadata[KEY + key] for keys in SPECIAL_ID_KEYS.values() for key in keys if KEY + key in metadata}
    kept |= {token for token in range(len(tokens)) if types and types[token] == BYTE}
    if scores:  # unknown characters score less than the worst token
        kept.add(min(range(len(tokens)), key=lambda token: (types and types[token] != NORMAL, scores[token])))
    record = {
        "source": {key: case_file[key] for key in ("file", "sha256", "engine")},
        "metadata": {key: value for key, value in metadata.items() if key.removeprefix(KEY) not in _ARRAYS},
        "n_vocab": len(tokens),
        "has_types": types is not None,
        "has_scores": scores is not None,
        "tokens": [[token, tokens[token], types[token] if types else 1, scores[token] if scores else 0] for token in sorted(kept)],
        "merges": [merge for merge in metadata.get(KEY + "merges", ()) if touched(merge.replace(" ", ""))],
        "charsmap": base64.b64encode(bytes(metadata.get(KEY + "precompiled_charsmap", b""))).decode(),
        "flags": case_file["flags"],
        "eog_ids": case_file["eog_ids"],
        "cases": case_file["cases"],
        "pieces": case_file["pieces"],
    }
    for what, tok in (("whole", Tokenizer.from_metadata(metadata)), ("cut", Tokenizer.from_metadata(metadata_of(record)))):
        if wrong := wrong_answers(tok, record):
            sys.exit(f"{path.name}: the {what} vocabulary gives {len(wrong)} wrong answers, first: {wrong[0]}")
    return record


def _written_forms(text: str | bytes) -> list[str]:
    """A text in every way a vocabulary may write it."""
    plain = text if isinstance(text, str) else decode_leniently(text)
    data = plain.encode("utf-8", "surrogatepass")
    bases = [without_accent(char) for char in plain]
    folded = "".join(lower(char) for char in bases if category(ord(char)) not in ("M", "C") or char.isspace())
    forms = [plain, folded, unicodedata.normalize("NFKC", plain), "".join(BYTE_TO_CHAR[byte] for byte in data)]
    return [*forms, *(form.replace(" ", SPACE_MARK) for form in forms)]


if __name__ == "__main__":
    sys.exit(main())
