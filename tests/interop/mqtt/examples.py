"""The MQTT programs in ``examples/``, as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.harness.machine.checkout import ROOT
from tests.interop.mqtt.checks import HOST, WAIT_S
from tests.interop.processes import directory_of_suite, report, run_each

READINGS = ["17.5", "17.6", "17.8", "18.1", "18.0"]
PORT = os.environ["MQTT_PORT"]


def readings_of(command: list[str], **more: str) -> list[str]:
    """The readings that it prints, at the end of lines."""
    environment = {**os.environ, **more}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=3 * WAIT_S, check=False
    )
    assert ended.returncode == 0, ended.stderr[-500:]
    return [line.split()[-1] for line in ended.stdout.splitlines() if line.split()[-1] in READINGS]


def mosquitto_sh() -> None:
    assert readings_of(["examples/mosquitto.sh", HOST, PORT]) == READINGS


def mqtt_paho_py() -> None:
    assert readings_of([sys.executable, "examples/mqtt_paho.py", HOST, PORT]) == READINGS


def mqtt_js() -> None:
    modules = Path(directory_of_suite()) / "node_modules"
    assert readings_of(["node", "examples/mqtt.js", f"mqtt://{HOST}:{PORT}"], NODE_PATH=str(modules)) == READINGS


if __name__ == "__main__":
    report(run_each([mosquitto_sh, mqtt_paho_py, mqtt_js]))
