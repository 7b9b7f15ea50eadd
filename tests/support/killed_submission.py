"""A program: carries an operation on a topic out over the store at URL, each time in a process that kills itself
(SIGKILL) one step further on the way from before the transaction to after the answer, until one comes through. Each
time it is another topic. Prints what a fresh process then finds, as one JSON document a step; at the last step it looks
at the topics of all earlier steps, too.

    python -m tests.support.killed_submission URL create|change|patch|delete

Its steps may be slow, as on a busy machine: the server waits for them, where it would end the session of a leader that
is stopped in a transaction.

It forks from a process that has no threads: a new interpreter for every step would take a minute, and so would a late
import in every one.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sqlite3  # noqa: F401 - imported late by SQLAlchemy
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial

import numpy.ma  # imported late by the distributor, as numpy.random
import numpy.random  # noqa: F401
import sqlalchemy.dialects.postgresql.psycopg
import sqlalchemy.dialects.sqlite.pysqlite  # noqa: F401 - imported late by SQLAlchemy
import trio
from sqlalchemy import Engine, Table, event

from distributor.config import DistributorConfig
from distributor.fitting.events import Scaler
from distributor.fitting.task import FittingOptions
from distributor.jobs.layout_environment import LayoutEnvironment
from distributor.jobs.layout_jobs import LayoutJobs
from distributor.jobs.scaling import NoScaler
from distributor.model.cluster import Topic
from distributor.model.leases import Amount
from distributor.registry.registry import Registry
from distributor.storage import database, store
from distributor.storage.store import Store
from distributor.sync.service import SyncService
from distributor.views import topic_view as views
from srtm.log import Log
from srtm.topics.spec import TopicSpec, parse_change
from srtm.units import to_micro
from tests.support.distributor_in_process import FakeBroker, spec

TABLES = (store.topics, store.shares, store.publishers, store.decisions, store.fittings)
BEFORE, AFTER = 0, 1  # days by the wall clock
CHANGE = {"add": [{"id": "new", "rate": 3.0}], "remove": ["p0", "p1"]}


class Steps:
    """Counts steps, and ends the process at the ``last`` one, telling ``channel`` where that was."""

    def __init__(self, last: int, channel: int) -> None:
        self._left = last
        self._channel = channel

    def reach(self, where: str) -> None:
        self._left -= 1
        if self._left == 0:
            os.write(self._channel, where.encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, opened: Store) -> None:
        """Every statement of ``opened``, its commits and its changes as a whole."""
        engine: Engine = opened._engine
        event.listen(engine, "before_cursor_execute", lambda *given: self.reach(f"before {_begin(given[2])}"))
        event.listen(engine, "after_cursor_execute", lambda *given: self.reach(f"after {_begin(given[2])}"))
        commit, apply = engine.dialect.do_commit, opened.apply

        def watched_commit(connection) -> None:
            self.reach("before the commit")
            commit(connection)
            self.reach("after the commit")

        async def watched_apply(changes) -> None:
            self.reach("before the transaction")
            await apply(changes)
            self.reach("after the transaction")

        engine.dialect.do_commit = watched_commit
        opened.apply = watched_apply


def _begin(statement: str) -> str:
    return " ".join(statement.split()[:3])


@dataclass(frozen=True)
class Cluster:
    store: Store
    registry: Registry
    syncing: SyncService
    layouts: LayoutJobs


async def opened_cluster(url: str, day: int) -> Cluster:
    """``day`` by the wall clock: what is to be fitted is stored with it."""
    opened = await Store.open(url)
    await opened.lead("http://leader")
    registry = await Registry.load(opened, DistributorConfig(store=url))
    around = LayoutEnvironment.of(registry, Scaler.NONE, NoScaler(), Log("test", lambda _line: None))
    for name in ("a", "b"):
        await FakeBroker(name, around.syncing, mcap=60_000.0).settle()
    layouts = LayoutJobs(around, FittingOptions(method="always"), wall_s=lambda: 86_400.0 * day)
    return Cluster(opened, registry, around.syncing, layouts)


def first(step: int) -> TopicSpec:
    return spec(f"cars{step}", count=20, rate=1.0)


def wanted(operation: str, step: int) -> TopicSpec | None:
    """None: not to be there."""
    match operation:
        case "create":
            return first(step)
        case "change":
            return spec(f"cars{step}", count=30, rate=2.0)
        case "patch":
            return parse_change(first(step), CHANGE)
    return None


async def carry_out(cluster: Cluster, operation: str, step: int) -> Topic | None:
    """As the API does."""
    registry, layouts, name = cluster.registry, cluster.layouts, f"cars{step}"
    before, fitted, topic = registry.topics.get(name), layouts.intended(None), wanted(operation, step)
    if topic is None:
        await registry.remove(name, purge=False)
        return None
    if operation == "patch":
        made = await registry.change_publishers(name, lambda there: parse_change(there, CHANGE), fitted)
    else:
        made = await registry.submit(topic, fitting=fitted)
    await layouts.submitted(made, before, None)
    return made


async def prepare(url: str, step: int, channel: int) -> None:
    cluster = await opened_cluster(url, BEFORE)
    await carry_out(cluster, "create", step)
    await cluster.store.aclose()
    os.write(channel, b"prepared")
    os._exit(0)


async def attempt(url: str, operation: str, step: int, channel: int) -> None:
    cluster = await opened_cluster(url, AFTER)
    steps = Steps(step, channel)
    steps.watch(cluster.store)
    made = await carry_out(cluster, operation, step)
    steps.reach("before the answer")
    if made is not None:
        views.topic_view(made, cluster.registry, cluster.syncing)
    os.write(channel, b"came through")
    os._exit(0)


async def examine(url: str, operation: str, step: int, earlier: range, channel: int) -> None:
    cluster = await opened_cluster(url, AFTER)
    state = await _state(cluster, operation, step)
    again = await _again(cluster, operation, step, applied=state == "applied")
    others = [await _state(cluster, operation, one) for one in earlier]
    found = {"found": state, "again": again, "others": others}
    os.write(channel, json.dumps(found).encode())
    await cluster.store.aclose()
    os._exit(0)


async def _state(cluster: Cluster, operation: str, step: int) -> str:
    """Of the topic of that step: "as before", "applied", or neither of them whole: "half"."""
    old = None if operation == "create" else first(step)
    if await _is_whole(cluster, step, wanted(operation, step), AFTER):
        return "applied"
    return "as before" if await _is_whole(cluster, step, old, BEFORE) else "half"


async def _is_whole(cluster: Cluster, step: int, spec: TopicSpec | None, day: int) -> bool:
    """Just so in memory and in all tables, and to be fitted as was stored on that day. None: not there (its shares may
    still be on their way back)."""
    name = f"cars{step}"
    found, record = cluster.registry.topics.get(name), cluster.registry.fittings.get(name)
    rows = {table.name: await _rows(cluster.store, table, name) for table in TABLES}
    if spec is None:
        gone = found is None or found.removed
        return gone and record is None and not rows["publishers"] and not rows["fittings"]
    if found is None or found.removed or record is None or not all(rows.values()):
        return False
    envelope = Amount(to_micro(spec.rate, "rate"), to_micro(spec.burst, "burst"))
    target = sum(found.leases.target.values(), start=Amount(0, 0))
    dealt = found.placement.state == "placed" and found.leases.envelope == target == envelope
    fitted = record.running and json.loads(record.outcome)["started_at"] == f"1970-01-{day + 1:02}T00:00:00Z"
    return found.spec == spec and dealt and fitted


async def _rows(opened: Store, table: Table, name: str) -> int:
    return len([row for row in await opened.rows(table) if row.get("topic", row.get("name")) == name])


async def _again(cluster: Cluster, operation: str, step: int, *, applied: bool) -> bool:
    """Whether it may be asked for once more, and is then as wanted, once; what is no state but a step (a patch, a
    removal) only where it was not applied."""
    if not applied or operation in ("create", "change"):
        await carry_out(cluster, operation, step)
        version = cluster.registry.version
        if operation in ("create", "change"):
            await carry_out(cluster, operation, step)
            if cluster.registry.version != version:
                return False
    return await _is_whole(cluster, step, wanted(operation, step), AFTER)


def in_a_process(work: Callable[[int], Coroutine[object, object, None]]) -> str:
    """What ``work`` writes to the channel that it is given, up to the end of its process."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        trio.run(work, writing)
    os.close(writing)
    with os.fdopen(reading) as channel:
        said = channel.read()
    os.waitpid(pid, 0)
    return said


def main(url: str, operation: str) -> None:
    database._SESSION = "-c lock_timeout=60000"
    for step in itertools.count(1):
        if operation != "create":
            in_a_process(partial(prepare, url, step))
        where = in_a_process(partial(attempt, url, operation, step))
        last = where == "came through"
        earlier = range(1, step if last else 1)
        found = json.loads(in_a_process(partial(examine, url, operation, step, earlier)))
        print(json.dumps({"where": where, **found}), flush=True)
        if last:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
