"""Checks what a broker says of itself: it is stored, and shown to others. Pure.

What a broker says of topics is checked in ``report_checks``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from distributor.measuring.messages import MAX_SERVICE_NS
from distributor.model.cluster import Broker
from srtm.control import BrokerMachine, SyncRequest, check_broker_name
from srtm.errors import BadInput
from srtm.units import LARGEST

_ADDRESS = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):([0-9]{1,5})")
_MAX_TEXT = 300  # characters; host names have at most 253
_MAX_CORES = 2**31
_MAX_CLAIMS = 4
_MAX_PEERS = 10_000


def checked_broker(name: str, request: SyncRequest) -> Broker:
    """The broker that sent ``request``. Raises BadInput."""
    check_broker_name("broker", name)
    for field in ("incarnation", "srtm_version"):
        _check_text(field, getattr(request, field))
    _check_address("tcp_address", request.tcp_address)
    _check_address("http_address", request.http_address)
    mqtt = {"mqtt_address": request.mqtt_address}
    mqtt |= {f"mqtt_ports.{kind}": address for kind, address in msgspec.structs.asdict(request.mqtt_ports).items()}
    for field, address in mqtt.items():
        if address:
            _check_address(field, address)
    if not request.incarnation:
        raise BadInput("incarnation", request.incarnation, "must not be empty")
    if not 0 <= request.mcap <= LARGEST:  # false for NaN too
        raise BadInput("mcap", request.mcap, f"must be from 0 (it is not known) to {LARGEST:g} msg/s")
    if not 0 <= request.lab_service_time_ns <= MAX_SERVICE_NS:
        rule = f"must be from 0 to {MAX_SERVICE_NS} ns"
        raise BadInput("lab_service_time_ns", request.lab_service_time_ns, rule)
    if request.machine is not None:
        _check_machine(request.machine)
    _check_claims(request.claims or [])
    _check_versions(request.have_version, request.applied)
    _check_peers(request.peers or {}, request.peer_claims)
    for field in ("number", "reports_since", "remembered", "cluster"):
        _check_not_negative(field, getattr(request, field))
    return Broker(
        name=name,
        incarnation=request.incarnation,
        srtm_version=request.srtm_version,
        tcp_address=request.tcp_address,
        http_address=request.http_address,
        mcap=request.mcap,
        accepting=request.accepting,
        claims=None if request.claims is None else tuple(request.claims),
    )


def _check_address(field: str, address: str) -> None:
    _check_text(field, address)
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match[1]) < 65536:
        raise BadInput(field, address, "must be HOST:PORT")


def _check_machine(machine: BrokerMachine) -> None:
    """The machine is stored with capacities, so it must be one that ``srtm.topics.capacity`` accepts."""
    if not 1 <= machine.cores <= _MAX_CORES:
        raise BadInput("machine.cores", machine.cores, f"must be from 1 to {_MAX_CORES}")
    _check_text("machine.kernel", machine.kernel)
    _check_text("machine.cpu", machine.cpu)


def _check_claims(claims: list[str]) -> None:
    if len(claims) > _MAX_CLAIMS:
        raise BadInput("claims", len(claims), f"must be at most {_MAX_CLAIMS}")
    for claim in claims:
        _check_text("claims", claim)


def _check_peers(peers: Mapping[str, str], claims: Mapping[str, list[str]]) -> None:
    if len(peers) > _MAX_PEERS:
        raise BadInput("peers", len(peers), f"must be at most {_MAX_PEERS}")
    for name, incarnation in peers.items():
        check_broker_name("peers", name)
        _check_text("peers", incarnation)
        _check_claims(claims.get(name, []))


def _check_text(field: str, text: str) -> None:
    if "\0" in text:
        raise BadInput(field, text, "must not have a NUL character in it")  # PostgreSQL stores none
    if len(text) > _MAX_TEXT:
        raise BadInput(field, text, f"must be at most {_MAX_TEXT} characters long")


def _check_versions(have_version: int, applied: Mapping[str, int]) -> None:
    """The registry checks the upper bound."""
    _check_not_negative("have_version", have_version)
    if min(applied.values(), default=0) < 0:
        for topic, version in applied.items():
            _check_not_negative(f"applied.{topic}", version)


def _check_not_negative(field: str, number: int) -> None:
    if number < 0:
        raise BadInput(field, number, "must be 0 or more")
