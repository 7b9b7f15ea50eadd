"""``srtm mqtt``: what it says of the brokers' sessions, and of brokers that say nothing."""

from __future__ import annotations

import pytest

from srtm.cli import main
from srtm.client.broker import BrokerClient
from srtm.control import MqttLosses, MqttRetained, MqttSession, MqttSessions
from srtm.errors import NotFound, Unavailable
from tests.support.played_distributor import BROKER, Distributor

AWAY = MqttSession(
    client_id="s-1",
    connected=False,
    address="",
    version="",
    subscriptions=1,
    queued=7,
    in_flight=0,
    unreleased=0,
    dropped=0,
    has_will=False,
    ends_in_s=3_600,
)


@pytest.fixture
def losses() -> dict[str, dict[str, MqttLosses]]:
    """{address: {topic: what was lost at the broker there}}."""
    return {}


@pytest.fixture
def retained() -> dict[str, list[str]]:
    """{address: names of what is retained at the broker there}."""
    return {}


@pytest.fixture
def brokers(
    distributor: Distributor,
    losses: dict[str, dict[str, MqttLosses]],
    retained: dict[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, list[MqttSession] | None]:
    """{address: sessions of the broker there, or None: it does not answer}."""
    played: dict[str, list[MqttSession] | None] = {"127.0.0.1:1": [AWAY], "127.0.0.1:2": []}
    views = [{**BROKER, "name": f"broker-{number}", "http_address": f"127.0.0.1:{number}"} for number in (1, 2)]
    distributor.answers["GET", "/v1/brokers"] = (200, views)

    class Played(BrokerClient):
        def __init__(self, address: str, token: str | None = None) -> None:
            super().__init__(address, token)
            self._address = address

        def _there(self) -> list[MqttSession]:
            found = played[self._address]
            if found is None:
                raise Unavailable("cannot be reached")
            return found

        async def mqtt_sessions(self, most: int) -> MqttSessions:
            return MqttSessions(total=len(self._there()), sessions=self._there()[:most])

        async def mqtt_losses(self) -> dict[str, MqttLosses]:
            if self._address not in losses:
                raise NotFound("path", "/v1/mqtt/losses")  # a broker of an earlier version
            return losses[self._address]

        async def mqtt_session(self, client_id: str) -> MqttSession:
            for one in self._there():
                if one.client_id == client_id:
                    return one
            raise NotFound("client", client_id)

        async def kick_mqtt(self, client_id: str) -> bool:
            await self.mqtt_session(client_id)
            return True

        async def mqtt_retained(self, pattern: str, *, clear: bool) -> list[MqttRetained]:  # noqa: ARG002
            self._there()
            names = retained.setdefault(self._address, [])
            answer = [MqttRetained(name=name, qos=1, bytes=1, expires_in_s=None) for name in names[:10_112]]
            if clear:
                del names[:10_112]
            return answer

    monkeypatch.setattr("srtm.commands.mqtt.operator_commands.BrokerClient", Played)
    return played


def _states(distributor: Distributor, **states: str) -> None:
    _, views = distributor.answers["GET", "/v1/brokers"]
    assert isinstance(views, list)
    for view in views:
        state = states.get(view["name"].replace("-", "_"), "live")
        view.update(state=state, alive=state == "live")


def test_a_session_says_when_it_ends(brokers: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mqtt", "sessions"]) == 0
    assert "away, ends in 3,600 s" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["sessions"], ["session", "s-1"], ["kick", "s-1"]])
@pytest.mark.parametrize("state", ["silent", "dead", "expected", "live"])
def test_what_the_others_say_is_shown_and_who_says_nothing_is_named(
    brokers: dict[str, list[MqttSession] | None],
    distributor: Distributor,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    state: str,
) -> None:
    _states(distributor, broker_2=state)
    brokers["127.0.0.1:2"] = None
    assert main(["mqtt", *arguments]) == 1
    shown = capsys.readouterr()
    assert "s-1" in shown.out
    assert shown.err.startswith("srtm: not all brokers answer: broker-2")
    assert ("cannot be reached" if state == "live" else state) in shown.err


