"""The line under a figure in a document: when, from which commit and on what machine it was measured."""

from __future__ import annotations

from datetime import UTC, datetime

from bench.host import Host
from bench.results import source_commit


def provenance(started: float) -> str:
    """``started``: s since 1970."""
    host, day = Host.here(), datetime.fromtimestamp(started, UTC).date()
    return f"Measured {day} at commit {source_commit() or 'unknown'} on {host.cores} cores, Linux {host.kernel}."
