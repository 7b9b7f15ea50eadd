"""``srtm nsqd``: a broker alone that starts as nsqd does.

Exit status as nsqd's: 0 stopped by a signal, 1 cannot start or go on, 2 a bad flag.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from broker.nsqd.flags import Given, broker_config, parse_file, parse_flags, usage
from broker.nsqd.options import Options
from srtm.errors import BadInput, SrtmError
from srtm.log import Log, LogSettings
from srtm.version import __version__


def main(arguments: Sequence[str]) -> int:
    try:
        given = parse_flags(arguments)
    except BadInput as error:
        print(f"srtm nsqd: {error}", file=sys.stderr)
        sys.stderr.write(usage())
        return 2
    if given.help or given.version:
        sys.stdout.write(usage() if given.help else f"nsqd v1.3.0 (srtm {__version__})\n")
        return 0
    try:
        return _run(given)
    except SrtmError as error:
        print(f"srtm nsqd: {error}", file=sys.stderr)
        return 1


def _run(given: Given) -> int:
    file, strange = _read_file(given.config_file)
    config = broker_config(given.options, file, socket.gethostname())
    log = Log(config.log_name.strip() or config.name, settings=LogSettings(config.log_level, config.log_format))
    for key in strange:
        log.warning("a key that nsqd does not have is ignored", file=given.config_file, key=key)
    from broker.process import run  # after the flags, so that --help and a bad flag are answered at once

    with suppress(KeyboardInterrupt):  # before the service handles signals
        run(config)
    return 0


def _read_file(name: str) -> tuple[Options, list[str]]:
    """Raises BadInput."""
    if not name:
        return {}, []
    try:
        text = Path(name).read_text("utf-8")
    except OSError as error:
        raise BadInput("config", name, f"must be a file that can be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise BadInput("config", name, "must be UTF-8") from None
    return parse_file(name, text)
