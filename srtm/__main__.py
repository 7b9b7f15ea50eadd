"""``python -m srtm`` runs the ``srtm`` command."""

import sys

from srtm.cli import main

sys.exit(main())
