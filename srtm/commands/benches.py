"""``srtm demo`` and ``srtm bench``: handed on to ``bench``, which parses its own options; imported only then."""

from __future__ import annotations

import typer

FORWARDED = {"allow_extra_args": True, "ignore_unknown_options": True}


def bench(context: typer.Context) -> int:
    """Measure: the figures of the paper, comparisons with other systems. See ``srtm bench --help``."""
    from bench.commands.main import app

    return _forward(app, "srtm bench", context.args)


def demo(context: typer.Context) -> int:
    """Two minutes: 207 sensors on three brokers, spread evenly and placed by SRTM, side by side."""
    from bench.demo.run import app

    return _forward(app, "srtm demo", context.args)


def _forward(app: typer.Typer, name: str, arguments: list[str]) -> int:
    status = typer.main.get_command(app).main(arguments, prog_name=name, standalone_mode=False)
    return status if isinstance(status, int) else 0
