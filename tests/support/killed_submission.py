"""A program: submits topics to the store at URL, each in a process that kills itself (SIGKILL) one step further on the
way from before the transaction to after the answer, until one comes through. Prints what a fresh process then finds, as
one JSON document a step.

    python -m tests.support.killed_submission URL

It forks from a process that has no threads: a new interpreter for every step would take a minute.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial

import trio
from sqlalchemy import Engine, event

from distributor import store, views
from distributor.config import DistributorConfig
from distributor.leases import Amount
from distributor.registry import Registry
from distributor.store import Store
from distributor.syncing import Syncing
from srtm.splitting import to_micro
from tests.support.distributor_in_process import FakeBroker, spec

TABLES = (store.topics, store.shares, store.publishers, store.decisions)


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


async def opened_cluster(url: str) -> tuple[Store, Registry, Syncing]:
    opened = await Store.open(url)
    await opened.lead("http://leader")
    registry = await Registry.load(opened, DistributorConfig(store=url))
    syncing = Syncing(registry)
    for name in ("a", "b"):
        await FakeBroker(name, syncing, mcap=60_000.0).settle()
    return opened, registry, syncing


def topic(step: int):
    return spec(f"cars{step}", count=20, rate=1.0)


async def submit(url: str, step: int, channel: int) -> None:
    opened, registry, syncing = await opened_cluster(url)
    steps = Steps(step, channel)
    steps.watch(opened)
    stored = await registry.submit(topic(step))
    steps.reach("before the answer")
    views.topic_view(stored, registry, syncing)
    os.write(channel, b"came through")
    os._exit(0)


async def examine(url: str, step: int, channel: int) -> None:
    opened, registry, _ = await opened_cluster(url)
    wanted, name = topic(step), f"cars{step}"
    rows = [
        len([row for row in await opened.rows(table) if row.get("topic", row.get("name")) == name]) for table in TABLES
    ]
    found = registry.topics.get(name)
    state = "half"
    if found is None and not any(rows):
        state = "absent"
    elif found is not None and _is_whole(found, wanted) and all(rows):
        state = "applied"
    first = await registry.submit(wanted)
    version = registry.version
    second = await registry.submit(wanted)
    others = all(_is_whole(registry.topic(f"cars{earlier}"), topic(earlier)) for earlier in range(1, step))
    again = second is first and registry.version == version and _is_whole(first, wanted)
    os.write(channel, json.dumps({"found": state, "again": again, "others": others}).encode())
    await opened.aclose()
    os._exit(0)


def _is_whole(found, wanted) -> bool:
    envelope = Amount(to_micro(wanted.rate, "rate"), to_micro(wanted.burst, "burst"))
    target = sum(found.leases.target.values(), start=Amount(0, 0))
    return found.spec == wanted and found.placement.state == "placed" and found.leases.envelope == target == envelope


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


def main(url: str) -> None:
    for step in itertools.count(1):
        where = in_a_process(partial(submit, url, step))
        found = json.loads(in_a_process(partial(examine, url, step)))
        print(json.dumps({"where": where, **found}), flush=True)
        if where == "came through":
            return


if __name__ == "__main__":
    main(sys.argv[1])
