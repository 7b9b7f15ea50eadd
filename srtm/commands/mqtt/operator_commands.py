"""``srtm mqtt ...``: sessions and retained messages of MQTT, asked of all brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Annotated, Generic, NamedTuple, NoReturn, TypeVar

import msgspec
import typer
from rich.console import Console

from srtm.client.broker import BrokerClient
from srtm.client.distributor import DistributorClient
from srtm.console.distributor_call import ask_distributor
from srtm.console.output import DistributorOption, JsonOption, TokenOption, show, table
from srtm.console.running import run_trio
from srtm.console.topic_tables import loss_remarks
from srtm.control import MqttLosses, MqttRetained, MqttSession, MqttSessions
from srtm.errors import NotFound, PeerError, Unavailable

app = typer.Typer(no_args_is_help=True, help="MQTT: list sessions and retained messages, end them.")
BrokerOption = Annotated[
    str | None,
    typer.Option("--broker", metavar="HOST:PORT", help="Ask this broker alone: the address of its HTTP."),
]
ClientArgument = Annotated[str, typer.Argument(metavar="NAME", help="A client identifier.")]

_EXAMPLE = "127.0.0.1:4151"
_MOST_RETAINED = 10_000  # a broker's answer with fewer messages is whole

_T = TypeVar("_T")
Question = Callable[[BrokerClient], Awaitable[_T]]


class Place(NamedTuple):
    """A broker that is asked."""

    name: str
    address: str  # of its HTTP


class Answers(NamedTuple, Generic[_T]):
    """What the brokers said."""

    given: list[tuple[Place, _T]]
    missing: list[str]  # who said nothing, and why

    def check(self) -> None:
        """Raises Unavailable, which names who said nothing."""
        if self.missing:
            raise Unavailable(f"not all brokers answer: {'; '.join(self.missing)}")

    def not_found(self, client: str) -> NoReturn:
        """Raises NotFound if all brokers answered, else Unavailable: the session may be where nobody answers."""
        self.check()
        raise NotFound("client", client)


@app.command()
def sessions(
    broker: BrokerOption = None,
    most: Annotated[int, typer.Option(min=1, max=10_000, help="Sessions of each broker to list.")] = 1_000,
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """List the sessions of all brokers, with what waits for each.

    Below them stands what was lost of each topic since the brokers' start.
    """
    answers = _ask(broker, distributor, token, partial(_sessions_and_losses, most))
    found = [(place.name, session) for place, (answer, _) in answers.given for session in answer.sessions]
    found.sort(key=lambda row: (row[1].client_id, row[0]))
    total = sum(answer.total for _, (answer, _) in answers.given)
    losses = [(place.name, topic, lost) for place, (_, by_topic) in answers.given for topic, lost in by_topic.items()]

    def show_all(console: Console) -> None:
        _show_sessions(found, total, console)
        for name, topic, lost in sorted(losses, key=lambda row: row[:2]):
            for remark in loss_remarks(lost):
                console.print(f"{name}, topic {topic}: {remark}", soft_wrap=True)

    show("mqtt sessions", [_row(name, session) for name, session in found], json_file, show_all)
    answers.check()


@app.command()
def session(
    name: ClientArgument,
    broker: BrokerOption = None,
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """Show the session of a client, with its subscriptions."""
    answers = _ask(broker, distributor, token, partial(_or_none, lambda client: client.mqtt_session(name)))
    found = [(place.name, session) for place, session in answers.given if session is not None]
    if not found:
        answers.not_found(name)
    show("mqtt session", [_row(at, session) for at, session in found], json_file, partial(_show_session, found))
    answers.check()


@app.command()
def kick(
    name: ClientArgument,
    broker: BrokerOption = None,
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """End the session of a client and its connection. What waits for it is dropped, its will is published."""
    answers = _ask(broker, distributor, token, partial(_or_none, lambda client: client.kick_mqtt(name)))
    ended = [place.name for place, was_there in answers.given if was_there]
    if not ended:
        answers.not_found(name)
    result = {"client": name, "brokers": ended}
    show("mqtt kick", result, json_file, lambda console: console.print(f"{name} is ended at {', '.join(ended)}"))
    answers.check()


@app.command()
def retained(
    pattern: Annotated[str, typer.Argument(metavar="FILTER", help="Of names, as clients subscribe to.")] = "#",
    clear: Annotated[bool, typer.Option("--clear", help="Remove them.")] = False,
    broker: BrokerOption = None,
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """List what is retained under a filter, some 10,000 of each broker. Without one, all but `$SYS`."""
    answers = _ask(broker, distributor, token, partial(_retained, pattern, clear=clear))
    found = sorted((message.name, place.name, message) for place, answer in answers.given for message in answer)
    rows = [{"broker": at, **msgspec.to_builtins(message)} for _, at, message in found]
    title = f"{'Removed' if clear else 'Retained'} under {pattern}"
    is_cut = not clear and any(len(answer) >= _MOST_RETAINED for _, answer in answers.given)
    shown = partial(_show_retained, title, [(at, message) for _, at, message in found], clear, is_cut)
    show("mqtt retained", rows, json_file, shown)
    answers.check()


def _ask(broker: str | None, distributor: list[str] | None, token: str | None, question: Question[_T]) -> Answers[_T]:
    """Return each broker's answer. Raises Unavailable if there is none."""
    if broker is not None:
        try:
            return Answers([(Place(broker, broker), run_trio(partial(_ask_one, broker, token, question)))], [])
        except (Unavailable, PeerError) as error:
            raise Unavailable(f"{error}; --broker is the address of a broker's HTTP, such as {_EXAMPLE}") from None

    async def ask_members(client: DistributorClient) -> Answers[_T]:
        views = await client.brokers()
        away = [view for view in views if view["alive"] is False and view["state"] != "drained"]  # that has no sessions
        places = [Place(view["name"], view["http_address"]) for view in views if view["alive"] is not False]
        given, silent = await _ask_all(places, token, question)
        return Answers(given, [*silent, *(f"{view['name']} is {view['state']}" for view in away)])

    try:
        answers = ask_distributor(distributor, token, ask_members)
    except Unavailable as error:
        raise Unavailable(f"{error}; --broker HOST:PORT asks a broker alone") from None
    if not answers.given:
        answers.check()
    return answers


