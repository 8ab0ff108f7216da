"""Hyper-parameters of models people run, by architecture and size; from the models' published configurations."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bridge.errors import InputError


@dataclass(frozen=True)
class Shape:
    """One model's hyper-parameters, named as in llama.cpp; ``tied`` models use the embedding as output matrix."""

    arch: str
    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_vocab: int
    n_ctx: int
    rope_freq_base: float
    rms_eps: float = 1e-5
    tied: bool = True
    pre: str = "smollm"
    sliding_window: int = 0


def _llama(
    n_layer, n_embd, n_ff, n_head, n_head_kv, *, n_vocab=128256, base=500000.0, n_ctx=131072, tied=True
) -> Shape:
    pre = "llama-bpe" if n_vocab == 128256 else "smollm"
    head_dim = n_embd // n_head
    return Shape("llama", n_layer, n_embd, n_ff, n_head, n_head_kv, head_dim, n_vocab, n_ctx, base, tied=tied, pre=pre)


def _qwen2(n_layer, n_embd, n_ff, n_head, n_head_kv, *, n_vocab=151936, tied=True) -> Shape:
    head_dim = n_embd // n_head
    return Shape("qwen2", n_layer, n_embd, n_ff, n_head, n_head_kv, head_dim, n_vocab, 32768, 1e6, 1e-6, tied, "qwen2")


def _qwen3(n_layer, n_embd, n_ff, n_head, n_head_kv, *, n_vocab=151936, head_dim=128, tied=True) -> Shape:
    return Shape("qwen3", n_layer, n_embd, n_ff, n_head, n_head_kv, head_dim, n_vocab, 40960, 1e6, 1e-6, tied, "qwen2")


def _gemma(
    arch, n_layer, n_embd, n_ff, n_head, n_head_kv, window, *, n_vocab=256000, head_dim=256, n_ctx=8192
) -> Shape:
    base = 1e6 if arch == "gemma3" else 10000.0
    return Shape(
        arch, n_layer, n_embd, n_ff, n_head, n_head_kv, head_dim, n_vocab, n_ctx, base, 1e-6, sliding_window=window
    )


# "tiny" is no one's model: two layers whose rows are whole K-quant blocks, and a vocabulary of bytes and some pairs.
SHAPES: dict[tuple[str, str], Shape] = {
    ("llama", "tiny"): _llama(2, 256, 512, 4, 2, n_vocab=512, base=10000.0, n_ctx=512),
    ("llama", "135m"): _llama(30, 576, 1536, 9, 3, n_vocab=49152, base=100000.0, n_ctx=8192),  # SmolLM2
    ("llama", "360m"): _llama(32, 960, 2560, 15, 5, n_vocab=49152, base=100000.0, n_ctx=8192),
    ("llama", "1.7b"): _llama(24, 2048, 8192, 32, 32, n_vocab=49152, base=130000.0, n_ctx=8192),
    ("llama", "1b"): _llama(16, 2048, 8192, 32, 8),  # Llama 3.2
    ("llama", "3b"): _llama(28, 3072, 8192, 24, 8),
    ("llama", "8b"): _llama(32, 4096, 14336, 32, 8, tied=False),  # Llama 3.1
    ("qwen2", "tiny"): _qwen2(2, 256, 512, 4, 2, n_vocab=512),
    ("qwen2", "0.5b"): _qwen2(24, 896, 4864, 14, 2),
    ("qwen2", "1.5b"): _qwen2(28, 1536, 8960, 12, 2),
    ("qwen2", "3b"): _qwen2(36, 2048, 11008, 16, 2),
    ("qwen2", "7b"): _qwen2(28, 3584, 18944, 28, 4, n_vocab=152064, tied=False),
    ("qwen3", "tiny"): _qwen3(2, 256, 512, 4, 2, n_vocab=512, head_dim=64),
    ("qwen3", "0.6b"): _qwen3(28, 1024, 3072, 16, 8),
    ("qwen3", "1.7b"): _qwen3(28, 2048, 6144, 16, 8),
    ("qwen3", "4b"): _qwen3(36, 2560, 9728, 32, 8),
    ("qwen3", "8b"): _qwen3(36, 4096, 12288, 32, 8, tied=False),
    ("gemma2", "tiny"): _gemma("gemma2", 2, 256, 512, 4, 2, 64, n_vocab=512, head_dim=64),
    ("gemma2", "2b"): _gemma("gemma2", 26, 2304, 9216, 8, 4, 4096),
    ("gemma2", "9b"): _gemma("gemma2", 42, 3584, 14336, 16, 8, 4096),
    ("gemma3", "tiny"): _gemma("gemma3", 2, 256, 512, 4, 2, 64, n_vocab=512, head_dim=64),
    ("gemma3", "270m"): _gemma("gemma3", 18, 640, 2048, 4, 1, 512, n_vocab=262144, n_ctx=32768),
    ("gemma3", "1b"): _gemma("gemma3", 26, 1152, 6912, 4, 1, 512, n_vocab=262144, n_ctx=32768),
    ("gemma3", "4b"): _gemma("gemma3", 34, 2560, 10240, 8, 4, 1024, n_vocab=262144, n_ctx=131072),
}
ARCHITECTURES = tuple(dict.fromkeys(arch for arch, _ in SHAPES))


def shape(arch: str, size: str = "tiny", **changes: int | bool) -> Shape:
    """The shape of ``arch`` and ``size``, with some fields changed; raises InputError for what cannot be one.

    Where ``n_embd`` or ``n_head`` changes and ``head_dim`` does not, heads of llama and qwen2 follow as n_embd / n_head.
    """
    sizes = [s for a, s in SHAPES if a == arch]
    if not sizes:
        raise InputError(f"there is no synthetic architecture {arch!r}; known are {', '.join(ARCHITECTURES)}")
    if size.lower() not in sizes:
        raise InputError(f"{arch} has no size {size!r}; it has {', '.join(sizes)}")
    base = SHAPES[arch, size.lower()]
    if arch in ("llama", "qwen2") and "head_dim" not in changes and changes.keys() & {"n_embd", "n_head"}:
        n_embd, n_head = changes.get("n_embd", base.n_embd), changes.get("n_head", base.n_head)
        if n_embd % n_head:
            raise InputError(f"a width of {n_embd} cannot be split among {n_head} heads")
        changes["head_dim"] = n_embd // n_head
    found = replace(base, **changes)
    if found.n_head % found.n_head_kv:
        raise InputError(f"{found.n_head} heads cannot share {found.n_head_kv} key/value heads evenly")
    if found.head_dim % 2:
        raise InputError(f"the head width must be even to be rotated; got {found.head_dim}")
    return found
