"""Registration with nsqlookupd, against a scripted nsqlookupd on memory streams."""

import itertools
import json

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from broker import snapshot
from broker.nsqd.nsqlookupd import (
    MAX_ANSWER_BYTES,
    PING_PERIOD_S,
    AnswerReader,
    Identity,
    LookupClient,
    Nsqlookupds,
    Registration,
    encode_changes,
    fetch_channels,
    known_channels,
    registrations,
)
from srtm.errors import BadInput, PeerError
from srtm.log import Log
from srtm.net.http_client import HttpClient
from srtm.net.http_server import json_response
from tests.support.fake_engine import FakeEngine
from tests.support.http_server import HttpServer

IDENTITY = Identity(broadcast_address="h", hostname="vm", http_port=4151, tcp_port=4150, version="1.3.0")
GREETING = {"tcp_port": 4160, "http_port": 4161, "version": "1.3.0", "broadcast_address": "lookup", "hostname": "l"}


class FakeLookupd:
    """Answers like nsqlookupd and writes down what it was told, one list a connection."""

    def __init__(self, nursery):
        self.nursery = nursery
        self.told = []
        self.streams = []
        self.greeting = json.dumps(GREETING).encode()
        self.answer = b"OK"

    async def connect(self, _address=""):
        near, far = memory_stream_pair()
        self.streams.append(far)
        self.nursery.start_soon(self.serve, far)
        return near

    async def serve(self, stream):
        commands = []
        self.told.append(commands)
        reader = bytearray()

        async def read(until):
            while not until():
                data = await stream.receive_some()
                if not data:
                    return False
                reader.extend(data)
            return True

        try:
            if not await read(lambda: len(reader) >= 4):
                return
            assert reader[:4] == b"  V1"
            del reader[:4]
            while await read(lambda: b"\n" in reader):
                line, _, rest = bytes(reader).partition(b"\n")
                reader[:] = rest
                if line == b"IDENTIFY":
                    await read(lambda: len(reader) >= 4 and len(reader) >= 4 + int.from_bytes(reader[:4], "big"))
                    commands.append(json.loads(reader[4:]))
                    reader.clear()
                    answer = self.greeting
                else:
                    commands.append(line.decode())
                    answer = self.answer
                await stream.send_all(len(answer).to_bytes(4, "big") + answer)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return


class Rig:
    def __init__(self, nursery):
        self.lookupd = FakeLookupd(nursery)
        self.wanted = {Registration("t"), Registration("t", "c")}
        self.lines = []
        self.client = LookupClient(
            "l:4160", IDENTITY, lambda: self.wanted, Log("b1", self.lines.append), self.lookupd.connect
        )
        nursery.start_soon(self.client.run)

    @property
    def told(self):
        return self.lookupd.told


@pytest.fixture
async def rig(nursery):
    return Rig(nursery)


async def test_it_introduces_itself_and_registers_everything(rig, mock_clock):
    await wait_all_tasks_blocked()
    identity, *commands = rig.told[0]
    assert identity == {
        "broadcast_address": "h",
        "hostname": "vm",
        "http_port": 4151,
        "tcp_port": 4150,
        "version": "1.3.0",
        "topology_region": "",
        "topology_zone": "",
    }
    assert commands == ["REGISTER t", "REGISTER t c"]
    assert rig.client.http_url == "http://lookup:4161"


async def test_changes_keep_no_ping_back(rig, mock_clock):
    mock_clock.autojump_threshold = 0
    for _ in range(5):
        rig.wanted ^= {Registration("t", "come and gone")}
        rig.client.changed.set()
        await trio.sleep(PING_PERIOD_S / 2)
    assert rig.told[0].count("PING") == 2


async def test_changes_are_told_at_once(rig, mock_clock):
    await wait_all_tasks_blocked()
    rig.wanted = {Registration("u", "d"), Registration("u")}
    rig.client.changed.set()
    await wait_all_tasks_blocked()
    assert rig.told[0][3:] == ["UNREGISTER t c", "UNREGISTER t", "REGISTER u", "REGISTER u d"]


async def test_it_pings_every_15_seconds(rig, autojump_clock):
    await trio.sleep(3.5 * PING_PERIOD_S)
    assert rig.told[0][3:] == ["PING"] * 3


async def test_a_lost_connection_is_made_again_at_once_and_everything_told_anew(rig, autojump_clock):
    await trio.sleep(1)
    await rig.lookupd.streams[0].aclose()
    await trio.sleep(0.3)  # the first pause before a new try is at most 0.25 s
    assert rig.told[1][1:] == ["REGISTER t", "REGISTER t c"]
    assert sum("nsqlookupd lost" in line for line in rig.lines) == 1


