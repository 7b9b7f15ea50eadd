"""The loop to the distributor: reports and acknowledgements up, the desired state down (level-triggered; design section
11), both as differences where both sides know from what.

Every second, held open by the distributor so that a change comes at once; at once too when something here cannot wait
(a stranger, a starved topic, an acknowledgement). Whatever goes wrong, the shares in force stay as they are (a timed
lease ends by itself, the engine sees to that) and the next distributor is asked: the leader, where a standby says which
one that is. What must outlive the process is on disk before it is in force.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from broker import snapshot
from broker.leases.lease_holder import LeaseHolder, held_over
from broker.runtime.data_directory import replace_file
from broker.sync.drain import Drain
from broker.sync.reports import Reports
from broker.sync.unassigned_publishers import Strangers
from srtm.concurrency.backoff import Backoff
from srtm.concurrency.outage import Outage
from srtm.control import (
    DeadNotice,
    DesiredTopic,
    MeasurementRequest,
    Stranger,
    SyncAnswer,
    SyncRequest,
    Throttling,
)
from srtm.errors import NotLeader, PeerError, SrtmError, Unavailable
from srtm.log import Log
from srtm.net.decode_errors import UNREADABLE
from srtm.net.failover import LONGEST_PAUSE_S, Disowned, Distributor, Distributors, refused
from srtm.net.json_file import read_json
from srtm.net.problem_json import refusal

if TYPE_CHECKING:
    from srtm._native import Engine

PERIOD_S = 1.0
_ANSWER_GRACE_S = 3.0  # beyond wait_s: a distributor may be busy planning, and nothing here depends on a quick answer
_ANSWER_GRACE_PART = 0.25  # of the shortest lease: what does depend on one must have time to ask another distributor
_FEW_TOPICS = 20  # are looked at one by one
# A broker that drains refuses publishers only after this time: those that can be told to move are gone by then.
_MOVES_FIRST_S = 2.0
STATE_FILE = "srtm.state.json"


class SyncState(msgspec.Struct, frozen=True):
    """What a later incarnation must know: that this member has synced once, and which topics are limited
    (``held_over``: shares and publishers are news then)."""

    has_synced: bool = False
    version: int = 0  # of the desired state with which this was written
    topics: list[DesiredTopic] = []


def load_state(directory: Path) -> SyncState:
    """Raises BadInput for a file that is not ours: to start without it would let limited topics flow unlimited."""
    return read_json(directory / STATE_FILE, SyncState, "data_path", "this broker's last state") or SyncState()


def save_state(directory: Path, state: SyncState) -> None:
    replace_file(directory / STATE_FILE, msgspec.json.encode(state))


class Synchronizer:
    """``about``: what of every request stays the same. ``measure`` is told after every answer what is to be measured,
    ``forgotten`` that whoever leads now lacks what was told before. ``run`` it once; the other methods may be called
    any time."""

    def __init__(
        self,
        name: str,
        about: SyncRequest,
        engine: Engine,
        holder: LeaseHolder,
        distributors: Distributors,
        directory: Path,
        log: Log,
        drain: Drain,
        measure: Callable[[Sequence[MeasurementRequest]], None],
        throttling: Callable[[], Throttling],
        forgotten: Callable[[], None],
    ) -> None:
        self._name = name
        self._target = f"/v1/brokers/{name}/sync"
        self._about = about
        self._engine = engine
        self._holder = holder
        self._distributors = distributors
        self._measure = measure
        self._measuring: list[MeasurementRequest] = []  # as told last
        self._throttling = throttling
        self._forgotten = forgotten
        self._directory = directory
        self._log = log
        self._drain = drain
        self._running = trio.CancelScope()
        self._ended = trio.Event()
        self.is_settled = False  # the last answer had no news: what is in force here is acknowledged
        self._reports = Reports()
        self._reports_due_s = 0.0  # trio time
        self._reports_wanted = True  # before they are due
        self._touched: list[str] = []  # topics of which something else was put in force just now
        self._saved: dict[str, DesiredTopic] = {}  # topics that are in the state file
        self._asked_ns = 0  # CLOCK_BOOTTIME: when the latest sync was sent
        self._strangers = Strangers()
        self._urgent = True
        self._waiting = trio.CancelScope()  # around whatever may be cut short by `wake`
        self._outage = Outage()
        self.last_sync_s: float | None = None  # trio time of the last answer

    def wake(self) -> None:
        """Sync at once, with reports."""
        self._urgent = self._reports_wanted = True
        self._waiting.cancel()

    def note_stranger(self, topic: str, publisher_id: str) -> None:
        if self._strangers.note(topic, publisher_id):
            self.wake()

    async def run(self) -> None:
        """Until cancelled; then the connections are closed."""
        try:
            with self._running:
                await self._run()
        finally:
            await self._distributors.aclose()
            self._ended.set()

    async def leave(self) -> None:
        """Stop syncing and tell the distributor that this incarnation ends, so that nobody waits for it."""
        self._running.cancel()
        await self._ended.wait()
        trouble: SrtmError | None = None
        for distributor in self._distributors:
            try:
                await self._say_that_it_ends(distributor)
            except SrtmError as error:
                trouble = trouble or error
            else:
                return
        self._log.warning("the distributor was not told that this broker ends", reason=trouble)

    async def _say_that_it_ends(self, distributor: Distributor) -> None:
        notice = msgspec.json.encode(DeadNotice(incarnation=self._about.incarnation, reason="drained"))
        target = f"/v1/brokers/{self._name}/dead"
        try:
            status, body = await distributor.request("POST", target, notice, timeout_s=_ANSWER_GRACE_S)
        finally:
            await distributor.aclose()
        if status >= 300:
            raise refusal(distributor.base_url, status, body)

    async def _run(self) -> None:
        backoff = Backoff(first_s=0.1, longest_s=LONGEST_PAUSE_S)
        failures = 0
        while True:
            try:
                await self._sync()
            except (Unavailable, PeerError) as error:
                self._report_trouble(error)
                if isinstance(error, Disowned):
                    self._give_up()
                await self._distributors.choose_next(error.leader if isinstance(error, NotLeader) else None)
                self._urgent = self._reports_wanted = True
                failures += 1
                if failures % len(self._distributors) == 0:  # all of them were tried
                    await trio.sleep(backoff.next_s())
            else:
                failures = 0
                backoff.reset()
                self._report_trouble(None)

    async def _sync(self) -> None:
        urgent, self._urgent = self._urgent, False  # raised again meanwhile: another sync follows
        strangers = self._strangers.untold()
        if urgent:
            answer: SyncAnswer | None = await self._ask(strangers, can_wait=False)
        else:
            answer = await self._ask_and_wait(strangers)
        if answer is None:
            return
        self._strangers.note_told(strangers)
        await self._take(answer)

    async def _ask_and_wait(self, strangers: list[Stranger]) -> SyncAnswer | None:
        """None: cut short by ``wake``. An answer lost so costs nothing: the next one names the whole state again."""
        answer = None
        with trio.CancelScope() as self._waiting:
            answer = await self._ask(strangers, can_wait=True)
            has_news = not answer.unchanged or answer.moves or answer.measurements != self._measuring
            if not (has_news or self._urgent):
                await trio.sleep_until(self._reports_due_s)  # a distributor that does not hold answers back
        return answer

    async def _ask(self, strangers: list[Stranger], *, can_wait: bool) -> SyncAnswer:
        now_s = trio.current_time()
        whole_look = self._is_to_look_at_all(now_s)
        if whole_look:
            self._reports_wanted, self._reports_due_s = False, now_s + PERIOD_S
        wait_s = self._reports_due_s - now_s if can_wait else 0.0
        request = self._request(strangers, wait_s, whole_look=whole_look)
        distributor = self._distributors.first
        status, body = await distributor.request(
            "POST", self._target, msgspec.json.encode(request), timeout_s=wait_s + self._grace_s()
        )
        answer = read_answer(distributor.base_url, status, body)
        if not self._reports.answered(answer.reported):
            self._urgent = self._reports_wanted = True
            self._strangers.tell_again()
            self._forgotten()
        return answer

    def _is_to_look_at_all(self, now_s: float) -> bool:
        """A look at all topics costs by their number: once a period, where somebody wants it, and while this drains,
        which ends by what is seen."""
        wanted = self._reports_wanted or len(self._touched) > _FEW_TOPICS or not self._reports.are_known
        return wanted or self._drain.has_begun or now_s >= self._reports_due_s

    def _request(self, strangers: list[Stranger], wait_s: float, *, whole_look: bool) -> SyncRequest:
        applied = self._holder.applied
        self._asked_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        request = msgspec.structs.replace(
            self._about,
            # Before the reports are taken: what they say of waiting messages is then the last word.
            accepting=not self._drain.refuses,
            drain=self._drain.latest if self._drain.has_begun else None,
            have_version=self._holder.version,
            remembered=self._holder.remembered,
            applied=applied,
            held=self._holder.held,
            strangers=strangers,
            throttling=self._throttling(),
            wait_s=wait_s,
            partial=not whole_look,
            takes_differences=True,
        )
        if whole_look:
            self._reports.note(snapshot.take_raw_topics(self._engine), applied)
        else:
            for topic in self._touched:
                self._reports.note_of(snapshot.take_raw_topics(self._engine, topic), applied)
        self._touched = []
        return self._reports.into(request)

    def _grace_s(self) -> float:
        lease_s = self._holder.shortest_lease_s
        return _ANSWER_GRACE_S if lease_s is None else min(_ANSWER_GRACE_S, lease_s * _ANSWER_GRACE_PART)

    async def _take(self, answer: SyncAnswer) -> None:
        self._holder.check(answer)
        self.is_settled = answer.unchanged
        if answer.draining:
            where = f"ask the distributor ({self._distributors.first.base_url}) where to publish"
            self._drain.begin(f"broker {self._name} is draining: {where}", refuse_after_s=_MOVES_FIRST_S)
        news = not answer.unchanged or self.last_sync_s is None  # the first answer is news even if there is no topic
        if news:
            await self._remember(answer)
        self._holder.apply(answer, self._asked_ns)
        self._strangers.follow(answer)
        if self.last_sync_s is None and not self._drain.refuses:
            self._engine.set_accepting(True, "")
        for move in answer.moves:
            self._engine.move_publisher(move.topic, move.publisher_id, move.address, move.version)
        self._measuring = answer.measurements
        self._measure(answer.measurements)
        self.last_sync_s = trio.current_time()
        if news:
            self._log.info("desired state in force", version=answer.version, topics=len(answer.topics))
            self._touched = [topic.topic for topic in answer.topics]
            # The next sync follows at once, for a share may be waiting elsewhere for its acknowledgement; one that has
            # to end soon asks not to be kept waiting for what comes after that.
            self._urgent |= self._drain.has_begun

    def _give_up(self) -> None:
        """Its tokens may be in force elsewhere. Publishers are refused, so that they ask where they belong."""
        self._holder.give_up()
        self._engine.set_accepting(False, f"the distributor knows another broker {self._name}")
        self._measure([])
        self.last_sync_s = None

    async def _remember(self, answer: SyncAnswer) -> None:
        """Raises Unavailable where the disk refuses: then the answer is not put in force, and asked for again. Most
        changes are of shares, and leave nothing to write."""
        topics = {name: topic for name, topic in self._saved.items() if answer.since and name not in answer.removed}
        topics.update((topic.topic, held_over(topic)) for topic in answer.topics)
        if self._holder.version and topics == self._saved:
            return
        try:
            state = SyncState(has_synced=True, version=answer.version, topics=list(topics.values()))
            await trio.to_thread.run_sync(save_state, self._directory, state)
        except OSError as error:
            raise Unavailable(f"the desired state cannot be written to {self._directory}: {error}") from None
        self._saved = topics

    def _report_trouble(self, error: SrtmError | None) -> None:
        """Once a reason, not once a second."""
        if error is not None and self._outage.is_news(str(error)):
            self._log.warning("no sync; shares stay as they are", reason=error)
        if error is None and self._outage.ends():
            self._log.info("in sync again", distributor=self._distributors.first.base_url)


def read_answer(url: str, status: int, body: bytes) -> SyncAnswer:
    """Raises NotLeader (a standby), Unavailable (out of order for now), Disowned, PeerError (it refuses us, or makes no
    sense)."""
    if status != 200:
        raise refused(url, "sync", status, body)
    try:
        return msgspec.json.decode(body, type=SyncAnswer)
    except UNREADABLE as error:
        raise PeerError(f"{url}: sync answer: {error}") from None
