"""``srtm bench envoy``: options and exit status."""

from __future__ import annotations

from typing import Annotated

import typer

from bench.console.options import console
from bench.limit_cluster.envoy_service import CALLS_A_SECOND, measure
from srtm.console.output import JsonOption, show, table

app = typer.Typer()


@app.command("envoy")
def bench_envoy(
    seconds: Annotated[float, typer.Option(min=1.0, help="Of each of the two loads.")] = 10.0,
    rate: Annotated[float, typer.Option(min=1.0, help="Calls/s of the second load.")] = CALLS_A_SECOND,
    json_file: JsonOption = None,
) -> int:
    """Envoy's rate limit service under the stock gRPC client: how many calls, then how late the answers are.

    Half a minute. It needs grpcio. Status 0 if it reaches what it must, 1 if not.
    """
    found = measure(seconds, rate)
    checks = found.checks()
    drawn = table("", ("what", "measured", "to reach", "kept"), [check.cells for check in checks], left=4)
    show("bench envoy", found._asdict(), json_file, lambda screen: screen.print(drawn))
    screen = console(json_file)
    screen.print(f"p50 {found.p50_ms:.2f} ms; {found.cpu_us:.0f} us of processor time of the service for a call")
    return 0 if all(check.kept for check in checks) else 1