async def test_a_nsqlookupd_that_speaks_unasked_is_left(rig, autojump_clock):
    await trio.sleep(1)
    await rig.lookupd.streams[0].send_all(b"\0\0\0\2OK")
    await trio.sleep(0.3)
    assert len(rig.told) == 2
    assert any("unasked" in line for line in rig.lines)


class Several:
    """Nsqlookupds whose connections are scripted, by address."""

    def __init__(self, nursery, *addresses):
        self.servers = {}
        self.nursery = nursery
        self.wanted = {Registration("t")}
        self.lookups = Nsqlookupds(
            addresses, IDENTITY, lambda: self.wanted, Log("b1", lambda _line: None), self.connect
        )
        nursery.start_soon(self.lookups.run)

    async def connect(self, address):
        return await self.servers.setdefault(address, FakeLookupd(self.nursery)).connect()

    def told(self):
        return {address: server.told[-1][1:] for address, server in self.servers.items()}


async def test_each_of_several_is_told_everything(nursery, mock_clock):
    several = Several(nursery, "a:1", "b:1")
    await wait_all_tasks_blocked()
    assert several.told() == {"a:1": ["REGISTER t"], "b:1": ["REGISTER t"]}
    several.wanted.add(Registration("u"))
    several.lookups.note_change()
    await wait_all_tasks_blocked()
    assert several.told() == {"a:1": ["REGISTER t", "REGISTER u"], "b:1": ["REGISTER t", "REGISTER u"]}
    assert several.lookups.http_urls == ["http://lookup:4161"] * 2


async def test_which_ones_are_used_can_change_and_those_that_stay_notice_nothing(nursery, mock_clock):
    several = Several(nursery, "a:1", "b:1")
    await wait_all_tasks_blocked()
    several.lookups.use(["b:1", "c:1", "c:1"])
    await wait_all_tasks_blocked()
    assert several.lookups.addresses == ["b:1", "c:1"]
    assert several.told()["c:1"] == ["REGISTER t"]
    assert len(several.servers["b:1"].told) == 1
    assert await several.servers["a:1"].streams[0].receive_some() == b""  # its connection is over
    several.lookups.use([])
    await wait_all_tasks_blocked()
    assert several.lookups.http_urls == []
    several.lookups.use(["b:1"])
    await wait_all_tasks_blocked()
    assert len(several.servers["b:1"].told) == 2


async def test_a_bad_address_leaves_those_in_use_alone(nursery, mock_clock):
    several = Several(nursery, "a:1")
    for bad in ("nowhere", ":4160", "h:99999"):
        with pytest.raises(BadInput, match="nsqlookupd_tcp_addresses"):
            several.lookups.use(["b:1", bad])
    assert several.lookups.addresses == ["a:1"]


async def test_while_it_is_away_its_address_is_not_asked_for_channels(rig, autojump_clock):
    await trio.sleep(1)
    rig.lookupd.greeting = b"E_INVALID go away"
    await rig.lookupd.streams[0].aclose()
    await trio.sleep(3 * PING_PERIOD_S)
    assert rig.client.http_url is None
    assert any("E_INVALID go away" in line for line in rig.lines)


async def test_a_refused_command_closes_and_starts_over(rig, autojump_clock):
    await trio.sleep(1)
    rig.lookupd.answer = b"E_BAD_TOPIC u"
    rig.wanted |= {Registration("u")}
    rig.client.changed.set()
    await trio.sleep(0.01)
    rig.lookupd.answer = b"OK"
    await trio.sleep(5)
    assert rig.told[1][1:] == ["REGISTER t", "REGISTER t c", "REGISTER u"]


async def test_a_nsqlookupd_that_does_not_answer_is_left_after_a_second(nursery, autojump_clock):
    opened = []

    async def connect(_address):
        near, far = memory_stream_pair()
        opened.append((trio.current_time(), far))
        return near

    client = LookupClient("l:1", IDENTITY, set, Log("b1", lambda _line: None), connect)
    nursery.start_soon(client.run)
    await trio.sleep(60)
    gaps = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(opened)]
    assert all(gap > 1.0 for gap in gaps)
    assert len(opened) > 3


def test_registrations_are_topics_and_channels():
    engine = FakeEngine()
    engine.create_topic("quiet")
    engine.create_topic("t")
    engine.create_channel("t", "c")
    assert registrations(snapshot.take(engine)) == {Registration("quiet"), Registration("t"), Registration("t", "c")}


names = st.builds(Registration, st.sampled_from("abc"), st.sampled_from(["", "x", "y"]))


