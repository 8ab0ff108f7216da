"""Operations within the texts of a batch, by the device against the numpy reference."""

import pytest

from tests.graph import texts
from tests.gpu import harness


@pytest.mark.parametrize("name", texts.CASES)
def test_within_texts(device, name):
    harness.assert_close(*texts.on_both(harness, device, name))
