"""Who asks: where each comes from, how it is made ready once in a directory of its own, and its command."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.harness.machine.checkout import ROOT
from tests.interop.suites import CannotFetch, run_or_fail

_HERE = Path(__file__).parent
# Of Eclipse Paho's suites, at the commit that was read here; the variable names another clone.
_PAHO_TESTING, _PAHO_COMMIT = "https://github.com/eclipse-paho/paho.mqtt.testing", "9d7bb80"
_PAHO_VARIABLE = "PAHO_TESTING"
_MOSQUITTO, _MOSQUITTO_TAG = "https://github.com/eclipse-mosquitto/mosquitto", "v2.1.2"
VECTORS_VARIABLE = "SRTM_MQTT_VECTORS"  # names a folder of Mosquitto's vectors


def python(module: str, *arguments: str) -> Sequence[str]:
    return (sys.executable, "-m", f"tests.interop.mqtt.{module}", *arguments)


def fetch_paho_testing(directory: Path) -> None:
    source = os.environ.get(_PAHO_VARIABLE, _PAHO_TESTING)
    try:
        run_or_fail(["git", "clone", "--quiet", source, str(directory / "source")], directory)
        run_or_fail(["git", "-C", str(directory / "source"), "checkout", "--quiet", _PAHO_COMMIT], directory)
    except CannotFetch as error:
        raise CannotFetch(f"{error} ({_PAHO_VARIABLE} may name a clone)") from None


def fetch_vectors(directory: Path) -> None:
    """Mosquitto's byte vectors, as ``data``."""
    folder = os.environ.get(VECTORS_VARIABLE)
    if folder is None:
        source, clone = str(directory / "source"), ["git", "clone", "--quiet", "--depth", "1"]
        try:
            run_or_fail([*clone, "--branch", _MOSQUITTO_TAG, _MOSQUITTO, source], directory)
        except CannotFetch as error:
            raise CannotFetch(f"{error} ({VECTORS_VARIABLE} may name the folder test/broker/data of a clone)") from None
        folder = f"{source}/test/broker/data"
    if not any(Path(folder).glob("*.json")):
        raise CannotFetch(
            f"{VECTORS_VARIABLE}: {folder!r}: must have files *.json, as test/broker/data of Mosquitto has"
        )
    (directory / "data").symlink_to(Path(folder).resolve())


def fetch_python_clients(directory: Path) -> None:
    requirements = _HERE / "python" / "requirements.txt"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run_or_fail([*command, "--target", str(directory / "packages"), "-r", str(requirements)], directory)
    shutil.rmtree(directory / "packages" / "tests", ignore_errors=True)  # of gmqtt: they would hide ours


def fetch_mosquitto(_directory: Path) -> None:
    for program in ("mosquitto", "mosquitto_pub", "mosquitto_sub"):
        if shutil.which(program) is None:
            raise CannotFetch(f"missing: {program} (Debian: apt-get install mosquitto mosquitto-clients)")


def fetch_mqttjs(directory: Path) -> None:
    _npm_install("mqttjs", directory)


def fetch_mqtt_packet(directory: Path) -> None:
    _npm_install("mqtt_packet", directory)


def _npm_install(folder: str, directory: Path) -> None:
    shutil.copytree(_HERE / folder, directory, dirs_exist_ok=True)
    run_or_fail(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"], directory)


def fetch_paho_golang(directory: Path) -> None:
    shutil.copytree(_HERE / "paho_golang", directory, dirs_exist_ok=True)
    run_or_fail(["go", "build", "-o", "client", "."], directory)


def fetch_hivemq(directory: Path) -> None:
    shutil.copytree(_HERE / "hivemq", directory, dirs_exist_ok=True)
    goals = ["compile", "dependency:copy-dependencies"]
    run_or_fail(["mvn", "--quiet", "--batch-mode", *goals, "-DoutputDirectory=jars"], directory)


def fetch_rumqttc(directory: Path) -> None:
    shutil.copytree(_HERE / "rumqttc", directory, dirs_exist_ok=True)
    run_or_fail(["cargo", "build", "--quiet"], directory)


@dataclass(frozen=True)
class Judge:
    """One who asks. ``command`` runs in its directory ``ROOT/folder`` and tells outcomes in its last line; ``count``:
    how many there must be, so that none is left out unseen."""

    name: str
    folder: str
    fetch: Callable[[Path], None]
    command: Sequence[str]
    count: int
    longest_s: float = 120.0

    def ready(self, root: Path) -> Path:
        """Its directory under ``root``, made ready if it is not there whole. Raises CannotFetch."""
        directory = root / self.folder
        if not (directory / "ready").exists():
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
            self.fetch(directory)
            (directory / "ready").touch()
        return directory

    def environment(self, directory: Path) -> dict[str, str]:
        return {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(directory / "packages")]),
            "SRTM_INTEROP_DIRECTORY": str(directory),
        }


JUDGES = (
    Judge("Paho suite 3.1.1", "paho-testing", fetch_paho_testing, python("paho_suites", "3.1.1"), 10, 300.0),
    Judge("Paho suite 5.0", "paho-testing", fetch_paho_testing, python("paho_suites", "5.0"), 27, 400.0),
    Judge("Mosquitto's byte vectors", "vectors", fetch_vectors, python("vectors"), 1, 1200.0),
    Judge("mosquitto-clients", "mosquitto", fetch_mosquitto, python("mosquitto_client"), 8),
    Judge("Mosquitto as a bridge", "mosquitto", fetch_mosquitto, python("mosquitto_bridge"), 2),
    Judge("paho-mqtt", "python", fetch_python_clients, python("paho_client"), 9),
    Judge("aiomqtt", "python", fetch_python_clients, python("aiomqtt_client"), 9),
    Judge("gmqtt", "python", fetch_python_clients, python("gmqtt_client"), 8),
    Judge("mqtt.js", "mqttjs", fetch_mqttjs, ("node", "client.js"), 9),
    Judge("mqtt-packet", "mqtt_packet", fetch_mqtt_packet, ("node", "packets.js"), 7),
    Judge("paho.golang", "paho_golang", fetch_paho_golang, ("./client",), 9),
    Judge("HiveMQ's Java client", "hivemq", fetch_hivemq, ("java", "-cp", "target/classes:jars/*", "Client"), 9),
    Judge("rumqttc", "rumqttc", fetch_rumqttc, ("target/debug/interop",), 9),
    Judge("examples", "mqttjs", fetch_mqttjs, python("examples"), 3),
)
