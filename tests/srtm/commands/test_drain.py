"""``srtm drain``: what it asks the distributor, and how it ends."""

from __future__ import annotations

import pytest

from srtm.cli import main
from tests.support.played_distributor import BROKER, Distributor


def test_drain_asks_the_distributor_and_ends_when_the_broker_is_drained(
    distributor: Distributor, capsys: pytest.CaptureFixture[str]
) -> None:
    drained = {"broker": "broker-1", "state": "drained", "left": {}}
    distributor.answers["POST", "/v1/brokers/broker-1/drain"] = (202, BROKER | {"draining": True})
    distributor.answers["GET", "/v1/brokers/broker-1"] = (200, BROKER | {"dead": False, "drain": drained})
    assert main(["drain", "broker-1"]) == 0
    assert "broker-1 is drained and stops" in capsys.readouterr().out


def test_drain_that_the_others_cannot_bear_is_refused_with_the_reason(
    distributor: Distributor, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = {
        "title": "conflict",
        "status": 409,
        "detail": "-",
        "field": "broker",
        "value": "broker-1",
        "rule": "no room",
    }
    distributor.answers["POST", "/v1/brokers/broker-1/drain"] = (409, refusal)
    assert main(["drain", "broker-1"]) == 1
    assert capsys.readouterr().err == "srtm: broker: 'broker-1': no room\n"


def test_a_broker_that_was_drained_long_since_is_not_waited_for(distributor: Distributor) -> None:
    distributor.answers["POST", "/v1/brokers/broker-1/drain"] = (202, BROKER | {"state": "drained", "dead": True})
    assert main(["drain", "broker-1"]) == 0
    assert distributor.asked == [("POST", "/v1/brokers/broker-1/drain")]


def test_a_drain_whose_broker_dies_is_a_failure(distributor: Distributor, capsys: pytest.CaptureFixture[str]) -> None:
    distributor.answers["POST", "/v1/brokers/broker-1/drain"] = (202, BROKER)
    distributor.answers["GET", "/v1/brokers/broker-1"] = (200, BROKER | {"dead": True, "drain": None})
    assert main(["drain", "broker-1"]) == 1
    assert "ended before it was drained" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "NAME: must be given, or else --broker HOST:PORT: one of the two"),
        (["b", "--broker", "127.0.0.1:1"], "NAME: 'b': must be given, or else --broker HOST:PORT: one of the two"),
        (["b", "--timeout", "0"], "timeout: 0.0: must be above 0 s"),
    ],
)
def test_drain_refuses_what_it_cannot_mean(
    distributor: Distributor, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["drain", *arguments]) == 2
    assert capsys.readouterr().err == f"srtm: {said}\n"
    assert distributor.asked == []
