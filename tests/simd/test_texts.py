"""Operations within the texts of a batch, by the CPU kernels against the numpy reference."""

import pytest

from tests.graph import texts
from tests.simd import harness


@pytest.mark.parametrize("name", texts.CASES)
def test_within_texts(host, name):
    harness.assert_close(*texts.on_both(harness, host, name))
