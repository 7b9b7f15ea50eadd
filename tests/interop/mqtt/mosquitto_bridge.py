"""Mosquitto as a bridge to us: what its clients publish reaches ours, and the reverse."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from tests.interop.mqtt.checks import HOST, WAIT_S
from tests.interop.processes import report, run_each
from tests.support.ports import pick_addresses

OURS = int(os.environ["MQTT_PORT"])
_STATE = "$SYS/broker/connection/interop/state"


class Listener:
    """Counts what comes for ``pattern`` at ``port``."""

    def __init__(self, port: int, pattern: str) -> None:
        self.came: list[tuple[str, bytes]] = []
        self._changed = threading.Condition()
        subscribed = threading.Event()
        self.client = paho.Client(CallbackAPIVersion.VERSION2)
        self.client.on_subscribe = lambda *_: subscribed.set()
        self.client.on_message = self._note
        self.client.connect(HOST, port)
        self.client.subscribe(pattern, 2)
        self.client.loop_start()
        assert subscribed.wait(WAIT_S), "no SUBACK"

    def _note(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        with self._changed:
            self.came.append((message.topic, bytes(message.payload)))
            self._changed.notify()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, WAIT_S), self.came

    def wait_for(self, wanted: list[tuple[str, bytes]]) -> None:
        self.wait_until(lambda: len(self.came) >= len(wanted))
        assert self.came == wanted, self.came

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@contextmanager
def bridged() -> Iterator[int]:
    """A Mosquitto that exchanges ``bridged/#`` with us; yields its port when it does."""
    [address] = pick_addresses(1)
    port = int(address.rpartition(":")[2])
    connection = f"connection us\naddress {HOST}:{OURS}\ntopic bridged/# both 2\nremote_clientid interop\n"
    settings = f"listener {port} {HOST}\nallow_anonymous true\n{connection}notification_topic {_STATE}\n"
    state = Listener(OURS, _STATE)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mosquitto.conf"
        file.write_text(settings)
        with Popen(["mosquitto", "-c", str(file)], stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL) as process:
            try:
                state.wait_until(lambda: (_STATE, b"1") in state.came)
                yield port
            finally:
                state.close()
                process.terminate()


def publish(port: int, name: str) -> list[tuple[str, bytes]]:
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.connect(HOST, port)
    client.loop_start()
    sent = [client.publish(name, b"%d" % number, 2) for number in range(20)]
    for one in sent:
        one.wait_for_publish(WAIT_S)
    client.disconnect()
    client.loop_stop()
    return [(name, b"%d" % number) for number in range(20)]


def carried(source: int, target: int, name: str) -> None:
    listener = Listener(target, "bridged/#")
    try:
        listener.wait_for(publish(source, name))
    finally:
        listener.close()


def from_mosquitto_to_us() -> None:
    with bridged() as port:
        carried(port, OURS, "bridged/out")


def from_us_to_mosquitto() -> None:
    with bridged() as port:
        carried(OURS, port, "bridged/in")


if __name__ == "__main__":
    report(run_each([from_mosquitto_to_us, from_us_to_mosquitto]))
