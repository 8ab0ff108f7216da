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


@pytest.mark.parametrize("text", ["//@ if F", "//@ for i in ROWS\nx", "//@ while F\n//@ end", "//@ if F or G\n//@ end"])
def test_directives_that_make_no_sense_are_refused(files, text):
    with pytest.raises(ValueError, match="directive|condition"):
        source(files, text, F=True, ROWS=1)


def test_a_missing_value_is_an_error(files):
    with pytest.raises(KeyError, match="GONE"):
        source(files, "${GONE}")
