"""The file that exists while a cluster of ``srtm up`` is ready, for scripts and supervisors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from srtm.cluster.cluster_file import ClusterFile
from srtm.errors import BadInput


class ReadyFile:
    """The file at ``path``. Raises BadInput unless it can be one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        if path.is_dir() or not path.parent.is_dir():
            raise BadInput("ready_file", str(path), "must be a file in a directory that exists")

    @contextmanager
    def present(self, cluster: ClusterFile) -> Iterator[None]:
        """Keep the file, with ``cluster`` as JSON, while the block runs. Raises BadInput."""
        fresh = self._path.with_name(self._path.name + ".new")
        try:
            fresh.write_bytes(msgspec.json.format(msgspec.json.encode(cluster), indent=2) + b"\n")
            fresh.replace(self._path)
        except OSError as error:
            raise self._refused(error) from None
        try:
            yield
        finally:
            self.remove()

    def remove(self) -> None:
        """Remove the file, also one that an earlier run left. Raises BadInput."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise self._refused(error) from None

    def _refused(self, error: OSError) -> BadInput:
        return BadInput("ready_file", str(self._path), f"must be a file that can be written ({error.strerror})")
