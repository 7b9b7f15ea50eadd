"""Whom the loop asks where there are several distributors: the leader, wherever standbys say that it is."""

import msgspec
import trio

from srtm.control import Problem
from srtm.errors import Unavailable
from tests.support.sync_rig import TOPIC, FakeDistributor, Rig, settle


async def test_the_next_distributor_is_asked_when_one_fails(tmp_path, nursery, mock_clock):
    first = FakeDistributor("http://d1:1")
    second = FakeDistributor("http://d2:1", version=1, topics=[TOPIC])
    first.down = Unavailable("http://d1:1: connection refused")
    rig = Rig(tmp_path, first, second)
    nursery.start_soon(rig.sync.run)
    await settle()
    assert rig.holder.applied == {"t": 3}
    assert len(first.requests) == 1
    assert mock_clock.current_time() == second.requests[0][0]  # no pause between the two
    assert any("connection refused" in line for line in rig.lines)
    assert any("in sync again distributor=http://d2:1" in line for line in rig.lines)


def standby(url, leader):
    made = FakeDistributor(url)
    refused = Problem(title="standby", status=503, detail="stands by", leader=leader)
    made.refusal = (503, msgspec.json.encode(refused))
    return made


async def test_the_leader_that_a_standby_names_is_asked_next(tmp_path, nursery, mock_clock):
    leader = FakeDistributor("http://d3:1", version=1, topics=[TOPIC])
    rig = Rig(tmp_path, standby("http://d1:1", "http://d3:1"), FakeDistributor("http://d2:1"), leader)
    nursery.start_soon(rig.sync.run)
    await settle()
    assert rig.holder.version == 1
    assert [len(one.requests) for one in rig.distributors[:2]] == [1, 0]
    assert len(leader.requests) == 2
    assert rig.elsewhere == []


async def test_a_leader_that_is_not_among_those_given_is_found_and_only_the_latest_is_kept(
    tmp_path, nursery, mock_clock
):
    rig = Rig(tmp_path, standby("http://d1:1", "http://e1:1"))
    nursery.start_soon(rig.sync.run)
    await settle()
    assert rig.holder.version == 1
    (first,) = rig.elsewhere
    # It dies; the standby names another one.
    first.down = Unavailable("gone")
    rig.distributors[0].refusal = standby("", "http://e2:1").refusal
    for _ in range(40):
        mock_clock.jump(0.1)
        await settle()
    _, second = rig.elsewhere
    assert (first.closed, second.closed) == (True, False)
    assert second.requests


async def test_while_standbys_name_no_leader_or_a_dead_one_all_are_asked_no_faster_than_the_pauses_allow(
    tmp_path, nursery, mock_clock
):
    dead = FakeDistributor("http://d3:1")
    dead.down = Unavailable("gone")
    rig = Rig(tmp_path, standby("http://d1:1", None), standby("http://d2:1", "http://d3:1"), dead)
    nursery.start_soon(rig.sync.run)
    for _ in range(100):
        await settle()
        mock_clock.jump(0.1)
    counts = [len(one.requests) for one in rig.distributors]
    assert min(counts) >= 5
    assert sum(counts) <= 3 * 30
    # One of them comes to lead.
    rig.distributors[0].refusal = None
    rig.distributors[0].version, rig.distributors[0].topics = 1, [TOPIC]
    for _ in range(20):
        await settle()
        mock_clock.jump(0.1)
    assert rig.holder.version == 1


async def test_a_leader_whose_address_is_none_is_said_and_the_next_is_asked(tmp_path, nursery, mock_clock):
    rig = Rig(tmp_path, standby("http://d1:1", "ftp://x"), FakeDistributor("http://d2:1", version=1, topics=[TOPIC]))
    nursery.start_soon(rig.sync.run)
    await settle()
    assert rig.holder.version == 1
    assert any("the leader cannot be asked" in line for line in rig.lines)


async def test_the_death_is_told_to_the_next_where_the_first_stands_by(tmp_path, nursery, mock_clock):
    first = standby("http://d1:1", None)
    second = FakeDistributor("http://d2:1", version=1, topics=[TOPIC])
    rig = Rig(tmp_path, first, second)
    nursery.start_soon(rig.sync.run)
    await settle()
    second.down, first.refusal = Unavailable("stepped down"), None
    await rig.sync.leave()
    assert [one.incarnation for one in first.notices] == ["1"]


async def test_each_of_several_distributors_that_are_away_is_named_once(tmp_path, nursery, mock_clock):
    first, second = FakeDistributor(version=1), FakeDistributor()
    first.down, second.down = Unavailable("a is away"), Unavailable("b is away")
    rig = Rig(tmp_path, first, second)
    nursery.start_soon(rig.sync.run)
    mock_clock.autojump_threshold = 0
    await trio.sleep(100)
    said = [line for line in rig.lines if "no sync" in line]
    assert len(said) == 2
    assert "a is away" in said[0]
    assert "b is away" in said[1]
