"""The kernel templates."""

import pytest

from bridge.gpu import wgsl


@pytest.fixture
def files(monkeypatch):
    texts = {"wgsl/common.wgsl": "// common"}
    monkeypatch.setattr(wgsl, "kernel_text", texts.__getitem__)
    return texts


def source(files, text, **values):
    files["wgsl/k.wgsl"] = text
    return wgsl.kernel_source("k.wgsl", values).splitlines()


def test_integers_become_constants_and_flags_do_not(files):
    assert source(files, "fn main() {}", ROWS=4, SHARED=True) == ["const ROWS: u32 = 4u;", "// common", "fn main() {}"]


def test_loops_repeat_their_body_and_nest(files):
    text = "//@ for r in ROWS\n//@ for t in TWO\nlet s${r}_${t} = 0;\n//@ end\n//@ end"
    assert source(files, text, ROWS=2, TWO=2)[3:] == [f"let s{r}_{t} = 0;" for r in (0, 1) for t in (0, 1)]


@pytest.mark.parametrize("flag, expected", [(True, ["a", "z"]), (False, ["b", "c", "z"])])
def test_conditions_with_nested_blocks(files, flag, expected):
    text = "//@ if F\na\n//@ else\nb\n//@ if not F\nc\n//@ end\n//@ end\nz"
    assert source(files, text, F=flag)[1:] == expected


def test_includes_may_be_named_by_a_value(files):
    files["wgsl/formats/x.wgsl"] = "included ${N}"
    assert source(files, "  //@ include ${FORMAT}", FORMAT="formats/x.wgsl", N="here")[1:] == ["included here"]


def test_a_file_may_be_included_once_more_for_other_values(files):
    files["wgsl/a.wgsl"] = "fn load() { return weight[GROUP]; }\nconst A: u32 = 1u;"
    files["wgsl/b.wgsl"] = "fn load() { return weight[1] + ${N}; }"
    files["wgsl/loop.wgsl"] = "//@ for j in QUADS\nload() + A + loader;\n//@ end"
    text = "\n".join(f"//@ include {file}" for file in ("${FORMAT}", "${FORMAT} as OTHER", "loop.wgsl", "loop.wgsl as OTHER"))
    values = {"FORMAT": "b.wgsl", "OTHER_FORMAT": "a.wgsl", "N": "7", "QUADS": 1, "OTHER_QUADS": 2}
    assert source(files, text, **values)[3:] == [
        "fn load() { return weight[1] + 7; }",
        "fn OTHER_load() { return OTHER_weight[OTHER_GROUP]; }", "const OTHER_A: u32 = 1u;",
        "load() + A + loader;", *["OTHER_load() + OTHER_A + loader;"] * 2]


def test_the_sum_of_two_values(files):
    assert source(files, "x${r+ROWS}", ROWS=2, r=1)[-1] == "x3"


@pytest.mark.parametrize("text", ["//@ if F", "//@ for i in ROWS\nx", "//@ while F\n//@ end", "//@ if F or G\n//@ end"])
def test_directives_that_make_no_sense_are_refused(files, text):
    with pytest.raises(ValueError, match="directive|condition"):
        source(files, text, F=True, ROWS=1)


def test_a_missing_value_is_an_error(files):
    with pytest.raises(KeyError, match="GONE"):
        source(files, "${GONE}")
