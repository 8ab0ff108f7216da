"""Rope tables against the formulas of the papers, worked by hand or in a second way."""

import math

import pytest

from bridge.graph.rope import RopeTable, rope_rows


def test_plain_frequencies():
    angles, magnitude = RopeTable(4, 10000.0).frequencies()
    assert angles == pytest.approx([1.0, 0.01]) and magnitude == 1.0


def test_linear_scaling_divides_every_angle():
    assert RopeTable(4, 10000.0, freq_scale=0.25).frequencies()[0] == pytest.approx([0.25, 0.0025])


def test_factors_divide_their_own_angle():
    assert RopeTable(4, 10000.0).frequencies([1.0, 8.0])[0] == pytest.approx([1.0, 0.00125])


def test_yarn_keeps_fast_pairs_and_interpolates_slow_ones():
    table = RopeTable(64, 10000.0, freq_scale=0.25, ext_factor=1.0, n_ctx_orig=2048)
    angles, magnitude = table.frequencies()
    plain, _ = RopeTable(64, 10000.0).frequencies()
    # correction range for 64 columns, base 10000, 2048 positions: floor(8.06…) and ceil(20.1…) pairs
    low = math.floor(64 * math.log(2048 / (32 * 2 * math.pi)) / (2 * math.log(10000)))
    high = math.ceil(64 * math.log(2048 / (1 * 2 * math.pi)) / (2 * math.log(10000)))
    assert angles[:low + 1] == pytest.approx(plain[:low + 1])
    assert angles[high:] == pytest.approx([a / 4 for a in plain[high:]])
    middle = (low + high) // 2
    mix = 1 - (middle - low) / (high - low)
    assert angles[middle] == pytest.approx(plain[middle] * (0.25 * (1 - mix) + mix))
    assert magnitude == pytest.approx(1 + 0.1 * math.log(4))


def test_rows_are_cosine_and_sine_of_consecutive_positions():
    rows = rope_rows([1.0, 0.5], 2.0, 7, 2)
    expected = [2 * f(p * a) for p in (7, 8) for a in (1.0, 0.5) for f in (math.cos, math.sin)]
    assert list(rows) == pytest.approx(expected, rel=1e-6)


def test_rows_stay_exact_far_out():
    """A float32 angle would be off by 1e-2 at position 100000."""
    rows = rope_rows([1.0], 1.0, 100_003, 1)
    assert rows[0] == pytest.approx(math.cos(100_003.0), abs=1e-7)
