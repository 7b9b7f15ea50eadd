"""SIGKILL while MQTT clients publish to a durable session: what was acknowledged comes, in order."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
pytest.importorskip("srtm._native", reason="the extension is not built (make build)")
from tests.faults import mqtt_crash

pytestmark = pytest.mark.slow


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.long)])
def test_what_was_acknowledged_comes_in_order_however_often_the_broker_is_killed(tmp_path: Path, kills: int) -> None:
    book = mqtt_crash.run(tmp_path, kills, seed=1)
    assert (book.lost, book.out_of_order) == ({}, {})
    assert book.count >= kills
