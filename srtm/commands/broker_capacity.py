"""``srtm capacity ...``: measures, stores and shows what brokers carry within a promise."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from srtm.client.distributor import DistributorClient, Json
from srtm.commands.benches import measure_capacity
from srtm.console.distributor_call import ask_distributor
from srtm.console.output import DistributorOption, JsonOption, TokenOption, people_console, show, table
from srtm.errors import BadInput
from srtm.net.decode_errors import UNREADABLE
from srtm.text import figure

app = typer.Typer(no_args_is_help=True, help="What brokers carry within a promise.", rich_markup_mode=None)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A broker of the cluster.")]


@app.command()
def bench(
    name: NameArgument,
    slo: Annotated[str, typer.Option(metavar="pP:MSms", help="The promise.")] = "p99:1ms",
    process: Annotated[str, typer.Option(metavar="<poisson|periodic>")] = "poisson",
    batch: Annotated[int, typer.Option(min=1, help="Messages sent at once.")] = 1,
    publishers: Annotated[int, typer.Option(min=1, max=20_000, help="Publishers that share the rate.")] = 100,
    seconds: Annotated[float, typer.Option(min=1.0, max=600.0, help="Seconds measured at each rate.")] = 4.0,
    most: Annotated[float, typer.Option(help="The highest rate to try, msg/s.")] = 200_000.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the traffic.")] = 1,
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", metavar="FILE", help="Measure nothing: store the capacity of this JSON file."),
    ] = None,
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """Find the largest rate that a broker carries within a promise, and store it for placement.

    The broker may be idle or in use. The rate rises until the promise breaks, or until another topic's promise is near.
    """
    from srtm.topics.capacity import Class, parse_capacity, parse_slo

    if from_file is not None:
        capacity = parse_capacity(_document(from_file))
        view = ask_distributor(distributor, token, lambda client: client.note_capacity(name, capacity.to_json()))
        show("capacity bench", view, json_file, partial(_show, view))
        return
    if process not in ("poisson", "periodic"):
        raise BadInput("process", process, "must be poisson or periodic")
    if not 1 <= most <= 1e9:  # false for NaN too
        raise BadInput("most", most, "must be from 1 to 1e9 msg/s")
    traffic = Class(process="periodic" if process == "periodic" else "poisson", batch=batch, publishers=publishers)
    promise = parse_slo(slo)
    console = people_console(stderr=json_file == "-")

    async def measure(client: DistributorClient) -> Json:
        capacity, steps = await measure_capacity(
            client,
            name,
            promise,
            traffic,
            seconds=seconds,
            highest_rate=most,
            seed=seed,
            report=partial(console.print, soft_wrap=True),
        )
        return {**await client.note_capacity(name, capacity.to_json()), "steps": steps}

    result = ask_distributor(distributor, token, measure)
    show("capacity bench", result, json_file, partial(_show, result))


@app.command("show")
def show_capacity(
    name: NameArgument, distributor: DistributorOption = None, token: TokenOption = None, json_file: JsonOption = None
) -> None:
    """Show a broker's known capacities and the rate that is left."""
    view = ask_distributor(distributor, token, lambda client: client.capacity(name))
    show("capacity show", view, json_file, partial(_show, view))


def _document(file: Path) -> Any:
    """Read a capacity, or the newest capacity of a result that ``--json`` wrote. Raises BadInput."""
    try:
        document = msgspec.json.decode(file.read_bytes())
    except OSError as error:
        raise BadInput("from-file", str(file), f"must be a file that can be read ({error.strerror})") from error
    except UNREADABLE as error:
        raise BadInput("from-file", str(file), f"must be JSON: {error}") from error
    try:
        return document["result"]["capacities"][-1]
    except (KeyError, IndexError, TypeError):
        return document


def _show(view: Json, console: Console) -> None:
    left = "no limit is known" if view["rcap"] is None else f"{figure(view['rcap'], 6)} msg/s are left"
    stated = f", {figure(view['mcap_stated'], 6)} stated" if view["mcap_stated"] else ""
    console.print(
        f"{view['name']}: {figure(view['mcap'], 6)} msg/s for what it has{stated}; "
        f"{figure(view['allocated'], 6)} allocated, {left}",
        soft_wrap=True,
    )
    columns = ["promise", "process", "measured", "source", "limited by", "disturbed", "machine", "batch", "publishers"]
    columns += ["beside msg/s", "laboratory us", "mcap msg/s"]
    rows = [_row(capacity) for capacity in view["capacities"]]
    if rows:
        console.print(table("", columns, rows, left=7))


def _row(capacity: Json) -> list[object]:
    machine = capacity["machine"]
    return [
        f"p{capacity['slo']['percentile']:g} <= {figure(capacity['slo']['latency_ms'], 6)} ms",
        capacity["process"],
        capacity["measured"] or None,
        capacity["source"],
        capacity["limited_by"],
        "; ".join(capacity["disturbed"]) or None,
        None if machine is None else f"{machine['cores']} cores, {machine['cpu']}, {machine['kernel']}",
        capacity["batch"],
        capacity["publishers"],
        capacity["beside"],
        capacity["lab_service_time_ns"] / 1e3 or None,
        capacity["mcap"],
    ]