async def _ask_one(address: str, token: str | None, question: Question[_T]) -> _T:
    async with aclosing(BrokerClient(address, token)) as client:
        return await question(client)


async def _ask_all(places: Sequence[Place], token: str | None, question: Question[_T]) -> Answers[_T]:
    answers: Answers[_T] = Answers([], [])
    for place in places:
        try:
            answers.given.append((place, await _ask_one(place.address, token, question)))
        except (Unavailable, PeerError) as error:
            answers.missing.append(f"{place.name}: {error}")
    return answers


async def _sessions_and_losses(most: int, client: BrokerClient) -> tuple[MqttSessions, dict[str, MqttLosses]]:
    return await client.mqtt_sessions(most), await _or_none(BrokerClient.mqtt_losses, client) or {}


async def _retained(pattern: str, client: BrokerClient, *, clear: bool) -> list[MqttRetained]:
    """What is retained at a broker; ``clear``: all of it is removed, in as many requests as that takes."""
    found = part = await client.mqtt_retained(pattern, clear=clear)
    while clear and len(part) >= _MOST_RETAINED:  # else the answer went to the end
        part = await client.mqtt_retained(pattern, clear=True)
        found = [*found, *part]
    return found


async def _or_none(question: Question[_T], client: BrokerClient) -> _T | None:
    try:
        return await question(client)
    except NotFound:
        return None


def _row(broker: str, session: MqttSession) -> dict[str, object]:
    return {"broker": broker, **msgspec.to_builtins(session)}


def _show_sessions(found: Sequence[tuple[str, MqttSession]], total: int, console: Console) -> None:
    if not found:
        console.print("no client has a session")
        return
    columns = ["client", "broker", "state", "address", "subscriptions", "queued", "in flight", "dropped"]
    rows = [
        [
            session.client_id,
            broker,
            _state(session),
            session.address,
            session.subscriptions,
            session.queued,
            session.in_flight,
            session.dropped,
        ]
        for broker, session in found
    ]
    console.print(table("Sessions", columns, rows, left=4))
    if total > len(found):
        console.print(f"{total:,} in all: --most lists more")


def _state(session: MqttSession) -> str:
    if session.connected:
        return f"MQTT {session.version}"
    return "away" if session.ends_in_s is None else f"away, ends in {session.ends_in_s:,} s"


def _show_session(found: Sequence[tuple[str, MqttSession]], console: Console) -> None:
    for broker, session in found:
        _show_sessions([(broker, session)], 1, console)
        for text in session.filters:
            console.print(f"  subscribes to {text}", soft_wrap=True)


def _show_retained(
    title: str, found: Sequence[tuple[str, MqttRetained]], cleared: bool, is_cut: bool, console: Console
) -> None:
    if not found:
        console.print(f"{title}: nothing", soft_wrap=True)
        return
    columns = ["name", "broker", "QoS", "bytes", "expires in s"]
    rows = [[message.name, broker, message.qos, message.bytes, message.expires_in_s] for broker, message in found]
    console.print(table(title, columns, rows, left=2))
    if cleared:
        console.print(f"{len({message.name for _, message in found}):,} names are removed")
    elif is_cut:
        console.print("there may be more: a filter that matches less shows the rest")
