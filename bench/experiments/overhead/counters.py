"""What a distributor has counted since its start of shares that changed and histories that it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

KINDS = ("change", "moving", "steady")  # of histories


@dataclass(frozen=True)
class Counts:
    """``histories``: {kind: how many}, ``bins``: {kind: bins in them}."""

    changes: float  # of shares, on the adaptor's proposals
    histories: Mapping[str, float]
    bins: Mapping[str, float]

    def since(self, before: Counts, seconds: float) -> Counts:
        """A second."""
        return Counts(
            changes=(self.changes - before.changes) / seconds,
            histories={kind: (self.histories[kind] - before.histories[kind]) / seconds for kind in KINDS},
            bins={kind: (self.bins[kind] - before.bins[kind]) / seconds for kind in KINDS},
        )


def counts_of(exposition: str) -> Counts:
    """From the text of its ``/metrics``."""
    changes = 0.0
    by_kind = {name: dict.fromkeys(KINDS, 0.0) for name in ("srtm_histories_taken_total", "srtm_history_bins_total")}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.name == "srtm_share_changes_total":
                changes += sample.value
            elif sample.name in by_kind:
                by_kind[sample.name][sample.labels["kind"]] = sample.value
    return Counts(changes, *by_kind.values())
