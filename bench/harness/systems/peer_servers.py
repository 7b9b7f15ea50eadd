"""The brokers that stand beside ours in ``srtm bench peers``: how each is started, what it speaks, what it promises.

Ours and NATS are there by their MQTT ports, too. Each runs with its defaults but for what its ``settings`` say, so that
no table compares a promise with its absence unawares. NATS, Mosquitto and Redis are Debian's packages; nsqd and NATS by
MQTT are what ``make peers`` builds, rumqttd what cargo does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from bench.harness.machine.checkout import THIS, Build
from bench.harness.systems.systems import (
    OURS,
    PEERS,
    System,
    bare_broker_command,
    free_addresses,
    nsqd,
    nsqd_in_place,
    running,
    takes_connections,
)
from srtm.errors import Unavailable

SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin")  # where packages put servers, and not on everybody's PATH
NATS = PEERS / "nats-server"  # newer than Debian's, which stands here by its own protocol
RUMQTTD = PEERS / "bin" / "rumqttd"
IN_FLIGHT = 2_500  # messages that a subscriber may have unacknowledged: the load generator's RDY
KEPT = "At least once: kept until the subscriber acknowledges; what memory does not take goes to disk."
DROPPED = "At most once: nothing is kept, and a subscriber that is too slow is cut off."


@dataclass(frozen=True)
class Peer:
    """``version_command``: says its version in the first line that has a number with dots in it."""

    name: str
    speaks: str
    promises: str
    settings: str
    start: Callable[[Path], AbstractAsyncContextManager[System]]
    version_command: tuple[str, ...]
    brought_by: str  # what puts its program here
    protocol: str = "nsq"
    qos: int = 0


def _server(
    name: str, program: str, options: Callable[[Path, str], list[str]]
) -> Callable[[Path], AbstractAsyncContextManager[System]]:
    def start(folder: Path) -> AbstractAsyncContextManager[System]:
        tcp_address, _ = free_addresses()
        folder.mkdir(parents=True)
        port = tcp_address.rpartition(":")[2]
        command = [program_path(program) or program, *options(folder, port)]
        return running(name, command, folder, tcp_address, "", partial(takes_connections, tcp_address))

    return start


def _nats_options(_folder: Path, port: str) -> list[str]:
    return ["-a", "127.0.0.1", "-p", port]


def _redis_options(folder: Path, port: str) -> list[str]:
    return ["--bind", "127.0.0.1", "--port", port, "--dir", str(folder), "--save", ""]


def _mosquitto_options(folder: Path, port: str, *, persistent: bool = False) -> list[str]:
    configuration = folder / "mosquitto.conf"
    lines = [f"listener {port} 127.0.0.1", "allow_anonymous true", "set_tcp_nodelay true", "log_type error"]
    lines += [f"max_inflight_messages {IN_FLIGHT}", "max_queued_messages 0"]
    if persistent:  # (started by root it becomes another user, who may not write here)
        lines += ["persistence true", f"persistence_location {folder}/", "user root"]
    configuration.write_text("\n".join(lines) + "\n")
    return ["-c", str(configuration)]


def _nats_mqtt(folder: Path) -> AbstractAsyncContextManager[System]:
    """NATS by its MQTT port, whose sessions are streams of JetStream, on disk."""
    (mqtt_address, client_address), name = free_addresses(), "nats-mqtt"
    folder.mkdir(parents=True)
    configuration = folder / "nats.conf"
    lines = [f'server_name: "{name}"', f"listen: {client_address}", f'jetstream: {{store_dir: "{folder}"}}']
    lines += [f"mqtt: {{listen: {mqtt_address}, max_ack_pending: {IN_FLIGHT}}}"]
    configuration.write_text("\n".join(lines) + "\n")
    command = [str(NATS), "-c", str(configuration)]
    return running(name, command, folder, mqtt_address, "", partial(takes_connections, mqtt_address))


RUMQTTD_CONFIGURATION = """
id = 0
[router]
max_connections = 20000
max_outgoing_packet_count = 200
max_segment_size = 104857600
max_segment_count = 10
[v4.1]
name = "v4-1"
listen = "{address}"
next_connection_delay_ms = 0
[v4.1.connections]
connection_timeout_ms = 60000
max_payload_size = 20480
max_inflight_count = 100
"""


def _rumqttd_options(folder: Path, port: str) -> list[str]:
    configuration = folder / "rumqttd.toml"
    configuration.write_text(RUMQTTD_CONFIGURATION.format(address=f"127.0.0.1:{port}"))
    return ["--config", str(configuration)]


def _by_mqtt(
    name: str,
    qos: int,
    promises: str,
    *,
    settings: str,
    start: Callable[[Path], AbstractAsyncContextManager[System]],
    version_command: tuple[str, ...],
    brought_by: str,
) -> Peer:
    return Peer(
        name=name,
        speaks=f"MQTT 3.1.1, quality of service {qos} on both sides",
        promises=promises,
        settings=settings,
        start=start,
        version_command=version_command,
        brought_by=brought_by,
        protocol="mqtt",
        qos=qos,
    )


_rumqttd = partial(
    _by_mqtt,
    settings="its example's, without a delay between connections, for 20,000 of them",
    start=_server("rumqttd", str(RUMQTTD), _rumqttd_options),
    version_command=(str(RUMQTTD), "--version"),
    brought_by="`make .peers/bin/rumqttd` (minutes)",
)

_nats_peer = partial(
    _by_mqtt,
    settings=f"max_ack_pending {IN_FLIGHT:,} (the RDY of the NSQ subscriber), JetStream on disk",
    start=_nats_mqtt,
    version_command=(str(NATS), "--version"),
    brought_by="`make peers` (needs the Go toolchain)",
)


def mosquitto(folder: Path, *, persistent: bool = False) -> AbstractAsyncContextManager[System]:
    """``persistent``: sessions are written to disk, by its default each 30 min and when it ends."""
    return _server("mosquitto", "mosquitto", partial(_mosquitto_options, persistent=persistent))(folder)


def our_mqtt(folder: Path, *options: str, build: Build = THIS) -> AbstractAsyncContextManager[System]:
    """Our broker by its MQTT port, which is its ``tcp_address``."""
    (tcp_address, http_address), (mqtt_address, _) = free_addresses(), free_addresses()
    folder.mkdir(parents=True)
    asked = ("--mqtt-address", mqtt_address, "--mqtt-max-in-flight", str(IN_FLIGHT), *options)
    command = bare_broker_command(folder, tcp_address, http_address, *asked, build=build)
    return running(OURS, command, folder, mqtt_address, http_address, root=build.root)


_mosquitto = partial(
    _by_mqtt,
    settings=f"set_tcp_nodelay true (else lone messages wait for the other side's TCP), max_inflight_messages "
    f"{IN_FLIGHT:,} (the RDY of the NSQ subscriber), max_queued_messages 0 (no limit, else it drops)",
    start=mosquitto,
    version_command=("mosquitto", "-h"),
    brought_by="Debian's package mosquitto",
)

# Our broker by its MQTT port, under the load that Mosquitto gets.
_our_mqtt = partial(
    _by_mqtt,
    settings=f"--mqtt-max-in-flight {IN_FLIGHT:,} (the RDY of the NSQ subscriber)",
    start=our_mqtt,
    version_command=(sys.executable, "-m", "srtm", "--version"),
    brought_by="this project",
)

_AT_MOST_ONCE = "At most once: nothing is kept; neither side acknowledges."
_CLEAN_AT_LEAST_ONCE = (
    "At least once: both sides acknowledge; kept in memory while the subscriber is connected (clean session)."
)
_CLEAN_EXACTLY_ONCE = (
    "Exactly once: four packets a message on both sides; kept in memory while the subscriber is connected."
)

ALL: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(
            name=OURS,
            speaks="NSQ",
            promises=f"{KEPT} The topic has no token bucket here.",
            settings="as `srtm nsqd`; the subscriber asks for output_buffer_size = -1",
            start=nsqd_in_place,
            version_command=(sys.executable, "-m", "srtm", "--version"),
            brought_by="this project",
        ),
        Peer(
            name="nsqd",
            speaks="NSQ",
            promises=KEPT,
            settings="the subscriber asks for output_buffer_size = -1 (else a lone message waits up to 250 ms)",
            start=nsqd,
            version_command=(str(PEERS / "nsqd"), "--version"),
            brought_by="`make peers` (needs the Go toolchain)",
        ),
        Peer(
            name="nats",
            speaks="NATS, core publish and subscribe",
            promises=f"{DROPPED} Neither side acknowledges.",
            settings="verbose off, as in its own clients",
            start=_server("nats", "nats-server", _nats_options),
            version_command=("nats-server", "--version"),
            brought_by="Debian's package nats-server",
            protocol="nats",
        ),
        _our_mqtt("srtm-mqtt", 0, _AT_MOST_ONCE),
        _mosquitto("mosquitto", 0, _AT_MOST_ONCE),
        _nats_peer("nats-mqtt", 0, _AT_MOST_ONCE),
        _rumqttd("rumqttd", 0, _AT_MOST_ONCE),
        _our_mqtt("srtm-mqtt-qos1", 1, _CLEAN_AT_LEAST_ONCE),
        _mosquitto("mosquitto-qos1", 1, _CLEAN_AT_LEAST_ONCE),
        _nats_peer("nats-mqtt-qos1", 1, f"{_CLEAN_AT_LEAST_ONCE} Messages go through a stream on disk."),
        _rumqttd("rumqttd-qos1", 1, _CLEAN_AT_LEAST_ONCE),
        _our_mqtt("srtm-mqtt-qos2", 2, _CLEAN_EXACTLY_ONCE),
        _mosquitto("mosquitto-qos2", 2, _CLEAN_EXACTLY_ONCE),
        Peer(
            name="redis",
            speaks="Redis Pub/Sub, RESP2",
            promises=f"{DROPPED} A publish is answered with the number of its subscribers, who acknowledge nothing.",
            settings='save "" (no snapshots)',
            start=_server("redis", "redis-server", _redis_options),
            version_command=("redis-server", "--version"),
            brought_by="Debian's package redis-server",
            protocol="redis",
        ),
    )
}


def program_path(program: str) -> str | None:
    """Where the program is, also where only administrators look; None: nowhere."""
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), *SYSTEM_FOLDERS]))


def missing(peer: Peer) -> str | None:
    """What to say of a peer whose program is not here; None: it is."""
    program = peer.version_command[0]
    return (
        None
        if program_path(program)
        else f"{peer.name} is not here ({Path(program).name}): {peer.brought_by} brings it"
    )


async def version(peer: Peer) -> str:
    """Raises Unavailable where the program says none."""
    command = [program_path(peer.version_command[0]) or peer.version_command[0], *peer.version_command[1:]]
    try:
        ended = await trio.run_process(command, capture_stdout=True, stderr=subprocess.STDOUT, check=False)
    except OSError as error:
        raise Unavailable(f"{peer.name} does not run: {error.strerror}") from error
    return version_in(peer.name, ended.stdout.decode(errors="replace"))


def version_in(name: str, said: str) -> str:
    """The first number with dots in it. Raises Unavailable if there is none."""
    found = re.search(r"\d+(\.\d+)+", said)
    if found is None:
        raise Unavailable(f"{name} does not say its version: {said[:100] or 'it said nothing'}")
    return found[0]
