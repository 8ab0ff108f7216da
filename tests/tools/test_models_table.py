"""docs/models.md is what the code says."""

from tools.models_table import COLUMNS, DOCUMENT, document

from bridge.models import ARCHITECTURES


def test_the_document_is_current():
    assert DOCUMENT.read_text() == document(), "run python -m tools.models_table"


def test_every_architecture_runs_everywhere():
    lines = {line.split("|")[1].strip(" `"): line for line in document().splitlines() if line.startswith("| `")}
    assert set(ARCHITECTURES) <= lines.keys()
    for name in ARCHITECTURES:
        assert lines[name].count("yes") == len(COLUMNS), lines[name]