def test_a_session_may_be_where_nobody_answers(
    brokers: dict[str, list[MqttSession] | None], distributor: Distributor, capsys: pytest.CaptureFixture[str]
) -> None:
    _states(distributor, broker_1="silent")
    for command in ("session", "kick"):
        assert main(["mqtt", command, "s-1"]) == 1
        assert "broker-1 is silent" in capsys.readouterr().err
    _states(distributor)
    brokers["127.0.0.1:1"] = []
    assert main(["mqtt", "kick", "s-1"]) == 2
    assert "client 's-1' is not known here" in capsys.readouterr().err


def test_a_drained_broker_has_no_sessions_and_is_not_asked(
    brokers: dict[str, list[MqttSession] | None], distributor: Distributor, capsys: pytest.CaptureFixture[str]
) -> None:
    _states(distributor, broker_2="drained")
    brokers["127.0.0.1:2"] = None
    assert main(["mqtt", "sessions"]) == 0
    assert "s-1" in capsys.readouterr().out


def test_what_was_lost_is_told_below_the_sessions_by_broker_and_topic(
    brokers: object, losses: dict[str, dict[str, MqttLosses]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mqtt", "sessions"]) == 0
    assert "since its start" not in capsys.readouterr().out
    losses["127.0.0.1:2"] = {"noise": MqttLosses(refused=[0, 1, 0]), "heat": MqttLosses(full={"mqtt": 3})}
    assert main(["mqtt", "sessions"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "broker-2, topic heat: deliveries dropped since its start where sessions or groups were full: sessions 3",
        "broker-2, topic noise: publishes by MQTT that were not taken since its start: 1 refused (QoS 1: 1)",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sessions"], "no client has a session"),
        (["retained"], "Retained under #: nothing"),
        (["retained", "a/+", "--clear"], "Removed under a/+: nothing"),
    ],
)
def test_where_there_is_nothing_one_line_says_so_and_where_nobody_answers_none(
    brokers: dict[str, list[MqttSession] | None], capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    brokers["127.0.0.1:1"] = []
    assert main(["mqtt", *arguments]) == 0
    assert capsys.readouterr().out == f"{said}\n"
    brokers.update(dict.fromkeys(brokers))
    assert main(["mqtt", *arguments]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "broker-1: cannot be reached; broker-2: cannot be reached" in shown.err


def test_a_broker_alone_is_asked_at_its_http_as_a_refusal_says(
    brokers: dict[str, list[MqttSession] | None], distributor: Distributor, capsys: pytest.CaptureFixture[str]
) -> None:
    distributor.answers["GET", "/v1/brokers"] = (503, {"title": "unavailable", "detail": "no leader", "status": 503})
    assert main(["mqtt", "sessions"]) == 1
    assert "--broker HOST:PORT asks a broker alone" in capsys.readouterr().err
    assert main(["mqtt", "sessions", "--broker", "127.0.0.1:1"]) == 0
    assert "s-1" in capsys.readouterr().out
    brokers["127.0.0.1:1"] = None
    assert main(["mqtt", "sessions", "--broker", "127.0.0.1:1"]) == 1
    told = "srtm: cannot be reached; --broker is the address of a broker's HTTP, such as 127.0.0.1:4151\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("count", [1, 12_000, 2 * 10_112])
def test_all_that_is_retained_is_removed_however_much_it_is_and_its_number_is_told(
    brokers: object, retained: dict[str, list[str]], count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for address in ("127.0.0.1:1", "127.0.0.1:2"):
        retained[address] = [f"r/{number}" for number in range(count)]
    assert main(["mqtt", "retained", "--clear"]) == 0
    assert f"{count:,} names are removed" in capsys.readouterr().out
    assert retained == {"127.0.0.1:1": [], "127.0.0.1:2": []}


@pytest.mark.parametrize(("count", "is_cut"), [(9_999, False), (12_000, True)])
def test_a_list_of_what_is_retained_says_if_there_may_be_more(
    brokers: object, retained: dict[str, list[str]], count: int, is_cut: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    retained["127.0.0.1:1"] = [f"r/{number}" for number in range(count)]
    assert main(["mqtt", "retained"]) == 0
    assert ("there may be more" in capsys.readouterr().out) == is_cut
    assert len(retained["127.0.0.1:1"]) == count
