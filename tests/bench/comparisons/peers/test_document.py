"""The comparison of brokers as it is written down: tables, reasons and picture, from the kept file alone."""

from __future__ import annotations

from pathlib import Path

from bench.comparisons.peers.document import PICTURE, TERMINAL, page_of, picture, table
from bench.comparisons.peers.load_points import FIGURES, About, Outcome, point
from bench.harness.results.comparison import Sample
from bench.harness.results.provenance import Origin


def sample(value: float, *reasons: str) -> Sample:
    return Sample("redis", {figure.key: value for figure in FIGURES} | {"lost": 2}, reasons)


def outcome() -> Outcome:
    about = About(name="redis", version="7.0", speaks="RESP2", promises="At most once.", settings='save ""')
    points = [
        point("redis", 1_000, [sample(1.0), sample(3.0)]),
        point("redis", 2_000, [sample(4.0, "late"), sample(5.0)]),
    ]
    return Outcome(
        systems=[about],
        absent=["nats is not here: D brings it"],
        points=points,
        runs=2,
        seconds=3.0,
    )


def test_the_tables_say_what_is_promised_measured_and_left_out() -> None:
    text = page_of(outcome(), Origin.here(0.0)).text
    assert '| redis | 7.0 | RESP2 | At most once. | save "" |' in text
    assert "| 1,000 | redis | 2.000 (1.000 to 3.000) |" in text
    assert "| 2,000 | redis | 5.000 (5.000 to 5.000) |" in text
    assert text.count("| 4 | 2 |\n") + text.count("| 4 | 1 |\n") == 2  # lost, runs that count
    assert "Left out: nats is not here: D brings it." in text
    assert "redis at 2,000 msg/s: 1 of 2 runs count; late." in text
    assert "runs of 3 s in turns" in text
    assert "medians (0 or 50 % intervals)" in text


def test_what_is_found_is_drawn(tmp_path: Path) -> None:
    picture(tmp_path, outcome())
    assert (tmp_path / PICTURE).read_bytes().startswith(b"\x89PNG")


def test_the_terminal_has_medians_in_as_many_columns_as_heads() -> None:
    drawn = table(outcome())
    assert [column.header for column in drawn.columns] == list(TERMINAL)
    assert list(drawn.columns[2].cells) == ["2.000", "5.000"]
    assert len(TERMINAL) == len(FIGURES) + 4


def test_nothing_measured_draws_nothing(tmp_path: Path) -> None:
    empty = Outcome(systems=[], absent=[], points=[], runs=1, seconds=2.0)
    picture(tmp_path, empty)
    assert not (tmp_path / PICTURE).exists()
