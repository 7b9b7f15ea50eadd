"""``srtm brokers ...``: lists brokers, and tells the distributor which are gone and which come back."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from srtm.client.distributor import DistributorClient
from srtm.console.distributor_call import ask_distributor
from srtm.console.output import DistributorOption, JsonOption, TokenOption, show
from srtm.console.topic_tables import show_brokers
from srtm.control import DeadNotice
from srtm.errors import Conflict

app = typer.Typer(no_args_is_help=True, help="Brokers: list, declare dead, forget, undrain.", rich_markup_mode=None)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A broker of the cluster.")]


@app.command("list")
def list_brokers(
    distributor: DistributorOption = None, token: TokenOption = None, json_file: JsonOption = None
) -> None:
    """List all brokers: state, capacity, and what is free."""
    views = ask_distributor(distributor, token, lambda client: client.brokers())
    show("brokers list", views, json_file, partial(show_brokers, views))


@app.command()
def dead(
    name: NameArgument,
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """Give your word that a broker's process has ended. Its tokens go to the others at once.

    If it still runs, the topic's limits are exceeded. A broker that is heard from is refused.
    """
    ask_distributor(distributor, token, partial(_declare_dead, name))
    _say("brokers dead", name, "dead", "its tokens go to the others now, its publishers after 10 s", json_file)


async def _declare_dead(name: str, client: DistributorClient) -> None:
    view = await client.broker(name)
    if view["alive"]:
        raise Conflict("broker", name, "is heard from, so it is not dead: stop its process first")
    notice = DeadNotice(incarnation=view["incarnation"], reason="an operator says so")
    await client.broker_is_dead(name, notice)


@app.command()
def forget(
    name: NameArgument,
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """Drop a broker that is dead, or has nothing. Its publishers go to other brokers at once."""
    ask_distributor(distributor, token, lambda client: client.forget_broker(name))
    _say("brokers forget", name, "forgotten", "it may come back as a new one", json_file)


@app.command()
def undrain(
    name: NameArgument,
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """Let a drained broker come back. `srtm up` starts it again; elsewhere start it yourself."""
    view = ask_distributor(distributor, token, lambda client: client.undrain_broker(name))
    if view["alive"]:
        _say("brokers undrain", name, "in service", "it may be given publishers", json_file)
    else:
        _say(
            "brokers undrain", name, "not drained any more", "`srtm up` starts it again; elsewhere start it", json_file
        )


def _say(command: str, name: str, state: str, then: str, json_file: str | None) -> None:
    result = {"broker": name, "state": state}
    show(command, result, json_file, lambda console: console.print(f"{name} is {state}: {then}", soft_wrap=True))
