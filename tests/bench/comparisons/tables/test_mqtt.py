"""The comparison with Mosquitto: its rows, what their samples say, and what the clients of a bench read."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest

from bench.comparisons.mqtt import idle, retained, subscriptions
from bench.comparisons.mqtt.retained import Replay
from bench.comparisons.mqtt.started import plan
from bench.comparisons.rows import load, steady
from bench.comparisons.rows.row_runs import RowOptions, measured
from bench.comparisons.tables import compare
from bench.comparisons.tables.document import keep, kept, picture
from bench.comparisons.tables.mqtt import MQTT
from bench.harness.results.comparison import Sample, Turn, counts, judge
from srtm.errors import Unavailable
from tests.support.run_results import result

TURN = Turn(Path("unused"), 4.0, 7)


def each(*pairs: tuple[int, int]) -> str:
    return base64.b64encode(np.array(pairs, dtype="<i8").tobytes()).decode()


def sample_of(name: str) -> Sample:
    """One sample of our broker, as each row makes it."""
    if name.startswith("load"):
        return load.sample_of("srtm", 10, load.Rung(False, 0.3))
    if name == "idle":
        return idle.sample_of("srtm", 0, 9_900 * 1024)
    if name == "subscriptions":
        return Sample("srtm", {figure.key: 1.0 for figure in subscriptions.ROW.figures})
    if name == "retained":
        flow = each((1_500, 4_000_000), (2_500, 1_000_000))
        return retained.sample_of("srtm", result(each=flow), [Replay(1_000, 2_000, 0)])
    return steady.sample_of("srtm", result(), 20.0)


@pytest.mark.parametrize("name", MQTT.rows)
def test_every_row_can_show_and_judge_what_it_measures(name: str) -> None:
    row, sample = MQTT.rows[name], sample_of(name)
    one = [Sample(system, sample.values) for system in row.systems]
    outcome = measured(row, [one], judge(row, [one], {"pairs": 1, "seconds": 2.0}), started=0.0)
    assert [figure.label for figure in outcome.figures] == [figure.label for figure in row.figures]
    assert len(outcome.checks) == len(row.targets)
    assert any(figure.drawn for figure in row.figures)


def test_the_load_is_of_the_quality_of_service_that_the_row_names() -> None:
    asked = plan("h:1", TURN, 10, qos=1, durable=True)
    assert (asked.protocol, asked.qos, asked.durable, len(asked.publishers.ids)) == ("mqtt", 1, True, 10)


def test_only_what_was_due_while_a_replay_ran_counts_as_meanwhile() -> None:
    flow = each((999, 90_000_000), (1_000, 3_000_000), (2_000, 1_000_000), (2_001, 80_000_000), (3_500, 2_000_000))
    replays = [Replay(1_000, 2_000, 0), Replay(3_000, 4_000, 7)]
    values = retained.sample_of("srtm", result(each=flow), replays).values
    assert values["p99_ms"] == 3.0
    assert values["quiet_p99_ms"] == 90.0
    assert values["missing"] == 7
    late = result(each=flow, valid=False, reasons=["the generator was late"])
    assert [counts([retained.sample_of(name, late, replays)]) for name in ("srtm", "mosquitto")] == [False, True]
    nobody = retained.sample_of("srtm", result(each=each((1, 1))), replays)
    assert not counts([nobody])


def test_all_rows_stand_in_one_picture(tmp_path: Path) -> None:
    for name, row in MQTT.rows.items():
        one = [Sample(system, sample_of(name).values) for system in row.systems]
        keep(MQTT, tmp_path, measured(row, [one], judge(row, [one], {"pairs": 1, "seconds": 2.0}), started=0.0))
    picture(MQTT, tmp_path, kept(MQTT, tmp_path))
    assert (tmp_path / MQTT.picture).read_bytes().startswith(b"\x89PNG")


async def test_a_system_that_is_not_here_is_named_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "missing", lambda _peer: "mosquitto is not here")
    with pytest.raises(Unavailable, match="mosquitto is not here"):
        await compare.compare(MQTT, RowOptions(["idle"]), None)  # type: ignore[arg-type]
