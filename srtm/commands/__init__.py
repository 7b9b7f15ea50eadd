"""The subcommands of ``srtm``, one module a concern. Each is a few lines over a library call: parse, call, show.

``app`` (the whole command line), then ``services`` (distributor, up), ``topics``, ``traffic`` (publish, subscribe),
``benches`` (demo, bench), and ``output``, which is how every one of them shows a result.
"""

from srtm.commands.app import run

__all__ = ["run"]
