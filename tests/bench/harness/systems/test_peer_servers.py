"""The brokers beside ours: what is said of one that is not here, and of one that says no version."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from bench.harness.systems import peer_servers
from bench.harness.systems.peer_servers import ALL, missing, program_path, version, version_in
from srtm.errors import Unavailable


def script(folder: Path, name: str, *lines: str) -> Path:
    file = folder / name
    file.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    file.chmod(0o755)
    return file


def test_a_program_that_is_not_here_is_named_with_the_package_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(peer_servers, "SYSTEM_FOLDERS", ())
    packages = {"nats": "nats-server", "mosquitto": "mosquitto", "mosquitto-qos1": "mosquitto", "redis": "redis-server"}
    for name, package in packages.items():
        assert missing(ALL[name]) == f"{name} is not here ({package}): Debian's package {package} brings it"
    script(tmp_path, "redis-server")
    assert missing(ALL["redis"]) is None


def test_a_server_is_found_where_only_administrators_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setattr(peer_servers, "SYSTEM_FOLDERS", (str(tmp_path),))
    assert program_path("broker") is None
    assert program_path(script(tmp_path, "broker").name) == str(tmp_path / "broker")


async def test_a_version_is_what_the_program_says_whatever_its_status(tmp_path: Path) -> None:
    program = script(tmp_path, "broker", "echo 'broker version 2.0.11 (of 2021)' >&2", "exit 3")
    with trio.fail_after(10):
        assert await version(replace(ALL["mosquitto"], version_command=(str(program), "-h"))) == "2.0.11"


def test_a_version_is_the_first_number_with_dots() -> None:
    assert version_in("nsqd", "nsqd v1.3.0 (built w/go1.22)") == "1.3.0"
    assert version_in("redis", "Redis server v=7.0.15 sha=00000000:0") == "7.0.15"
    with pytest.raises(Unavailable, match="nats does not say its version: help"):
        version_in("nats", "help")
    with pytest.raises(Unavailable, match="nats does not say its version: it said nothing"):
        version_in("nats", "")


def test_only_those_of_mqtt_are_asked_for_a_quality_of_service_above_0() -> None:
    assert {peer.name: (peer.protocol, peer.qos) for peer in ALL.values()} == {
        "srtm": ("nsq", 0),
        "srtm-mqtt": ("mqtt", 0),
        "srtm-mqtt-qos1": ("mqtt", 1),
        "srtm-mqtt-qos2": ("mqtt", 2),
        "nsqd": ("nsq", 0),
        "nats": ("nats", 0),
        "mosquitto": ("mqtt", 0),
        "mosquitto-qos1": ("mqtt", 1),
        "nats-mqtt": ("mqtt", 0),
        "nats-mqtt-qos1": ("mqtt", 1),
        "rumqttd": ("mqtt", 0),
        "rumqttd-qos1": ("mqtt", 1),
        "mosquitto-qos2": ("mqtt", 2),
        "redis": ("redis", 0),
    }
