"""``srtm brokers``: what it asks the distributor, and what it says."""

from __future__ import annotations

import pytest

from srtm.cli import main
from tests.support.played_distributor import BROKER, Distributor

AWAY = {**BROKER, "alive": False, "state": "silent", "incarnation": "i-7"}
CONFLICT = {"title": "conflict", "status": 409, "detail": "-", "field": "broker", "value": "broker-1"}


def test_brokers_are_listed_with_their_states(distributor: Distributor, capsys: pytest.CaptureFixture[str]) -> None:
    views = [BROKER, {**BROKER, "name": "broker-2", "alive": False, "state": "drained", "last_sync_s_ago": 73.5}]
    distributor.answers["GET", "/v1/brokers"] = (200, views)
    assert main(["brokers", "list"]) == 0
    shown = capsys.readouterr().out
    assert "live" in shown
    assert "drained" in shown
    assert "73.5" in shown


def test_an_operator_says_that_a_broker_is_dead_by_the_incarnation_that_is_known(
    distributor: Distributor, capsys: pytest.CaptureFixture[str]
) -> None:
    distributor.answers["GET", "/v1/brokers/broker-1"] = (200, AWAY)
    distributor.answers["POST", "/v1/brokers/broker-1/dead"] = (204, None)
    assert main(["brokers", "dead", "broker-1"]) == 0
    assert distributor.bodies == [{"incarnation": "i-7", "reason": "an operator says so"}]
    assert capsys.readouterr().out.startswith("broker-1 is dead: ")


def test_a_broker_that_is_heard_from_is_not_declared_dead(
    distributor: Distributor, capsys: pytest.CaptureFixture[str]
) -> None:
    distributor.answers["GET", "/v1/brokers/broker-1"] = (200, {**AWAY, "alive": True})
    assert main(["brokers", "dead", "broker-1"]) == 1
    assert "is heard from, so it is not dead: stop its process first" in capsys.readouterr().err
    assert distributor.changed() == []


@pytest.mark.parametrize(
    ("command", "method", "path", "status", "said"),
    [
        ("forget", "DELETE", "/v1/brokers/broker-1", 204, "broker-1 is forgotten"),
        ("undrain", "POST", "/v1/brokers/broker-1/undrain", 200, "broker-1 is not drained any more"),
        ("undrain", "POST", "/v1/brokers/broker-1/undrain", 200, "broker-1 is in service"),
    ],
)
def test_a_broker_is_forgotten_or_undrained(
    distributor: Distributor, capsys: pytest.CaptureFixture[str], command, method, path, status, said
) -> None:
    view = {**AWAY, "alive": said.endswith("in service")}
    distributor.answers[method, path] = (status, None if status == 204 else view)
    assert main(["brokers", command, "broker-1"]) == 0
    shown = capsys.readouterr().out
    assert said in shown
    assert ("starts it again" in shown) == (said == "broker-1 is not drained any more")
    distributor.answers[method, path] = (409, {**CONFLICT, "rule": "has publishers"})
    assert main(["brokers", command, "broker-1"]) == 1
    assert capsys.readouterr().err == "srtm: broker: 'broker-1': has publishers\n"
