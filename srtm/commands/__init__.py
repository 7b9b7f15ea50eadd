"""Owns the subcommands of ``srtm``, one module a command or group of commands.

A command parses its options, calls a library and shows the result. ``services`` and ``benches`` alone import services.
Begin with ``app``, which lists all commands.
"""

from srtm.commands.app import run

__all__ = ["run"]
