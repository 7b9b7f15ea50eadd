"""SIGKILL while MQTT clients publish to a durable session and a shared group: what was acknowledged comes, in order."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
pytest.importorskip("srtm._native", reason="the extension is not built (make build)")
from tests.faults import mqtt_crash

pytestmark = pytest.mark.slow


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.long)])
def test_what_was_acknowledged_comes_in_order_however_often_the_broker_is_killed(
    capsys: pytest.CaptureFixture[str], kills: int
) -> None:
    status = mqtt_crash.main(["--kills", str(kills)])
    told = capsys.readouterr()
    assert (status, told.err) == (0, "")
    found = re.fullmatch(rf"MQTT: {kills} kills, seed 1, (\d+) messages: passed\n", told.out)
    assert found
    assert int(found[1]) >= kills
