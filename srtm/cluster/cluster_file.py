"""``DIR/cluster.json``: addresses and process ids of a cluster that ``srtm up`` runs on this host.

A cluster that is started again on the same directory listens on the same ports, so that its clients find it.
"""

from __future__ import annotations

import random
import re
import socket
from contextlib import ExitStack
from pathlib import Path

import msgspec

from srtm.errors import BadInput, Conflict, SrtmError, Unavailable
from srtm.net.address import parse_peer
from srtm.net.json_file import read_json

FILE_NAME = "cluster.json"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LOWEST_PORT, _HIGHEST_PORT = 10_000, 65_535
_TRIES = 100


class BrokerPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A broker of the cluster. ``pid`` is None while it does not run."""

    name: str
    tcp_address: str
    http_address: str
    mqtt_address: str | None = None  # None: it does not speak MQTT
    pid: int | None = None


class ClusterFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file. ``srtm.cluster.supervisor`` writes it, and reads it at its next start."""

    distributor: str  # URL
    brokers: list[BrokerPlace]
    pid: int | None = None  # of the supervisor; None: stopped
    distributor_pid: int | None = None
    boot: str = ""  # of the kernel under which it ran


def present_boot() -> str:
    """Return the id of the running kernel: another one after each start of the host."""
    return _BOOT_ID.read_text().strip()


def read_cluster(data: Path) -> ClusterFile | None:
    """Read the file of the last run on ``data``; None if there was no run. Raises BadInput for another file."""
    return read_json(data / FILE_NAME, ClusterFile, "data", "a cluster file as srtm up writes it")


def write_cluster(data: Path, cluster: ClusterFile) -> None:
    """Replace the file in one step: a reader sees the old or the new content, complete."""
    path = data / FILE_NAME
    fresh = path.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(cluster), indent=2) + b"\n")
    fresh.replace(path)


def parse_ports(text: str) -> range:
    """Return the ports of ``FIRST-LAST``, both included. Raises BadInput."""
    first, dash, last = text.partition("-")
    are_numbers = all(re.fullmatch(r"[0-9]{1,5}", word) for word in (first, last))
    if not dash or not are_numbers or not 1 <= int(first) <= int(last) <= _HIGHEST_PORT:
        raise BadInput("ports", text, f"must be FIRST-LAST, such as 4150-4170, within 1 to {_HIGHEST_PORT}")
    return range(int(first), int(last) + 1)


def pick_addresses(count: int, kept: dict[int, str], ports: range | None = None) -> list[str]:
    """Return ``count`` free addresses on loopback: those of ``kept`` (by index) if they are free, else new ones.

    New ones are the lowest free ``ports``; None: drawn from those below the kernel's ephemeral range. Raises
    Unavailable if no free port is found.
    """
    with ExitStack() as held:  # all stay bound until the last is picked, so that none is picked twice
        # Those that are kept come first: else a new one could take the port of another.
        found = {index: kept[index] for index in range(count) if index in kept and _hold(held, kept[index])}
        return [found[index] if index in found else _pick(held, ports) for index in range(count)]


def _pick(held: ExitStack, ports: range | None) -> str:
    if ports is not None:
        for port in ports:
            if _hold(held, f"127.0.0.1:{port}"):
                return f"127.0.0.1:{port}"
        raise Unavailable(f"ports: too few are free on 127.0.0.1 in {ports.start} to {ports.stop - 1}")
    # Below the ephemeral range: the kernel may give a port inside it to a connection while the broker restarts, and a
    # client that dials such a port on loopback may even connect to itself.
    lowest_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    drawn = range(_LOWEST_PORT, max(lowest_ephemeral, _LOWEST_PORT + _TRIES))
    for port in random.SystemRandom().sample(drawn, k=_TRIES):
        if _hold(held, f"127.0.0.1:{port}"):
            return f"127.0.0.1:{port}"
    raise Unavailable(f"no free port found on 127.0.0.1 in {drawn.start} to {drawn.stop - 1}")


def _hold(held: ExitStack, address: str) -> bool:
    host, port = parse_peer("address", address)
    probe = held.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET))
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind((host, port))
        probe.listen()  # with SO_REUSEADDR two sockets may bind to one port, but only one can listen
    except OSError:
        return False
    return True


def unusable(field: str, address: str) -> SrtmError:
    """Return the error that explains why ``address`` cannot be listened on."""
    host, _ = parse_peer(field, address)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            return BadInput(field, address, f"must be an address of this host ({error.strerror})")
    return Conflict(field, address, "must be free; something else listens there")
