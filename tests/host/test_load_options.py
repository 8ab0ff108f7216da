"""Load options of a page as the engine's own."""

import pytest

from bridge.host.js_numbers import js_number, positive_integer
from bridge.host.models import PercentProgress
from bridge.host.notes import RuntimeNotes
from bridge.host.options import load_request


@pytest.mark.parametrize("options, config, n_ctx, n_ubatch", [
    ({}, {}, 4096, None),
    ({"nCtx": 512}, {}, 512, None),
    ({"nCtx": 0}, {}, 4096, None),
    ({"nCtx": "512.9"}, {}, 512, None),
    ({"nCtx": -3}, {}, 4096, None),
    ({"nCtx": 512, "nUbatch": 8}, {}, 512, 32),
    ({"nCtx": 512, "nUbatch": 1024}, {}, 512, 512),
    ({"nCtx": 512, "nUbatch": 128, "nBatch": 64}, {}, 512, 64),
    ({"nCtx": 512}, {"nUbatch": 128}, 512, 128),
    ({"nCtx": 16, "nUbatch": 64}, {}, 16, 16),
])
def test_context_and_batch_sizes(options, config, n_ctx, n_ubatch):
    request = load_request(options, config, 4096)
    assert (request.options.n_ctx, request.options.n_ubatch) == (n_ctx, n_ubatch)


@pytest.mark.parametrize("options, config, layers, notes", [
    ({}, {}, None, []),
    ({"nGpuLayers": -1}, {}, None, []),
    ({"nGpuLayers": 5.5}, {}, 5, []),
    ({}, {"nGpuLayers": 3}, 3, []),
    ({"nGpuLayers": "x"}, {"nGpuLayers": 3}, 3, []),
    ({"nGpuLayers": 0}, {"nGpuLayers": 3}, 0, []),
    ({"cacheTypeK": 8}, {}, None, ["flash_attention:auto_enabled_for_kv_cache"]),
    ({"cacheTypeK": 8, "flashAttention": 1}, {}, None, []),
    ({"cacheTypeK": 3, "flashAttention": 0}, {}, None, []),
])
def test_layers_and_cache_types(options, config, layers, notes):
    request = load_request(options, config, 4096)
    assert (request.gpu_layers, request.notes) == (layers, notes)


@pytest.mark.parametrize("k, v, kv_type", [(1, 1, "f16"), (8, 8, "q8_0"), (8, 2, "q8_0/q4_0"), (None, 2, "f16/q4_0"), (7, "8", "f16")])
def test_cache_types(k, v, kv_type):
    assert load_request({"cacheTypeK": k, "cacheTypeV": v}, {}, 4096).options.kv_type == kv_type


def test_javascript_numbers():
    assert js_number(" 1.5e1 ") == 15.0
    for value in ("", "1_000", "x", None, [], "nan"):
        assert not js_number(value) > 0
    assert positive_integer(0.9) is None
    assert positive_integer(float("inf")) == 2**31 - 1


def test_progress_of_an_unknown_total_counts_mebibytes():
    seen = []
    progress = PercentProgress(lambda counts: seen.append((counts["loaded"], counts["total"])))
    for loaded in (1, 1 << 20, (1 << 20) + 5, 5 << 20):
        progress(loaded, None)
    assert seen == [(1, 1), (1 << 20, 1 << 20), (5 << 20, 5 << 20)]


def test_progress_of_a_split_model_says_which_file_it_has_come_to():
    seen = []
    progress = PercentProgress(seen.append, (10, 10))
    for loaded in (1, 10, 11, 20, 20):
        progress(loaded, 20)
    assert seen == [{"loaded": n, "total": 20, "shard": 1 + (n > 10), "shards": 2} for n in (1, 10, 11, 20)]


def test_notes_are_kept_once_and_in_order_with_plain_details():
    notes = RuntimeNotes()
    notes.add("b")
    notes.extend(["a", "b"])
    notes.add("failed", "x = y; é " + "z" * 200)
    assert notes.joined().startswith("b;a;failed:x___y___z")
    assert len(notes.joined()) == len("b;a;failed:") + 120
