"""Each link between three brokers is cut and healed while MQTT clients publish; ``make soak``: ten minutes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.system.test_lease_soak import what_is_missing

pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
pytest.importorskip("srtm._native", reason="the extension is not built (make build)")


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(what_is_missing() != "", reason=what_is_missing())
def test_what_was_acknowledged_comes_once_and_in_order_whichever_link_is_cut_and_healed() -> None:
    command = [sys.executable, "-m", "tests.faults.mqtt_links", "--seconds", "0", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=350)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "passed" in done.stdout
