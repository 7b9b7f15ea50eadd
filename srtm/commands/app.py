"""The whole command line: typer's tree of subcommands, and typer's errors in our format."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from srtm.commands import (
    benches,
    broker_capacity,
    brokers,
    drain,
    groups,
    limits,
    penalty,
    services,
    sizes,
    topic_publishers,
    topics,
    traffic,
)
from srtm.commands.mqtt import operator_commands as mqtt
from srtm.console.log_options import add_log_options
from srtm.console.options import add_trust
from srtm.console.usage import command_of, usage_text
from srtm.operations import audit_list, configs, doctor, stores, top, topic_documents, waiting
from srtm.operations.completion import add_forwarded
from srtm.operations.configs import add_config, with_service_file
from srtm.version import __version__

app = typer.Typer(
    name="srtm",
    help="Pub/sub messaging for IoT that keeps a latency promise.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("broker", help="Run a broker: alone (like nsqd), or as a member of a cluster.")(services.broker)
app.command("nsqd", help="Run a broker alone with the flags of nsqd, in its place.")(services.nsqd)
app.command("distributor")(add_config(add_log_options(services.distributor)))
app.command("adaptor")(add_config(add_log_options(services.adaptor)))
app.command("up")(add_config(add_log_options(services.up)))
app.command("wait")(waiting.wait)
app.command("doctor")(doctor.doctor)
app.command("audit")(audit_list.audit)
app.add_typer(configs.app, name="config")
app.add_typer(stores.app, name="store")
topics.app.command("export")(topic_documents.export)
topics.app.command("diff")(topic_documents.diff)
topics.app.command("decisions")(topic_documents.decisions)
topics.app.command("size")(sizes.size)
topics.app.command("groups")(groups.groups)
topics.app.command("publishers")(topic_publishers.publishers)
topics.app.command("penalty")(penalty.penalty)
app.add_typer(topics.app, name="topic")
limits.app.command("serve")(add_config(add_log_options(services.limit_serve)))
app.add_typer(limits.app, name="limit")
app.add_typer(broker_capacity.app, name="capacity")
app.add_typer(brokers.app, name="brokers")
app.add_typer(mqtt.app, name="mqtt")
app.command("drain")(drain.drain)
app.command("status")(topics.status)
app.command("top")(top.top)
app.command("publish")(traffic.publish)
app.command("subscribe")(traffic.subscribe)
app.command("demo", context_settings=benches.FORWARDED, add_help_option=False)(benches.demo)
app.command("bench", context_settings=benches.FORWARDED, add_help_option=False)(benches.bench)


for each in (app, topics.app, brokers.app, broker_capacity.app, mqtt.app, limits.app, limits.contract_app):
    add_trust(each)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"srtm {__version__}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of ``srtm`` itself."""


def run(arguments: Sequence[str]) -> int:
    """Run ``srtm ARGUMENTS...`` and return its exit status. Raises SrtmError.

    A usage error, such as an unknown option, is printed here and gives the status 2.
    """
    add_forwarded(app)
    root = command_of(app)
    try:
        status = root.main(with_service_file(root, arguments), prog_name="srtm", standalone_mode=False)
    except typer.Abort:
        return 130
    except typer.TyperException as error:
        print(usage_text(error), file=sys.stderr)
        return int(getattr(error, "exit_code", 2))
    return status if isinstance(status, int) else 0
