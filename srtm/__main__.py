"""``python -m srtm``: the ``srtm`` command."""

import sys

from srtm.cli import main

sys.exit(main())
