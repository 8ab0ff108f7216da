"""Pre-tokenizers by name: how each byte-level BPE vocabulary cuts text into words before merging.

A file names its pre-tokenizer in `tokenizer.ggml.pre`. The patterns are those of the models' own tokenizer.json, in the
reading llama.cpp gives them: all letters outside ASCII count as upper and lower case at once, and white space outside
ASCII as a plain space. The name also settles defaults of the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.errors import UnsupportedError
from bridge.tokenizer.characters import ClassView
from bridge.tokenizer.cuts import Cut, DigitGroups, Step

# Bodies of character classes over a ClassView: the ASCII members and the representative of all others.
L = "A-Za-z" + ClassView.LETTER
N = "0-9" + ClassView.NUMBER
M = ClassView.MARK
P = r"!-#%-*,-/:;?@\[-\]_{}" + ClassView.PUNCTUATION
S = r"$+<=>\^`|~" + ClassView.SYMBOL
NO_CAPITAL = "a-z" + ClassView.LETTER
NO_SMALL = "A-Z" + ClassView.LETTER
ASCII_PUNCTUATION = r"!-/:-@\[-`{-~"

# The alternatives shared by the descendants of the GPT-4 pattern.
CONTRACTION = "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
WORD = rf"[^\r\n{L}{N}]?[{L}]+"
SYMBOLS = rf" ?[^\s{L}{N}]+[\r\n]*"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _cut(*alternatives: str, view: str = "classes") -> Cut:
    return Cut("|".join(alternatives), view)


def _ranges(text: str) -> str:
    """A character class body from code point ranges in hexadecimal: "41-5A B5"."""
    return "".join("-".join(f"\\U{int(end, 16):08x}" for end in item.split("-")) for item in text.split())


def _cased(letters_and: str = "", suffix: str = "") -> str:
    """Words that end where a capital follows a small letter (`fooBar` is two), with an optional suffix."""
    before, small, capital = rf"[^\r\n{L}{N}]?", f"[{NO_CAPITAL}{letters_and}]", f"[{NO_SMALL}{letters_and}]"
    return f"{before}{capital}*{small}+{suffix}|{before}{capital}+{small}*{suffix}"


GPT2 = _cut(rf"'(?:[stmd]|re|ve|ll)| ?[{L}]+| ?[{N}]+| ?[^\s{L}{N}]+|\s+(?!\S)|\s+")
LLAMA3 = _cut(CONTRACTION, WORD, f"[{N}]{{1,3}}", SYMBOLS, SPACES)
QWEN2 = _cut(CONTRACTION, WORD, f"[{N}]", SYMBOLS, SPACES)
QWEN35 = _cut(CONTRACTION, rf"[^\r\n{L}{N}]?[{L}{M}]+", f"[{N}]", rf" ?[^\s{L}{M}{N}]+[\r\n]*", SPACES)
TEKKEN = _cut(_cased(), f"[{N}]", rf" ?[^\s{L}{N}]+[\r\n/]*", SPACES)
GPT4O = _cut(_cased("", f"(?:{CONTRACTION})?"), f"[{N}]{{1,3}}", rf" ?[^\s{L}{N}]+[\r\n/]*", SPACES)
GRANITE = _cut(_cased(M, f"(?:{CONTRACTION})?"), f"[{N}]{{1,3}}", rf" ?[^\s{L}{N}]+[\r\n/]*", SPACES)
MARKED_WORD = rf"[^\r\n{L}{N}]?[{L}{M}]+(?:{CONTRACTION})?"
SYMBOL_WORD = rf"[{ASCII_PUNCTUATION}][A-Za-z]+|[^\r\n{L}{P}{S}]?[{L}{M}]+"
DEEPSEEK3 = _cut(SYMBOL_WORD, rf" ?[{P}{S}]+[\r\n]*", SPACES)

DIGIT = _cut(f"[{N}]")
DIGITS = _cut(f"[{N}]+")
UP_TO_3_DIGITS = _cut(f"[{N}]{{1,3}}")
ASCII_DIGITS_3 = _cut("[0-9][0-9][0-9]")
NEWLINE = _cut(r"[\r\n]")
NEWLINE_RUNS = _cut(r"[^\n]+|[\n]+")
HAN_AND_KANA = _cut(f"[{_ranges('4E00-9FA5 3040-309F 30A0-30FF')}]+", view="spaces")
DEEPSEEK_SCRIPTS = _cut(f"[{_ranges('4E00-9FA5 0800-4E00 AC00-D7FF')}]+", view="spaces")
DEEPSEEK_PUNCTUATION = _cut(rf"\s?[{_ranges('21-2F 3A-7E FF01-FF0F FF1A-FF5E 2018-201F 3000-3002')}]+", view="spaces")
DEEPSEEK_CASED_LETTERS = _ranges(
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A 38C 38E-3A1 "
    "3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A "
    "1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 "
    "1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 "
    "212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D "
    "A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 "
    "104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"
)
# Han, kana, Kangxi radicals, Thai and Lao, Khmer, Myanmar, Hangul. The third range starts at U+8C48, not at U+F900.
AFMOE_SCRIPTS = _ranges(
    "4E00-9FFF 3400-4DBF 8C48-FAFF 3040-309F 30A0-30FF FF65-FF9F 2F00-2FDF E40-E7F E80-EFF 1780-17FF 1000-109F AA60-AA7F "
    "A9E0-A9FF AC00-D7AF 1100-11FF"
)
BLOOM = _cut(r" ?[^(\s|.,!?" + _ranges("2026 3002 FF0C 3001 964 6D4 60C") + ")]+", view="spaces")
YOUTU_SCRIPTS = _cut(
    f"[{_ranges('AC00-D7A3 3131-318E')}]+",
    f"[{_ranges('FF01 2026 201C 201D 2018 2019 2014 FF1A FF1B FF0C 3001-303F FE30-FE4F')}]+",
    f"[{_ranges('3105-312F')}]+",
    f"[{_ranges('4E00-9FA5 3040-309F 30A0-30FF')}]+",
    view="spaces",
)
HAN = ClassView.HAN
KIMI = _cut(
    f"[{HAN}{ClassView.HAN_UNASSIGNED}]+",
    rf"[^\r\n{L}{N}{HAN}]?[{L}]+(?:{CONTRACTION})?",
    f"[{N}]{{1,3}}",
    rf" ?[^\s{L}{N}{HAN}]+[\r\n]*",
    SPACES,
    view="han",
)


@dataclass(frozen=True)
class PreTokenizer:
    """The cuts of one pre-tokenizer and the defaults that come with its name.

    `byte_level` false means tokens are plain UTF-8 (spaces written as U+2581 where `escape_whitespaces`), not the GPT-2
    byte alphabet. `has_bos` false means the vocabulary has no BOS token unless the file names one.
    """

    steps: tuple[Step, ...]
    clean_spaces: bool = False
    ignore_merges: bool = False
    add_bos: bool = False
    add_sep: bool = False
    has_bos: bool = True
    byte_level: bool = True
    escape_whitespaces: bool = False
    whole_newlines: bool = False  # a run of newlines that is a token stays whole


_DEFAULT = PreTokenizer((_cut(rf"[{P}$+<=>\^~|]+"), GPT2, DIGITS, ASCII_DIGITS_3), clean_spaces=True)
_GPT2 = PreTokenizer((GPT2,), clean_spaces=True)
_DEEPSEEK3 = PreTokenizer((UP_TO_3_DIGITS, HAN_AND_KANA, DEEPSEEK3))
_JAIS2_SPACES = "|".join(rf"\s{{{n}}}(?!\S)" for n in ("512", "256", "128", "64", "32", "16", "8", "4", "1,2"))

_BY_NAMES = {
    "default": _DEFAULT,
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano": PreTokenizer(
        (LLAMA3,), clean_spaces=True, ignore_merges=True, add_bos=True
    ),
    "dbrx smaug-bpe": PreTokenizer((LLAMA3,), clean_spaces=True),
    "chatglm-bpe": PreTokenizer((LLAMA3,), clean_spaces=True, has_bos=False),
    "glm4 glm5": PreTokenizer((LLAMA3,), clean_spaces=True, has_bos=False, ignore_merges=True),
    "jais-2": PreTokenizer(
        (_cut(CONTRACTION, WORD, f"[{N}]{{1,3}}", SYMBOLS, r"\s*[\r\n]+", _JAIS2_SPACES, r"\s"),), clean_spaces=True
    ),
    "minicpm5": PreTokenizer(
        (UP_TO_3_DIGITS, _cut(CONTRACTION, WORD, f"[{N}]+", SYMBOLS, SPACES)), clean_spaces=True, ignore_merges=True
    ),
    "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert exaone4 mpt olmo jais": _GPT2,
    "jina-v1-en jina-v2-code roberta-bpe": PreTokenizer((GPT2,), clean_spaces=True, add_sep=True),
    "trillion granite-docling": PreTokenizer((GPT2,)),
    "starcoder refact codeshell exaone minerva-7b mellum2": PreTokenizer((DIGIT, GPT2), clean_spaces=True),
    "smollm command-r": PreTokenizer((DIGIT, GPT2)),
    "falcon": PreTokenizer((_cut(rf"[{P}$+<=>\^~|`]+"), GPT2, ASCII_DIGITS_3), clean_spaces=True),
    "qwen2 deepseek-r1-qwen kormo f2llmv2 hunyuan solar-open grok-2": PreTokenizer((QWEN2,)),
    "stablelm2 megrez": PreTokenizer((QWEN2,), clean_spaces=True),
    "qwen35": PreTokenizer((QWEN35,)),
    "laguna": PreTokenizer((NEWLINE_RUNS, QWEN2)),
    "ufakzeka": PreTokenizer((_cut(WORD, f"[{N}]", SYMBOLS, SPACES),)),
    "seed-coder": PreTokenizer((_cut(CONTRACTION, WORD, f"[{N}]", rf" ?[^\s{L}{N}\r\n]+", SPACES),)),
    "bailingmoe bailingmoe2 llada-moe": PreTokenizer(
        (_cut(CONTRACTION, WORD, f"[{N}]", SYMBOLS, r"\s*[\r\n]|\s+(?!\S)|\s+"),)
    ),
    "exaone-moe": PreTokenizer(
        (
            _cut(
                CONTRACTION,
                rf"[^\r\n{L}{N}]?(?:[{L}][{M}]*(?: [{L}][{M}]*)*)+",
                f"[{N}]",
                rf" ?[^\s{L}{N}]+[\r\n/]?",
                r"\s*[\r\n]|\s+(?!\S)|\s+",
            ),
        ),
        clean_spaces=True,
    ),
    "tekken": PreTokenizer((TEKKEN,), ignore_merges=True, add_bos=True),
    "gpt-4o llama4 kanana2 talkie minimax-m2": PreTokenizer((GPT4O,)),
    "granite-embed-multi-97m": PreTokenizer((GRANITE,), ignore_merges=True),
    "tiny_aya cohere2moe": PreTokenizer(
        (DigitGroups(N, closed=True), _cut(MARKED_WORD, f"[{N}]{{1,3}}", rf" ?[^\s{L}{N}]+[\r\n/]*", SPACES))
    ),
    "youtu": PreTokenizer(
        (YOUTU_SCRIPTS, _cut(MARKED_WORD, f"[{N}]", rf" ?[^\s{L}{N}]+[\r\n/]*", SPACES)), ignore_merges=True
    ),
    "kimi-k2": PreTokenizer((KIMI,)),
    "superbpe": PreTokenizer((DIGITS, DigitGroups("0-9", closed=False))),
    "deepseek-llm": PreTokenizer(
        (
            NEWLINE,
            _cut(rf"\s?[{DEEPSEEK_CASED_LETTERS}]+", view="spaces"),
            DEEPSEEK_PUNCTUATION,
            _cut(r"\s+\Z"),
            DEEPSEEK_SCRIPTS,
            DIGITS,
        )
    ),
    "deepseek-coder": PreTokenizer((NEWLINE, _cut(rf"\s?[{L}]+"), _cut(rf"\s?[{P}]+"), DEEPSEEK_SCRIPTS, DIGIT)),
    "deepseek-v3 hunyuan-dense joyai-llm hy_v4": _DEEPSEEK3,
    "spark2_5": PreTokenizer(
        (UP_TO_3_DIGITS, HAN_AND_KANA, _cut(SYMBOL_WORD, f" ?[{P}{S}]+", r"[\r\n]|\s+(?!\S)|\s+"), DIGIT)
    ),
    "afmoe": PreTokenizer((DigitGroups(N, closed=True), _cut(f"[{AFMOE_SCRIPTS}]+", view="spaces"), DEEPSEEK3)),
    "poro-chat": PreTokenizer((BLOOM,)),
    "bloom gpt3-finnish": PreTokenizer((BLOOM,), clean_spaces=True),
    "viking": PreTokenizer((BLOOM, DIGIT)),
    "chameleon": PreTokenizer(
        (
            _cut("<sentinel:[0-9]+>"),
            _cut("IMGIMG[A-I]{1,4}Z"),
            _cut(r"[\t\n]|    |  "),
            DIGIT,
            _cut(f"[{P}{ASCII_PUNCTUATION}]"),
            GPT2,
        ),
        add_bos=True,
    ),
    "gemma4 granite-embed-multi-311m": PreTokenizer(
        (NEWLINE_RUNS,), clean_spaces=True, add_bos=True, byte_level=False, escape_whitespaces=True, whole_newlines=True
    ),
    "sarvam-moe": PreTokenizer((NEWLINE_RUNS,), byte_level=False, escape_whitespaces=True),
    "whitespace": PreTokenizer((_cut(r"\S+"),), clean_spaces=True, byte_level=False),
}

PRE_TOKENIZERS = {name: pre for names, pre in _BY_NAMES.items() for name in names.split()}


def pre_tokenizer(name: str) -> PreTokenizer:
    """The pre-tokenizer a file names; UnsupportedError, naming it, if there is none."""
    if name not in PRE_TOKENIZERS:
        raise UnsupportedError(f"pre-tokenizer {name[:64]!r} is not supported; known are {', '.join(sorted(PRE_TOKENIZERS))}")
    return PRE_TOKENIZERS[name]
