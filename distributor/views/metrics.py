"""Prometheus metrics of the distributor: the state at that moment, and counters since this process leads.

At most ``metrics_topics`` topics have series of their own: those whose promise is broken, then those of the largest
rates. A topic or broker that is removed has none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from heapq import nlargest
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from distributor.fitting.events import Outcome
from distributor.model.cluster import Topic
from distributor.model.leases import MICRO
from distributor.registry.registry import Registry
from distributor.sync.service import SyncService
from distributor.verdict.kept import Verdict
from distributor.views.topic_view import fill_ratio
from srtm.web.exposition import family_text, left_out, service_metrics

_KEPT: dict[Verdict, float] = {"kept": 1.0, "broken": 0.0, "unknown": math.nan}
_PORTION = 20  # topics: some ms


def exposition(registry: Registry, syncing: SyncService) -> Iterator[bytes]:
    """The text in portions, empty ones too: there may be ten thousand topics, and others wait meanwhile."""
    state = _State(registry, syncing)
    if registry.leads:  # only the leader knows
        yield from state.find_verdicts()
    yield from map(family_text, state.families())


class _State:
    """The state while it is scraped."""

    def __init__(self, registry: Registry, syncing: SyncService) -> None:
        self._registry = registry
        self._syncing = syncing
        self._verdicts: dict[str, Verdict] = {}
        self._topics: dict[str, Topic] = {}  # those that have series of their own

    def find_verdicts(self) -> Iterator[bytes]:
        """Judge all promises. Yields no text, but a place for other tasks' turn after each portion of topics."""
        for number, topic in enumerate(self._registry.managed()):
            self._verdicts[topic.name] = self._syncing.sessions.promise(topic).verdict
            if number % _PORTION == 0:
                yield b""

    def _find_topics(self) -> dict[str, Topic]:
        rank = nlargest(
            self._registry.config.metrics_topics,
            self._registry.managed(),
            key=lambda topic: (self._verdicts.get(topic.name) == "broken", topic.spec.rate),
        )
        return {topic.name: topic for topic in rank}

    def families(self) -> Iterator[Metric]:
        """All that there is to show."""
        self._topics = self._find_topics()
        yield from service_metrics("distributor")
        leads = float(self._registry.leads)
        yield GaugeMetricFamily("srtm_distributor_leads", "1 if this one leads, 0 if it stands by.", value=leads)
        yield from self._brokers()
        yield from self._histories()
        yield left_out({"topic": sum(1 for _ in self._registry.managed()) - len(self._topics)})
        yield from self._topic_sizes()
        yield from self._promises()
        yield from self._shares()
        yield from self._layouts()
        yield from self._penalties()

    def _penalties(self) -> Iterator[GaugeMetricFamily]:
        name, labels = "srtm_topic_drl_penalty", ["topic"]
        what = "Access delay of the shares less that of one bucket, over the last window recorded"
        mean = GaugeMetricFamily(f"{name}_seconds", f"{what}: sum, per message.", labels=labels)
        p99 = GaugeMetricFamily(f"{name}_p99_seconds", f"{what}: difference of the p99.", labels=labels)
        at = GaugeMetricFamily(f"{name}_timestamp_seconds", "When that was worked out, s since 1970.", labels=labels)
        gauges = {topic: self._syncing.penalties[topic] for topic in self._topics if topic in self._syncing.penalties}
        for topic, gauged in gauges.items():
            mean.add_metric([topic], gauged.penalty.mean_ms / 1e3)
            p99.add_metric([topic], gauged.penalty.p99_ms / 1e3)
            at.add_metric([topic], gauged.wall_ns / 1e9)
        yield from (mean, p99, at)

    def _brokers(self) -> Iterator[Metric]:
        alive = GaugeMetricFamily("srtm_broker_alive", "1 if heard from lately.", labels=["broker"])
        mcap = GaugeMetricFamily("srtm_broker_mcap", "Stated capacity, msg/s; 0: not stated.", labels=["broker"])
        for name, broker in self._registry.brokers.items():
            if self._registry.leads:  # only the leader knows
                alive.add_metric([name], float(self._registry.is_alive(name)))
            mcap.add_metric([name], broker.mcap)
        yield from (alive, mcap)
        nonsense = CounterMetricFamily(
            "srtm_reports_ignored", "Reports of topics that made no sense.", labels=["broker"]
        )
        for name, session in self._syncing.sessions.by_broker.items():
            if session.reports is not None and name in self._registry.brokers:
                nonsense.add_metric([name], session.ignored_reports)
        yield nonsense

    def _histories(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        histories = self._syncing.histories
        what = "change: its rate has; steady: it stays as it is; moving: any other"
        taken = CounterMetricFamily("srtm_histories_taken", f"Histories of topics ({what}).", labels=["kind"])
        for kind, count in histories.taken.items():
            taken.add_metric([kind], count)
        bins = CounterMetricFamily("srtm_history_bins", "Bins in them.", labels=["kind"])
        for kind, count in histories.bins.items():
            bins.add_metric([kind], count)
        ignored = CounterMetricFamily(
            "srtm_histories_ignored", "Reports of histories that made no sense.", labels=["broker"]
        )
        for name, count in histories.ignored.items():
            if name in self._registry.brokers:
                ignored.add_metric([name], count)
        what = "Histories that were taken, and that an adaptor could make nothing of (other bins than its own)."
        unusable = CounterMetricFamily("srtm_adaptor_histories_ignored", what, value=histories.ignored_by_adaptors)
        yield from (taken, bins, ignored, unusable)

    def _topic_sizes(self) -> Iterator[GaugeMetricFamily]:
        count = GaugeMetricFamily("srtm_topic_publishers", "Publishers that the topic names.", labels=["topic"])
        missing = GaugeMetricFamily("srtm_topic_missing_rate", "msg/s for which no broker has room.", labels=["topic"])
        astray = GaugeMetricFamily(
            "srtm_topic_astray_rate", "msg/s of publishers that belong to other brokers.", labels=["topic", "broker"]
        )
        for topic in self._topics.values():
            count.add_metric([topic.name], len(topic.spec.publishers))
            missing.add_metric([topic.name], topic.placement.missing)
            for name, homes in topic.misplaced.items():
                astray.add_metric([topic.name, name], sum(homes.values()))
        yield from (count, missing, astray)

    def _promises(self) -> Iterator[GaugeMetricFamily]:
        what = "1: the promise is kept, 0: it is broken, NaN: not known."
        kept = GaugeMetricFamily("srtm_topic_promise_kept", what, labels=["topic"])
        slo = GaugeMetricFamily("srtm_topic_slo_seconds", "The latency that the topic promises.", labels=["topic"])
        what = "The part of its messages that is to have at most that latency: 0.99 for a p99."
        ratio = GaugeMetricFamily("srtm_topic_slo_ratio", what, labels=["topic"])
        for topic in self._topics.values():
            slo.add_metric([topic.name], topic.spec.slo.latency_ms / 1e3)
            ratio.add_metric([topic.name], topic.spec.slo.percentile / 100)
            if topic.name in self._verdicts:
                kept.add_metric([topic.name], _KEPT[self._verdicts[topic.name]])
        yield from (kept, slo, ratio)
        verdicts = GaugeMetricFamily(
            "srtm_topics", "Topics, all of them, by the word on their promise.", labels=["verdict"]
        )
        counts = Counter(self._verdicts.values())
        for verdict in get_args(Verdict) if self._registry.leads else ():
            verdicts.add_metric([verdict], counts[verdict])
        yield verdicts

    def _layouts(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        layouts = self._syncing.layouts
        moves = CounterMetricFamily("srtm_layout_moves", "Publishers that got another broker for a promise.")
        moves.add_metric([], layouts.moves)
        ended = CounterMetricFamily("srtm_layout_searches", "Searches for a layout that ended.", labels=["outcome"])
        for outcome in Outcome:
            ended.add_metric([outcome.value], layouts.searches.get(outcome.value, 0))
        pinned = GaugeMetricFamily(
            "srtm_topic_pinned_publishers", "Publishers that do not move when told.", labels=["topic"]
        )
        for topic in self._topics.values():
            pinned.add_metric([topic.name], len(self._registry.pins.of(topic.name)))
        yield from (moves, ended, pinned)

    def _shares(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        labels = ["topic", "broker"]
        rate = GaugeMetricFamily("srtm_share_rate", "Token rate issued, or under gdrl reported, msg/s.", labels=labels)
        burst = GaugeMetricFamily("srtm_share_burst", "Burst issued, or under gdrl reported, messages.", labels=labels)
        settled = GaugeMetricFamily("srtm_share_in_force", "1 if the broker has acknowledged it.", labels=labels)
        backlog = GaugeMetricFamily("srtm_share_backlog", "Messages waiting for tokens, as reported.", labels=labels)
        demand = GaugeMetricFamily("srtm_share_demand", "msg/s that came in the last second told.", labels=labels)
        filled = GaugeMetricFamily(
            "srtm_share_fill_ratio", "Token rate in force / demand, where there is demand.", labels=labels
        )
        changes = CounterMetricFamily(
            "srtm_share_changes", "Proposals of the adaptor that were taken.", labels=["topic"]
        )
        for topic in self._topics.values():
            changes.add_metric([topic.name], self._registry.share_change_counts.get(topic.name, 0))
            wanted = self._syncing.histories.arrival_rates(topic.name)
            for name, held in topic.leases.holdings.items():
                if name in wanted:
                    demand.add_metric([topic.name, name], wanted[name])
                report = self._syncing.sessions.report(name, topic.name)
                exchanged = report if topic.leases.pool else None  # not the share that was dealt
                rate.add_metric([topic.name, name], exchanged.rate if exchanged else held.share.rate / MICRO)
                burst.add_metric([topic.name, name], exchanged.burst if exchanged else held.share.burst / MICRO)
                settled.add_metric([topic.name, name], float(held.is_acknowledged))
                backlog.add_metric([topic.name, name], report.backlog if report else 0)
                ratio = fill_ratio(held.share.rate / MICRO, report, wanted.get(name))
                if ratio is not None:
                    filled.add_metric([topic.name, name], ratio)
        yield from (rate, burst, settled, backlog, demand, filled, changes)
