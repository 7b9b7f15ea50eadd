"""Counted nouns, and durations as operators write them."""

import pytest

from srtm.text import figure, plural, read_duration_ns


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0), ("250ms", 250_000_000), ("1h0m0s", 3_600_000_000_000), ("1.5s", 1_500_000_000), ("10us", 10_000),
        ("10µs", 10_000), ("3ns", 3), ("-2s", -2_000_000_000), ("+2m", 120_000_000_000), (".5s", 500_000_000),
    ],
)  # fmt: skip
def test_durations_are_gos(text: str, ns: int) -> None:
    assert read_duration_ns(text) == ns


@pytest.mark.parametrize("text", ["", "5", "5 s", "s", ".s", "1d", "1s2", "1.2.3s", "--1s", "0x1s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a duration"):
        read_duration_ns(text)


@pytest.mark.parametrize(("count", "form"), [(0, "rounds"), (1, "round"), (2, "rounds")])
def test_a_noun_is_singular_after_one_only(count: int, form: str) -> None:
    assert plural(count, "round") == form


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (0.0, 3, "0"), (5.0, 3, "5"), (0.25, 3, "0.25"), (12.345, 3, "12.3"), (610.3, 3, "610"), (999.4, 3, "999"),
        (999.6, 3, "1,000"), (1234.5, 3, "1,234"), (25_270.4, 3, "25,270"), (0.9999, 3, "1"), (-0.5, 3, "-0.5"),
        (0.00001234, 3, "0.0000123"), (1234.5, 6, "1,234.5"), (123_450.5, 6, "123,450"), (0.000001, 6, "0.000001"),
        (1_000_000.0, 6, "1,000,000"), (1_234_567.8, 6, "1,234,568"), (float("inf"), 3, "inf"),
        (float("nan"), 3, "nan"),
    ],
)  # fmt: skip
def test_figures_have_so_many_digits_and_never_an_exponent(value: float, digits: int, shown: str) -> None:
    assert figure(value, digits) == shown
