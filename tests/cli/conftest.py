import os

import pytest

from bridge.cli import main
from bridge.serve import create_app, running_server
from bridge.synth import shape, write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    write_model(path, shape("llama", "tiny", n_ctx=64), "Q8_0", seed=3)
    return str(path)


@pytest.fixture
def bridge(capsys):
    """Run one command; (status, standard output, standard error)."""

    def run(*argv):
        status = main([str(argument) for argument in argv])
        return status, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def address(model):
    with running_server(create_app(os.path.dirname(model))) as base:
        yield base
