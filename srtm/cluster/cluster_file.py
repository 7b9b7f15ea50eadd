"""``DIR/cluster.json``: the addresses and process ids of a cluster that ``srtm up`` runs on this host, and the ports it
keeps.

The ports outlive the processes: a cluster started again on the same directory listens where its clients last found it.
"""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

import msgspec

from srtm.errors import BadInput, Conflict, SrtmError, Unavailable
from srtm.net.address import parse_peer
from srtm.net.json_file import read_json

FILE_NAME = "cluster.json"
_LOWEST_PORT = 10_000
_TRIES = 100


class BrokerPlace(msgspec.Struct, frozen=True, kw_only=True):
    """One broker of the cluster. ``pid`` is None while it does not run."""

    name: str
    tcp_address: str
    http_address: str
    pid: int | None = None


class ClusterFile(msgspec.Struct, frozen=True, kw_only=True):
    """Made by ``srtm.cluster.supervisor``; read by it at the next start, and by whoever wants to find the cluster."""

    distributor: str  # URL
    brokers: list[BrokerPlace]
    pid: int | None = None  # of the supervisor; None: stopped
    distributor_pid: int | None = None


def read_cluster(data: Path) -> ClusterFile | None:
    """What the last run on ``data`` left; None if there was none. Raises BadInput for a file that is not ours."""
    return read_json(data / FILE_NAME, ClusterFile, "data", "a cluster file as srtm up writes it")


def write_cluster(data: Path, cluster: ClusterFile) -> None:
    """Replaces the file in one step: a reader sees the old or the new one, whole."""
    path = data / FILE_NAME
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(cluster), indent=2) + b"\n")
    fresh.replace(path)


def pick_addresses(count: int, kept: dict[int, str]) -> list[str]:
    """``count`` addresses on loopback that nobody listens on: those of ``kept`` (by index) where they are still free,
    new ones elsewhere."""
    with ExitStack() as held:  # all are bound until all are picked, so that none is picked twice
        return [_pick(held, kept.get(index)) for index in range(count)]


def _pick(held: ExitStack, kept: str | None) -> str:
    if kept is not None and _hold(held, kept):
        return kept
    # Below the ephemeral range: a port from inside it may become some connection's own while its broker restarts, and a
    # client that dials such a port on loopback can even end up connected to itself.
    lowest_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = range(_LOWEST_PORT, max(lowest_ephemeral, _LOWEST_PORT + _TRIES))
    for port in random.SystemRandom().sample(ports, k=_TRIES):
        if _hold(held, f"127.0.0.1:{port}"):
            return f"127.0.0.1:{port}"
    raise Unavailable(f"no free port found on 127.0.0.1 in {ports.start} to {ports.stop - 1}")


def _hold(held: ExitStack, address: str) -> bool:
    host, port = parse_peer("address", address)
    probe = held.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET))
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind((host, port))
        probe.listen()  # two sockets may be bound to one port with SO_REUSEADDR, but only one of them listens
    except OSError:
        return False
    return True


def unusable(field: str, address: str) -> SrtmError:
    """Why nobody can listen at ``address``."""
    host, _ = parse_peer(field, address)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            return BadInput(field, address, f"must be an address of this host ({error.strerror})")
    return Conflict(field, address, "must be free; something else listens there")
