"""Coverage-guided fuzzing of the GGUF reader: ``python -m tools.fuzz_reader [CORPUS] [libFuzzer options]``.

Needs ``pip install atheris``, which is no dependency of anything else. A crash is any exception but a BridgeError, or a
GGUFError that contradicts its own code. For ten minutes: ``python -m tools.fuzz_reader build/corpus -max_total_time=600``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["bridge.gguf", "bridge.quants", "bridge.tokenizer"]):
    from bridge.errors import BridgeError
    from bridge.gguf import GGUFError, open_gguf
    from bridge.quants import decode  # noqa: F401  so that it is instrumented, too
    from bridge.tokenizer import Tokenizer  # noqa: F401

CODES = {"TRUNCATED_GGUF", "INVALID_GGUF", "GGUF_LIMIT_EXCEEDED", "UNSUPPORTED_GGUF"}
LARGEST_ARRAY = 1 << 16  # bytes decoded per tensor


def look_into(data: bytes) -> None:
    """Open it and use everything in it."""
    try:
        file = open_gguf(data)
    except GGUFError as error:
        assert error.code in CODES and error.needs_more_bytes == (error.code == "TRUNCATED_GGUF"), error.code
        return
    for value in file.metadata.values():
        if not isinstance(value, (str, int, float)):
            list(value)
    for name, tensor in file.tensors.items():
        assert len(file.bytes(name)) == tensor.nbytes
        if tensor.nbytes <= LARGEST_ARRAY:
            assert file.array(name).shape == tensor.shape
            file.rows(name, [tensor.n_rows - 1])
    try:
        tokenizer = file.tokenizer()
        tokenizer.decode_bytes(tokenizer.encode(b"The capital \xff of France is 12345"))
    except BridgeError:
        pass


def write_seeds(corpus: Path) -> None:
    """Small good files, two of them with a tokenizer, and the forged ones of the tests."""
    from bridge.gguf_writer import write_gguf
    from tests.gguf.forge import small_model
    from tests.gguf.split_model import metadata_of
    from tests.gguf.test_hostile import HOSTILE

    corpus.mkdir(parents=True, exist_ok=True)
    models = Path(__file__).resolve().parent.parent / "tests" / "data" / "models"
    for name in ("llama-untied-f16.gguf", "gemma3-q4_0.gguf"):
        with open_gguf(models / name) as file:
            write_gguf(corpus / name, metadata_of(file))
    (corpus / "small").write_bytes(small_model())
    for i, (data, *_) in enumerate(HOSTILE.values()):
        (corpus / f"forged-{i}").write_bytes(data)


def main() -> None:
    options = [argument for argument in sys.argv[1:] if argument.startswith("-")]
    folders = [Path(argument) for argument in sys.argv[1:] if not argument.startswith("-")]
    corpus = folders[0] if folders else Path("build/corpus")
    write_seeds(corpus)
    atheris.Setup([sys.argv[0], str(corpus), *options], look_into)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
