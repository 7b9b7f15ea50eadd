"""What the loop to the distributor leaves out because both sides know it, and when it looks at its topics at all."""

import msgspec
import pytest
import trio

from broker.sync.loop import PERIOD_S
from broker.sync.state_file import load_state
from srtm.control import DesiredTopic, Share
from tests.support.sync_rig import TOPIC, FakeDistributor, Rig, settle

OTHER = DesiredTopic(topic="u", share=Share(version=1, rate=5.0, burst=2.0))
GROWN = msgspec.structs.replace(TOPIC, share=Share(version=4, rate=20.0, burst=2.0))


@pytest.fixture
def rig(tmp_path, monkeypatch):
    """``looks``: topics that the engine was asked about, "" for all of them."""
    rig = Rig(tmp_path, FakeDistributor(version=1, topics=[TOPIC, OTHER]))
    rig.distributors[0].takes_reports = True
    rig.looks, snapshot = [], rig.engine.snapshot
    rig.engine.connections = 3

    def counted(topic, channel, clients):
        rig.looks.append(topic)
        return snapshot(topic, channel, clients)

    monkeypatch.setattr(rig.engine, "snapshot", counted)
    return rig


async def settled(rig, nursery):
    """In sync, and nothing is under way but a request that waits for news."""
    nursery.start_soon(rig.sync.run)
    await settle()
    rig.looks.clear()
    rig.requests.clear()


def told(asked):
    return [report.topic for report in asked.topics]


async def test_while_nothing_changes_no_report_goes_up_and_all_topics_are_looked_at_once_a_second(
    rig, nursery, autojump_clock
):
    await settled(rig, nursery)
    await trio.sleep(10.5 * PERIOD_S)
    assert [asked.partial for _, asked in rig.requests] == [False] * 10
    assert [told(asked) for _, asked in rig.requests] == [[]] * 10
    assert rig.looks == [""] * 10
    assert {(asked.connections, asked.mqtt_sessions) for _, asked in rig.requests} == {(3, 7)}


async def test_an_acknowledgement_looks_only_at_the_topics_that_were_changed(rig, nursery, mock_clock):
    await settled(rig, nursery)
    distributor = rig.distributors[0]
    distributor.differs = GROWN
    distributor.change(2, GROWN, OTHER)
    await settle()
    assert rig.looks == ["t"]
    [(_, acknowledgement)] = rig.requests
    assert (acknowledgement.applied, acknowledgement.partial) == ({"t": 4, "u": 1}, True)
    assert [(one.topic, one.share_version) for one in acknowledgement.topics] == [("t", 4)]


async def test_changes_in_a_row_do_not_put_the_look_at_all_topics_off(rig, nursery, autojump_clock):
    await settled(rig, nursery)
    for version in range(2, 13):
        rig.distributors[0].change(version, TOPIC, OTHER)
        await trio.sleep(0.3)
    assert rig.looks.count("") == 3


async def test_whoever_wakes_it_has_all_topics_looked_at(rig, nursery, mock_clock):
    await settled(rig, nursery)
    mock_clock.jump(PERIOD_S)  # the acknowledgement is answered
    await settle()
    rig.requests.clear()
    rig.looks.clear()
    rig.engine.topics["u"].received = 9
    rig.sync.wake()
    await settle()
    assert rig.looks == [""]
    assert told(rig.requests[0][1]) == ["u"]


async def test_a_distributor_that_lacks_the_reports_is_told_everything_at_once(rig, nursery, mock_clock):
    await settled(rig, nursery)
    rig.distributors[0].takes_reports = False
    rig.sync.wake()
    await settle()
    (_, refused), (_, everything), *_ = rig.requests
    assert refused.reports_since > 0
    assert (everything.reports_since, told(everything), everything.wait_s) == (0, ["t", "u"], 0.0)
    assert mock_clock.current_time() == rig.requests[1][0]
    assert rig.forgotten == 1


async def test_a_change_of_shares_is_not_written_to_disk_and_one_of_limits_is(rig, tmp_path, nursery, mock_clock):
    await settled(rig, nursery)
    distributor = rig.distributors[0]
    for version, differs in ((2, GROWN), (3, msgspec.structs.replace(GROWN, max_backlog=7))):
        distributor.differs = differs
        distributor.change(version, differs, OTHER)
        await settle()
        state = load_state(tmp_path)
        assert (state.version, len(state.topics)) == (1 if version == 2 else 3, 2)
    assert {topic.topic: topic.max_backlog for topic in state.topics} == {"t": 7, "u": OTHER.max_backlog}
    assert rig.holder.applied == {"t": 4, "u": 1}
