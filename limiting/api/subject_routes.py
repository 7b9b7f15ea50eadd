"""Subjects (the heaviest, one, bans), usage by namespace and policy, metrics, and whether the service runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nlargest
from typing import Annotated, Any

from fastapi import FastAPI, Query, Response
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from limiting.api.bodies import verdict_json
from limiting.api.parts import Parts
from limiting.contract_store import PORTION
from limiting.database import KEPT_CHANGES
from limiting.watching import Second
from srtm.concurrency.portions import in_portions
from srtm.errors import NotFound, SrtmError
from srtm.limiting.limiter import PolicyCounts
from srtm.version import __version__
from srtm.web.auditing import note_change
from srtm.web.bodies import json_answer
from srtm.web.exposition import family_text, left_out, service_metrics

Counted = tuple[tuple[str, str], Sequence[PolicyCounts]]  # key of a contract, and its policies
_Most = Annotated[int, Query(ge=1, le=1_000)]


def add_subject_routes(app: FastAPI, parts: Parts) -> None:
    """Add the routes of operators, and those of monitoring."""
    decisions = parts.decisions

    @app.get("/limit/v1/subjects/{namespace}")
    async def heaviest(namespace: str, most: _Most = 20) -> Response:
        """The most checked subjects by a sample; the watched, with their last minute; those whose bans hold."""
        if not parts.contracts.knows(namespace):
            raise NotFound("namespace", namespace, "a contract must have it")
        found = {
            "namespace": namespace,
            "in_memory": decisions.subjects().get(namespace, 0),
            "heaviest": [each._asdict() for each in decisions.heaviest(namespace, most)],
            "watched": [_watched(*each) for each in decisions.watched.of(namespace, decisions.second)],
            "banned": [
                {**verdict_json(subject, verdict), "banned_at": at_s}
                for subject, at_s, verdict in await decisions.banned(namespace, most)
            ],
        }
        return json_answer(found)

    @app.put("/limit/v1/watched/{namespace}/{subject:path}", status_code=204)
    async def watch_subject(namespace: str, subject: str) -> Response:
        """Count what is asked of a subject, a minute long, from now on."""
        await decisions.watch(namespace, subject)
        return Response(status_code=204)

    @app.delete("/limit/v1/watched/{namespace}/{subject:path}", status_code=204)
    async def unwatch_subject(namespace: str, subject: str) -> Response:
        """Watch a subject no more."""
        decisions.unwatch(namespace, subject)
        return Response(status_code=204)

    @app.get("/limit/v1/subjects/{namespace}/{subject:path}")
    async def show_subject(namespace: str, subject: str) -> Response:
        """What a subject has left. Nothing is taken."""
        return json_answer(verdict_json(subject, await decisions.peek(namespace, subject, 1)))

    @app.put("/limit/v1/subjects/{namespace}/{subject:path}")
    async def ban_subject(namespace: str, subject: str) -> Response:
        """Ban a subject: windows are full, and buckets owe their `max_debt`. Time pays it, or `DELETE`."""
        before = await _left(parts, namespace, subject)
        await decisions.ban(namespace, subject)
        note_change(f"subject {namespace} {subject}", before, await _left(parts, namespace, subject))
        return json_answer(verdict_json(subject, await decisions.peek(namespace, subject, 1)))

    @app.delete("/limit/v1/subjects/{namespace}/{subject:path}", status_code=204)
    async def reset_subject(namespace: str, subject: str) -> Response:
        """Make a subject a new one, with nothing used."""
        before = await _left(parts, namespace, subject)
        await decisions.reset(namespace, subject)
        note_change(f"subject {namespace} {subject}", before, await _left(parts, namespace, subject))
        return Response(status_code=204)

    @app.get("/limit/v1/nodes")
    async def nodes() -> Response:
        """The other nodes, and whether this one reaches them."""
        return json_answer([state._asdict() for state in decisions.states()])

    @app.delete("/limit/v1/nodes/{name}", status_code=204)
    async def remove_node(name: str) -> Response:
        """Go on without a node that has stopped: `exact` waits for it otherwise. It comes back when it connects."""
        before = _node(parts, name)
        decisions.remove_node(name)
        note_change(f"node {name}", before, _node(parts, name))
        return Response(status_code=204)

    @app.get("/limit/v1/audit")
    async def audit(most: Annotated[int, Query(ge=1, le=KEPT_CHANGES)] = 100, subject: str | None = None) -> Response:
        """Who changed what, from where, and what it was before and after; newest first. At most `most` of the latest
        10,000 changes; of one `subject`, such as `contract api *`, `subject api NAME` or `node NAME`."""
        return json_answer(await parts.audit.latest(most, subject))

    @app.get("/limit/v1/usage")
    async def usage() -> Response:
        """What was allowed and refused, by namespace."""
        return json_answer(_usage(parts, await in_portions(counts_of(parts), PORTION)))

    @app.get("/healthz")
    async def healthz() -> Response:
        """That the service runs, and its version."""
        return json_answer({"status": "ok", "srtm_version": __version__})

    @app.get("/metrics")
    async def metrics() -> Response:
        """For Prometheus."""
        return Response(
            metrics_text(parts, await in_portions(counts_of(parts), PORTION)), media_type=CONTENT_TYPE_LATEST
        )


async def _left(parts: Parts, namespace: str, subject: str) -> dict[str, Any] | None:
    """What the audit log says of a subject: what each policy has left. None: that cannot be told now."""
    try:
        verdict = await parts.decisions.peek(namespace, subject, 1)
    except SrtmError:
        return None
    return {said["name"]: said["remaining"] for said in verdict_json(subject, verdict)["policies"]}


def _node(parts: Parts, name: str) -> dict[str, Any] | None:
    return next((state._asdict() for state in parts.decisions.states() if state.name == name), None)


def _watched(subject: str, seconds: list[Second]) -> dict[str, Any]:
    """Sums of the last minute, and each of its seconds, the oldest first."""
    columns = zip(("allowed", "refused", "cost"), zip(*seconds, strict=True), strict=True)
    each = {name: list(values) for name, values in columns}
    return {"subject": subject, **{name: sum(values) for name, values in each.items()}, "seconds": each}


def counts_of(parts: Parts) -> Iterator[Counted]:
    """What was asked of each contract. There may be very many: others may have their turns in between."""
    for each in parts.contracts.present(parts.contracts.all()):
        yield each.contract.key, parts.decisions.counts(each.contract)


def _usage(parts: Parts, counted: Sequence[Counted]) -> list[dict[str, Any]]:
    subjects = parts.decisions.subjects()
    found: dict[str, dict[str, Any]] = {}
    for (name, _), counts in counted:
        row = found.setdefault(name, {"namespace": name, "subjects": subjects.get(name, 0), "allowed": 0, "refused": 0})
        # Each check counts at every policy of its contract. Which of them refuse one check together is not kept.
        row["allowed"] += counts[0].allowed
        row["refused"] += max(count.refused for count in counts)
    return list(found.values())


def metrics_text(parts: Parts, counted: Sequence[Counted]) -> bytes:
    """Everything that Prometheus is shown."""
    return b"".join(map(family_text, (*service_metrics("limit"), *_counts(parts, counted))))


def _checks(counted: Counted) -> int:
    """How often a contract was checked: each check counts at every policy."""
    first = counted[1][0]
    return first.allowed + max(count.refused for count in counted[1])


def _counts(parts: Parts, counted: Sequence[Counted]) -> Iterator[Metric]:
    """A subject is never a label. Of at most ``metrics_contracts`` contracts there are series: those most checked."""
    labels = ["namespace", "contract", "policy"]
    families = [
        CounterMetricFamily("srtm_limit_allowed", "Checks that the contract allowed.", labels=labels),
        CounterMetricFamily("srtm_limit_refused", "Checks that this policy refused.", labels=labels),
        CounterMetricFamily("srtm_limit_cost", "Tokens of allowed checks.", labels=labels),
    ]
    shown = nlargest(parts.config.metrics_contracts, counted, key=_checks)
    for key, counts in shown:
        for count in counts:
            for family, value in zip(families, count[1:], strict=True):
                family.add_metric([*key, count.name], value)
    yield left_out({"contract": len(counted) - len(shown)})
    yield from families
    subjects = GaugeMetricFamily("srtm_limit_subjects", "Subjects in memory.", labels=["namespace"])
    for namespace, known in parts.decisions.subjects().items():
        subjects.add_metric([namespace], known)
    yield subjects
    yield GaugeMetricFamily("srtm_limit_slot_bytes", "Bytes of slots.", value=parts.limiter.bytes)