@given(st.sets(names), st.sets(names))
def test_the_commands_lead_from_what_was_told_to_what_is_wanted(told, wanted):
    state = set(told)
    for command, entry in encode_changes(told, wanted):
        assert command.startswith(b"REGISTER") == (entry not in state)
        state ^= {entry}
    assert state == wanted


@given(st.lists(st.binary(max_size=20)), st.data())
def test_answers_are_the_same_however_the_bytes_are_split(answers, data):
    stream = b"".join(len(answer).to_bytes(4, "big") + answer for answer in answers)
    reader, found = AnswerReader(), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:cut])
        stream = stream[cut:]
    assert found == answers


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"HTTP"])
def test_an_answer_of_absurd_size_is_refused(size):
    with pytest.raises(PeerError):
        AnswerReader().feed(size)


def channel_server(nursery, answer, **options):
    server = HttpServer(answer)

    async def connect():
        near, far = memory_stream_pair()
        nursery.start_soon(server.serve_connection, far)
        return near

    return HttpClient("http://l:1", connect=connect, **options)


async def test_channels_are_fetched_without_the_ephemeral_ones_and_those_that_cannot_be(nursery):
    asked = []

    async def answer(request):
        asked.append((request.path, request.arguments()))
        return json_response({"channels": ["c", "d#ephemeral", "no name"]})

    assert await fetch_channels(channel_server(nursery, answer), "t#ephemeral", 1.0) == ["c"]
    assert asked == [("/channels", {"topic": "t#ephemeral"})]


@pytest.mark.parametrize(("status", "value"), [(500, {}), (200, {"channels": "c"}), (200, [])])
async def test_an_answer_that_makes_no_sense_is_a_peer_error(nursery, status, value):
    async def answer(_request):
        return json_response(value, status)

    with pytest.raises(PeerError):
        await fetch_channels(channel_server(nursery, answer), "t", 1.0)


async def test_a_topic_unknown_there_has_no_channels(nursery):
    async def answer(_request):
        return json_response({}, 404)

    assert await fetch_channels(channel_server(nursery, answer), "t", 1.0) == []


async def test_of_one_answer_no_more_channels_are_taken_than_a_topic_may_have(nursery):
    async def answer(_request):
        return json_response({"channels": [f"c{number}" for number in range(250)]})

    lines, taken, others = [], [], []

    async def other_task() -> None:
        while len(taken) < 230:
            others.append(len(taken))
            await trio.lowlevel.checkpoint()

    nursery.start_soon(other_task)
    await known_channels("t", [channel_server(nursery, answer)], 1.0, 230, Log("b", lines.append), taken.append)
    assert taken == [f"c{number}" for number in range(230)]
    assert {100, 200} & set(others), "others run in between"
    assert "it names 250 channels, over the limit of 230" in lines[0]


async def test_an_answer_beyond_its_size_is_not_read(nursery):
    async def answer(_request):
        return json_response({"channels": ["c" * 60] * 20_000})

    lines, taken = [], []
    client = channel_server(nursery, answer, answer_limit_bytes=MAX_ANSWER_BYTES)
    await known_channels("t", [client], 1.0, 10, Log("b", lines.append), taken.append)
    assert (taken, "answer over 1048576 bytes" in lines[0]) == ([], True)


async def test_one_that_cannot_be_asked_does_not_spoil_the_others():
    lines = []
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")  # bound only to know a port where nobody answers
    port = listeners[0].socket.getsockname()[1]
    await listeners[0].aclose()
    taken = []
    await known_channels("t", [HttpClient(f"http://127.0.0.1:{port}")], 1.0, 9, Log("b", lines.append), taken.append)
    assert taken == []
    assert "channels of a new topic not learned topic=t" in lines[0]


async def test_one_that_stays_silent_does_not_spoil_the_others(nursery):
    async def answer(_request):
        return json_response({"channels": ["c"]})

    lines, taken = [], []
    (silent,) = await trio.open_tcp_listeners(0, host="127.0.0.1")  # takes connections, and that is all
    (speaking,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, HttpServer(answer).serve_connection, [speaking])
    urls = [f"http://127.0.0.1:{one.socket.getsockname()[1]}" for one in (silent, speaking)]
    with trio.CancelScope() as patience:

        def take(channel):
            taken.append(channel)
            patience.cancel()

        await known_channels("t", [HttpClient(url) for url in urls], 60.0, 9, Log("b", lines.append), take)
    await silent.aclose()
    assert taken == ["c"]
    assert [line for line in lines if urls[0] in line and "no answer in time" in line]
