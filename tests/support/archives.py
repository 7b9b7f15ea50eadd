"""Archives that tests bring along."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path


def unpack(archive: tarfile.TarFile, directory: Path, members: Iterable[tarfile.TarInfo] | None = None) -> None:
    """All of it, or ``members``, into ``directory``. Python 3.11 has no filter before 3.11.4."""
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(directory, members)
