"""Special tokens: which end a generation, which are matched in text before anything else, and how text splits at them.

Files are unreliable about their special tokens, so llama.cpp also recognises them by text; the lists here are its lists.
"""

from __future__ import annotations

from collections import Counter

from bridge.tokenizer.characters import to_bytes
from bridge.tokenizer.vocab import CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Vocab

# Texts that name a special token when the file does not, in order of preference.
KNOWN_TEXTS = {
    "eot": (
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "<｜end▁of▁sentence｜>",
        "<end_of_utterance>",
    ),
    "eom": ("<|eom_id|>",),
    "fim_pre": (
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
    ),
    "fim_suf": (
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
    ),
    "fim_mid": (
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
        "<|middle|>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}

END_OF_GENERATION_TEXTS = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
)

# Markers of the harmony format, which are part of what the model says.
ALWAYS_SHOWN = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")

_ASCII_SPACE = " \t\n\v\f\r"


def resolve_special_tokens(vocab: Vocab) -> frozenset[int]:
    """Complete `vocab.special` and correct token types by text; return the ids that end a generation."""
    ids, special, retyped = vocab.ids, vocab.special, vocab.retyped
    for name, texts in KNOWN_TEXTS.items():
        if special[name] is None:
            special[name] = next((ids[text] for text in texts if text in ids), None)
            if special[name] is not None:
                retyped[special[name]] = CONTROL

    ending = {special[name] for name in ("fim_pad", "fim_rep", "fim_sep")}
    for text in END_OF_GENERATION_TEXTS:
        if text in ids:
            ending.add(ids[text])
            retyped[ids[text]] = CONTROL
    for text in ALWAYS_SHOWN:
        if text in ids:
            retyped[ids[text]] = USER_DEFINED
    ending |= {special[name] for name in ("eos", "eot", "eom")}
    ending.discard(None)

    def ends(text: str) -> bool:
        return ids.get(text) in ending

    # In the harmony and Solar formats <|end|> closes a message, not the turn.
    if ends("<|end|>") and (ends("<|call|>") or ends("<|calls|>")) and (ends("<|return|>") or ends("<|flush|>")):
        ending.discard(ids["<|end|>"])
        retyped[ids["<|end|>"]] = USER_DEFINED
    # Gemma 4 and PLaMo use </s> as ordinary text.
    if ends("</s>") and (ends("<|tool_response>") or ends("<|plamo:eos|>")):
        ending.discard(ids["</s>"])
        retyped[ids["</s>"]] = NORMAL
    return frozenset(ending)


class SpecialTokenSplitter:
    """Splits text at the special tokens it contains, longest token first, as llama.cpp does.

    User-defined tokens are always matched; control and unknown tokens only when special tokens are to be parsed.
    """

    def __init__(self, vocab: Vocab) -> None:
        types = vocab.types or ()
        matched = {token for token, kind in enumerate(types) if kind in (UNKNOWN, CONTROL, USER_DEFINED)}
        matched |= vocab.retyped.keys()
        matched = {token for token in matched if vocab.type_of(token) in (UNKNOWN, CONTROL, USER_DEFINED)}
        self._tokens = {vocab.tokens[token]: token for token in matched}
        self._always = {token for token in matched if vocab.type_of(token) == USER_DEFINED}
        self._strip_left, self._strip_right = _stripping(vocab, matched)
        # First character -> length -> how many tokens start with it and are so long, to find the few that occur in a text.
        self._lengths: dict[str, Counter[int]] = {}
        for text in self._tokens:
            self._lengths.setdefault(text[0], Counter())[len(text)] += 1

    def split(self, text: str, parse_special: bool) -> list[str | int]:
        """Text between special tokens, and the ids of these, in order; no text is empty."""
        fragments: list[str | int] = [text] if text else []
        for special_text, token in self._present(text, parse_special):
            split: list[str | int] = []
            for fragment in fragments:
                if isinstance(fragment, str):
                    self._split_fragment(fragment, special_text, token, split)
                else:
                    split.append(fragment)
            fragments = split
        return fragments

    def _present(self, text: str, parse_special: bool) -> list[tuple[str, int]]:
        found: set[str] = set()
        for first, lengths in self._lengths.items():
            missing = dict(lengths)
            at = text.find(first)
            while at >= 0 and missing:
                for length in list(missing):
                    special = text[at : at + length]
                    if len(special) == length and special in self._tokens and special not in found:
                        found.add(special)
                        missing[length] -= 1
                        if not missing[length]:
                            del missing[length]
                at = text.find(first, at + 1)
        present = [(special, self._tokens[special]) for special in found]
        if not parse_special:
            present = [item for item in present if item[1] in self._always]
        return sorted(present, key=lambda item: (-len(to_bytes(item[0])), item[1]))

    def _split_fragment(self, fragment: str, special_text: str, token: int, out: list[str | int]) -> None:
        start, end = 0, len(fragment)
        while (at := fragment.find(special_text, start)) >= 0:
            left = fragment[start:at]
            if token in self._strip_left:
                left = left.rstrip(_ASCII_SPACE)
            if left:
                out.append(left)
            out.append(token)
            start = at + len(special_text)
            if token in self._strip_right:
                while start < end and fragment[start] in _ASCII_SPACE:
                    start += 1
        if start < end:
            out.append(fragment[start:])


def _stripping(vocab: Vocab, matched: set[int]) -> tuple[set[int], set[int]]:
    """Tokens that swallow the white space before and after them: GGUF does not record it, so the model's name tells."""
    name, architecture, pre = vocab.names
    ids = vocab.ids
    if any(part in pre for part in ("jina-v2-de", "jina-v2-es", "jina-v2-code")) or any(
        part in architecture for part in ("nomic-bert-moe", "jina-bert-v3")
    ):
        return {ids["<mask>"]} if "<mask>" in ids else set(), set()
    if "phi-3" in name.lower() or "phi3" in name.lower():
        keep = {ids.get(text) for text in ("<unk>", "<s>", "<|endoftext|>")}
        return set(), (matched | ({ids["</s>"]} if "</s>" in ids else set())) - keep
    if "modern-bert" in name.lower():
        return {ids["[MASK]"]} if "[MASK]" in ids else set(), set()
    return set(), set()
