"""Named limits on what a GGUF header may claim; far above every published model, far below what hurts a 4 GiB heap."""

from __future__ import annotations

from dataclasses import dataclass

KiB = 1024
MiB = 1024 * KiB


@dataclass(frozen=True, slots=True)
class GGUFLimits:
    """Limits for one open; pass ``replace(DEFAULT_LIMITS, …)`` where a file is known to need more, or less."""

    max_header_bytes: int = 64 * MiB  # the largest vocabularies published take about 20 MiB
    max_metadata_entries: int = 65_536
    max_key_bytes: int = 65_535  # the GGUF specification's own limit
    max_string_bytes: int = 16 * MiB
    max_array_length: int = 4 * MiB  # vocabularies reach 262,144 entries, merge lists about twice that
    max_tensors: int = 65_536  # unmerged mixture-of-experts files hold tens of thousands
    max_tensor_name_bytes: int = 255  # the specification says 64; some converters write more
    max_dimensions: int = 4  # GGML_MAX_DIMS
    max_alignment: int = 1 * MiB


DEFAULT_LIMITS = GGUFLimits()
