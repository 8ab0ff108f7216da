"""Ids and texts equal to llama.cpp's, for real vocabularies of every family."""

import pytest

from tests.tokenizer.packed import names, record, tokenizer, wrong_answers

# Each is the vocabulary of models in wide use; a set without one of them would prove little.
REQUIRED = {
    "ggml-vocab-gpt-2",
    "ggml-vocab-llama-bpe",
    "ggml-vocab-qwen2",
    "real-smollm2",
    "real-gemma3",
    "ggml-vocab-llama-spm",
    "ggml-vocab-phi-3",
    "ggml-vocab-bert-bge",
    "ggml-vocab-nomic-bert-moe",
}


def test_the_vocabularies_are_there():
    assert REQUIRED <= set(names())


@pytest.mark.parametrize("name", names())
def test_every_recorded_answer(name):
    assert wrong_answers(tokenizer(name), record(name)) == []


@pytest.mark.parametrize("name", names())
def test_special_ids_and_flags(name):
    tok, recorded = tokenizer(name), record(name)["flags"]
    ids = {"bos": tok.bos_id, "eos": tok.eos_id, "sep": tok.sep_id, "pad": tok.pad_id, "mask": tok.mask_id}
    assert ids == {key: None if recorded[key] < 0 else recorded[key] for key in ids}
    assert (tok.add_bos, tok.add_eos, tok.add_sep) == (recorded["add_bos"], recorded["add_eos"], recorded["add_sep"])
    assert sorted(tok.eog_ids) == record(name)["eog_ids"]


@pytest.mark.parametrize("name", names())
def test_code_points_above_unicode_are_no_reason_to_stop(name):
    assert tokenizer(name).encode(b"a\xf4\x90\x80\x80b", False)  # llama.cpp ends the process here


@pytest.mark.parametrize("name", names())
def test_the_texts_told_at_once_are_those_of_single_tokens(name):
    tok = tokenizer(name)
    texts = tok.plain_texts()
    assert len(texts) == tok.n_vocab
    assert all(text is None or text.encode() == tok.token_bytes(token) for token, text in enumerate(texts))
    n_told = sum(bool(text) for text in texts)
    assert n_told > 100 or record(name)["metadata"]["tokenizer.ggml.model"] == "rwkv"
