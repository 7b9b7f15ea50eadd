"""``python -m broker`` and ``srtm broker``: flags in, exit status out."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from broker.options import parse_arguments, parse_config
from srtm.errors import SrtmError


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 stopped by SIGTERM, 1 failed, 2 bad input, 130 stopped by Ctrl-C. A failure is one
    line on standard error."""
    try:
        config = parse_config(parse_arguments(sys.argv[1:] if arguments is None else arguments))
        from broker.process import run  # after the flags, so that --help and a bad flag are answered at once

        return run(config)
    except KeyboardInterrupt:  # before the service handles signals
        return 130
    except SrtmError as error:
        print(f"srtm broker: {error}", file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
