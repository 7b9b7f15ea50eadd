"""A broker's conversation with distributors, played in this process: a recording engine, answers by a script."""

import msgspec
import trio
from trio.testing import wait_all_tasks_blocked

from broker.leases.contract_holder import ContractHolder
from broker.leases.lease_holder import LeaseHolder
from broker.runtime.acceptance import Acceptance
from broker.runtime.health import Health
from broker.sync.drain import Drain
from broker.sync.loop import LocalBroker, Synchronizer
from srtm.control import DeadNotice, DesiredTopic, Share, SyncAnswer, SyncRequest, Throttling
from srtm.errors import BadInput
from srtm.log import Log
from srtm.net.failover import Distributors
from tests.support.fake_engine import FakeEngine

TOPIC = DesiredTopic(
    topic="t", share=Share(version=3, rate=10.0, burst=2.0, full=True), publishers=["p"], channels=["c"]
)
DRAINING = "broker b1 is draining: ask the distributor (http://d1:4190) where to publish"


def producer(client_id, topic):
    """A connection that published to ``topic``."""
    numbers = ("state", "ready_count", "in_flight_count", "message_count", "finish_count", "requeue_count")
    texts = {"client_id": client_id, "hostname": "", "user_agent": "", "remote_address": ""}
    counts = [{"topic": topic, "count": 7}]
    more = {"connect_ts": 0, "sample_rate": 0, "aware": False, "pub_counts": counts}
    return {**texts, **dict.fromkeys(numbers, 0), **more}


class FakeDistributor:
    """Holds one desired state; holds answers back as the real one does. ``down``: what it fails with."""

    def __init__(self, base_url="http://d1:4190", version=0, topics=()):
        self.base_url = base_url
        self.version = version
        self.topics = list(topics)
        self.moves = []
        self.draining = False
        self.notices = []
        self.down = None
        self.refusal = None  # (status, body)
        self.requests = []  # (time, SyncRequest)
        self.targets = set()
        self.changed = trio.Event()
        self.holds_back = True
        self.takes_reports = False  # as differences
        self.differs = None  # the one topic that is told as a difference
        self.closed = False
        self.cluster = 0
        self.contracts = None  # the next answers have them
        self.brokers = None  # as the next answers tell them
        self.verdicts = {}  # for who asks

    async def aclose(self):
        self.closed = True

    def change(self, version, *topics):
        self.version, self.topics = version, list(topics)
        self.changed.set()
        self.changed = trio.Event()

    async def request(self, method, target, body=b"", *, timeout_s):
        if target.endswith("/dead"):
            if self.down is not None:
                raise self.down
            self.notices.append(msgspec.json.decode(body, type=DeadNotice))
            return 204, b""
        asked = msgspec.json.decode(body, type=SyncRequest)
        self.targets.add((method, target))
        self.requests.append((trio.current_time(), asked))
        assert timeout_s > asked.wait_s
        await trio.lowlevel.checkpoint()
        if self.down is not None:
            raise self.down
        if self.refusal is not None:
            return self.refusal
        if asked.have_version == self.version and self.holds_back:
            with trio.move_on_after(asked.wait_s):
                await self.changed.wait()
        moves, self.moves = self.moves, []
        reported = asked.number if self.takes_reports else 0
        answer = SyncAnswer(
            version=self.version,
            moves=moves,
            draining=self.draining,
            reported=reported,
            cluster=self.cluster,
            brokers=self.brokers,
            contracts=self.contracts,
            verdicts=self.verdicts if asked.wants_verdicts else None,
        )
        if asked.have_version == self.version:
            return 200, msgspec.json.encode(msgspec.structs.replace(answer, unchanged=True))
        if self.differs is not None and asked.have_version:
            answer = msgspec.structs.replace(answer, since=asked.have_version, topics=[self.differs])
            return 200, msgspec.json.encode(answer)
        return 200, msgspec.json.encode(msgspec.structs.replace(answer, topics=self.topics))


class Rig:
    def __init__(self, directory, *distributors):
        self.disowned = []
        self.directory = directory
        self.engine = FakeEngine()
        self.holder = LeaseHolder(self.engine)
        self.distributors = distributors
        self.lines = []
        about = SyncRequest(incarnation="1", srtm_version="0", tcp_address="h:1", http_address="h:2", mcap=5.0)
        log = Log("b1", self.lines.append)
        self.contracts = ContractHolder("b1", self.engine, log)
        self.drain = Drain("b1", self.engine, log)
        self.elsewhere = []  # distributors that it was not given, and connected to

        self.measurements = []  # as told last
        self.forgotten = 0
        known = Distributors(distributors, self.connect, log)
        self.sync = Synchronizer(
            LocalBroker(
                name="b1",
                about=about,
                directory=directory,
                engine=self.engine,
                holder=self.holder,
                contracts=self.contracts,
                drain=self.drain,
                throttling=lambda: Throttling(quota_cores=1.5),
                acceptance=Acceptance(self.engine, Health(self.engine)),
                log=log,
                note_disowned=lambda reason: self.disowned.append(reason),
            ),
            known,
            self,
        )

    def send_again(self):
        self.forgotten += 1

    def follow(self, requests):
        self.measurements = list(requests)

    def connect(self, url):
        if not url.startswith("http://"):
            raise BadInput("url", url, "must be http://HOST:PORT")
        self.elsewhere.append(FakeDistributor(url, version=1, topics=[TOPIC]))
        return self.elsewhere[-1]

    @property
    def requests(self):
        return self.distributors[0].requests


async def settle():
    """Until nothing moves, the thread that writes the state included."""
    with trio.fail_after(5):
        while True:
            await wait_all_tasks_blocked()
            if trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0:
                await wait_all_tasks_blocked()
                return
            await trio.lowlevel.checkpoint()
