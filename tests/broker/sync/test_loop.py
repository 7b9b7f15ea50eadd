"""The loop to the distributor on a mock clock: when it asks, whom it asks, what it does with the answer, what stays."""

import msgspec
import pytest
import trio

from broker.leases.lease_holder import held_over
from broker.sync import loop as sync
from broker.sync import unassigned_publishers
from broker.sync.loop import PERIOD_S, read_answer
from broker.sync.state_file import SyncState, load_state, save_state
from srtm.control import (
    BrokerContract,
    BrokerContracts,
    ContractTerms,
    DeadNotice,
    Move,
    Problem,
    Share,
    Throttling,
    TopicVerdict,
)
from srtm.errors import BadInput, PeerError, Unavailable
from tests.support.sync_rig import DRAINING, TOPIC, FakeDistributor, Rig, producer, settle


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path, FakeDistributor(version=1, topics=[TOPIC]))


async def test_the_first_sync_is_at_once_and_its_answer_is_acknowledged_at_once(rig, nursery, mock_clock):
    nursery.start_soon(rig.sync.run)
    await settle()
    first, acknowledgement = (asked for _, asked in rig.requests)
    assert (first.have_version, first.applied, first.wait_s, first.mcap) == (0, {}, 0.0, 5.0)
    assert first.throttling == Throttling(quota_cores=1.5)
    assert (acknowledgement.have_version, acknowledgement.applied) == (1, {"t": 3})
    assert acknowledgement.wait_s == PERIOD_S  # for news: nothing here depends on when it is answered
    assert rig.distributors[0].targets == {("POST", "/v1/brokers/b1/sync")}
    assert {at for at, _ in rig.requests} == {mock_clock.current_time()}
    assert rig.engine.topics["t"].channels == {"c": False}


async def test_a_broker_told_to_drain_lets_publishers_move_then_refuses_them_and_reports_how_far_it_is(
    rig, nursery, mock_clock
):
    (distributor,) = rig.distributors
    nursery.start_soon(rig.sync.run)
    nursery.start_soon(rig.drain.run)
    await settle()
    distributor.draining = True
    distributor.change(2, msgspec.structs.replace(TOPIC, publishers=[]))
    await settle()
    assert rig.drain.has_begun
    assert (rig.requests[-1][1].accepting, rig.requests[-1][1].drain.state) == (True, "draining")
    mock_clock.jump(2.5)
    await settle()
    assert ("set_accepting", False, DRAINING) in rig.engine.calls
    mock_clock.jump(PERIOD_S)
    await settle()
    assert rig.requests[-1][1].accepting is False


async def test_shares_that_are_nothing_and_acknowledged_are_what_a_broker_may_end_with(rig, nursery, mock_clock):
    (distributor,) = rig.distributors
    nursery.start_soon(rig.sync.run)
    await settle()
    assert not rig.holder.holds_nothing
    distributor.change(2, msgspec.structs.replace(TOPIC, share=Share(version=4, rate=0.0, burst=0.0)))
    await settle()
    assert rig.holder.holds_nothing
    mock_clock.jump(PERIOD_S)
    await settle()
    assert rig.sync.is_settled


async def test_leaving_ends_the_syncs_and_is_proof_of_death(rig, nursery, mock_clock):
    (distributor,) = rig.distributors
    nursery.start_soon(rig.sync.run)
    await settle()
    before = len(rig.requests)
    await rig.sync.leave()
    assert len(rig.requests) == before
    assert distributor.notices == [DeadNotice(incarnation="1", reason="drained")]
    assert distributor.closed


async def test_a_distributor_that_is_away_does_not_keep_a_broker_from_leaving(rig, nursery, mock_clock):
    nursery.start_soon(rig.sync.run)
    await settle()
    rig.distributors[0].down = Unavailable("no answer")
    await rig.sync.leave()
    assert "the distributor was not told that this broker ends" in rig.lines[-1]


async def test_publishes_are_accepted_from_the_first_answer_on_and_not_before(rig, nursery, mock_clock):
    rig.distributors[0].down = Unavailable("no answer")
    nursery.start_soon(rig.sync.run)
    await settle()
    assert not any(call[0] == "set_accepting" for call in rig.engine.calls)
    rig.distributors[0].down = None
    mock_clock.jump(PERIOD_S)
    await settle()
    kinds = [call[0] for call in rig.engine.calls]
    assert rig.engine.calls.count(("set_accepting", True, "")) == 1
    assert kinds.index("set_bucket") < kinds.index("set_accepting")


@pytest.mark.parametrize("holds_back", [True, False])
async def test_while_nothing_happens_it_syncs_every_second_whether_answers_are_held_back_or_not(
    rig, nursery, mock_clock, holds_back
):
    rig.distributors[0].holds_back = holds_back
    nursery.start_soon(rig.sync.run)
    await settle()
    mock_clock.autojump_threshold = 0
    await trio.sleep(0.5)
    before = len(rig.requests)
    await trio.sleep(10)
    assert len(rig.requests) - before == 10


async def test_a_change_comes_at_once(rig, nursery, mock_clock):
    nursery.start_soon(rig.sync.run)
    await settle()
    share = msgspec.structs.replace(TOPIC.share, version=4, rate=20.0, full=False)
    rig.distributors[0].change(2, msgspec.structs.replace(TOPIC, share=share))
    await settle()
    assert rig.engine.topics["t"].bucket["rate_micro"] == 20_000_000
    assert rig.requests[-1][1].applied == {"t": 4}
    assert mock_clock.current_time() == rig.requests[0][0]


async def test_strangers_are_told_at_once_until_they_were_answered_and_then_moved(rig, nursery, mock_clock):
    nursery.start_soon(rig.sync.run)
    await settle()
    rig.distributors[0].down = Unavailable("no answer")
    rig.sync.note_unassigned("t", "p1")
    rig.sync.note_unassigned("t", "p2")
    await settle()
    told = [[s.publisher_id for s in asked.strangers] for _, asked in rig.requests if asked.strangers]
    assert told[-1] == ["p1", "p2"]
    rig.distributors[0].down = None
    rig.distributors[0].moves = [Move(topic="t", publisher_id="p1", address="h:9", version=6, mqtt_address="h:8")]
    mock_clock.jump(PERIOD_S)
    await settle()
    assert ("move_publisher", "t", "p1", "h:9", ("h:8", "", "", ""), 6) in rig.engine.calls
    mock_clock.jump(PERIOD_S)
    await settle()
    assert rig.requests[-1][1].strangers == []


async def test_words_on_promises_are_asked_for_every_10_s_while_clients_of_mqtt_may_want_them(rig, nursery, mock_clock):
    rig.distributors[0].verdicts = {"t": TopicVerdict(verdict="kept", latency_ms=1.5)}
    nursery.start_soon(rig.sync.run)
    await settle()
    assert not any(asked.wants_verdicts for _, asked in rig.requests)
    rig.engine.tells_topics = True
    for _ in range(12):
        mock_clock.jump(PERIOD_S)
        await settle()
    asked_s = [at for at, asked in rig.requests if asked.wants_verdicts]
    assert len(asked_s) == 2
    assert asked_s[1] - asked_s[0] >= 10
    told = [call for call in rig.engine.calls if call[0] == "set_verdicts"]
    assert told == [("set_verdicts", ("t", "kept", 1.5))] * 2


async def test_whoever_was_told_twice_and_has_a_connection_here_5_s_later_is_said_to_stay(rig, nursery, mock_clock):
    nursery.start_soon(rig.sync.run)
    await settle()
    moves = [Move(topic="t", publisher_id=name, address="h:9", version=6) for name in ("p1", "p2")]
    rig.distributors[0].moves = moves
    mock_clock.jump(PERIOD_S)
    await settle()
    rig.distributors[0].moves = moves
    mock_clock.jump(PERIOD_S)
    await settle()
    rig.distributors[0].moves = []
    rig.engine.producers = [producer("p1", "t"), producer("p2", "another topic")]
    for _ in range(8):
        mock_clock.jump(PERIOD_S)
        await settle()
    assert [[one.publisher_id for one in asked.stayed] for _, asked in rig.requests if asked.stayed] == [["p1"]]


async def test_strangers_are_told_again_to_a_leader_that_lacks_what_was_told_before(rig, nursery, mock_clock):
    (distributor,) = rig.distributors

    def told():
        return [[s.publisher_id for s in asked.strangers] for _, asked in rig.requests if asked.strangers]

    async def pass_periods(count):
        for _ in range(count):
            mock_clock.jump(PERIOD_S)
            await settle()

    distributor.takes_reports = True
    nursery.start_soon(rig.sync.run)
    await settle()
    rig.sync.note_unassigned("t", "p1")
    await pass_periods(3)
    assert told() == [["p1"]]
    distributor.takes_reports = False  # another one, or the same anew
    await pass_periods(1)
    distributor.takes_reports = True
    await pass_periods(3)
    assert told()[1:] != []
    assert all(ids == ["p1"] for ids in told())
    said = len(told())
    await pass_periods(3)
    assert len(told()) == said


async def test_a_starved_topic_cuts_the_long_poll_short(rig, nursery, mock_clock):
    nursery.start_soon(rig.sync.run)
    await settle()
    before = len(rig.requests)
    rig.sync.wake()
    await settle()
    assert rig.requests[before][1].wait_s == 0.0
    assert rig.requests[before][0] == mock_clock.current_time()


async def test_a_new_topic_or_channel_and_a_deleted_one_are_told_at_once(rig, nursery, mock_clock):
    rig.distributors[0].takes_reports = True
    nursery.start_soon(rig.sync.run)
    await settle()
    for change, told, gone in (
        (lambda: rig.engine.create_topic("new"), [("new", [])], []),
        (lambda: rig.engine.create_channel("new", "c"), [("new", ["c"])], []),
        (lambda: rig.engine.delete_topic("new"), [], ["new"]),
    ):
        before = len(rig.requests)
        change()
        rig.sync.note_topic("new")
        await settle()
        at_s, asked = rig.requests[before]
        assert (at_s, asked.wait_s, asked.partial) == (mock_clock.current_time(), 0.0, True)
        assert [(report.topic, report.channels) for report in asked.topics if report.topic == "new"] == told
        assert asked.gone == gone


async def test_a_topic_that_the_distributor_made_here_is_not_told_twice(rig, nursery):
    rig.distributors[0].takes_reports = True
    nursery.start_soon(rig.sync.run)
    await settle()
    before = len(rig.requests)
    rig.sync.note_topic("t")
    await settle()
    assert len(rig.requests) == before


async def test_many_new_topics_are_told_a_few_at_a_time_without_a_look_at_all(rig, nursery):
    """A client that makes topics must not have all of them read again for each few."""
    rig.distributors[0].takes_reports = True
    nursery.start_soon(rig.sync.run)
    await settle()
    before, names = len(rig.requests), [f"n{number}" for number in range(45)]
    for name in names:
        rig.engine.create_topic(name)
        rig.sync.note_topic(name)
    await settle()
    told = [[report.topic for report in one.topics if report.topic in names] for _, one in rig.requests[before:]]
    assert [len(topics) for topics in told if topics] == [20, 20, 5]
    assert all(request.partial for _, request in rig.requests[before:])
    assert sorted(name for topics in told for name in topics) == sorted(names)


async def test_while_no_distributor_answers_shares_stay_and_the_pauses_grow_to_a_second(rig, nursery, mock_clock):
    nursery.start_soon(rig.sync.run)
    await settle()
    mock_clock.autojump_threshold = 0
    await trio.sleep(1.5)
    rig.distributors[0].down = Unavailable("no answer")
    await trio.sleep(3.0)
    before = len(rig.requests)
    await trio.sleep(100)
    assert 100 <= len(rig.requests) - before <= 205  # pauses of 0.5 to 1 s
    assert rig.holder.applied == {"t": 3}
    assert sum("no sync" in line for line in rig.lines) == 1  # said once, not every second
    assert not any(call[0] in ("clear_bucket", "set_accepting") and call[1] is False for call in rig.engine.calls)


async def test_where_others_are_is_asked_while_contracts_are_replicated(rig, nursery, mock_clock):
    nursery.start_soon(rig.sync.run)
    await settle()
    assert rig.requests[-1][1].have_addresses is None
    rig.contracts.replicates.set()
    rig.sync.wake()
    await settle()
    assert rig.requests[-1][1].have_addresses == 0


async def test_whom_the_cluster_had_is_said_again_when_an_answer_may_have_told_of_others(rig, nursery, mock_clock):
    nursery.start_soon(rig.sync.run)
    await settle()
    assert rig.requests[-1][1].peers is None
    rig.sync.wake()  # and the answer to that request is lost
    await settle()
    assert [asked.peers for _, asked in rig.requests[-2:]] == [{}, None]


async def test_a_new_leader_is_told_whom_the_cluster_had_and_the_next_incarnation_knows_it(
    tmp_path, nursery, mock_clock
):
    distributor = FakeDistributor(version=1)
    distributor.cluster, distributor.brokers = 77, {"b1": "1", "b2": "4"}
    rig = Rig(tmp_path, distributor)
    nursery.start_soon(rig.sync.run)
    await settle()
    first, second = (asked for _, asked in rig.requests)
    assert (first.cluster, first.peers, first.names_peers) == (0, {}, True)
    assert (second.cluster, second.peers) == (77, None)
    distributor.brokers, known = None, load_state(tmp_path)
    assert (known.cluster, known.peers) == (77, {"b1": "1", "b2": "4"})
    distributor.down = Unavailable("no answer")
    mock_clock.jump(PERIOD_S)
    await settle()
    distributor.down = None
    mock_clock.jump(PERIOD_S)
    await settle()
    assert rig.requests[-2][1].peers == {"b1": "1", "b2": "4"}
    assert rig.requests[-1][1].peers is None
    later = Rig(tmp_path, FakeDistributor(version=2))
    later.sync.remember(known)
    nursery.start_soon(later.sync.run)
    await settle()
    assert (later.requests[0][1].cluster, later.requests[0][1].peers) == (77, {"b1": "1", "b2": "4"})
    assert load_state(tmp_path) == SyncState(True, 2, [], 77, {"b1": "1", "b2": "4"})


async def test_brokers_that_come_and_go_are_on_disk_though_no_topic_changes(rig, nursery, mock_clock):
    nursery.start_soon(rig.sync.run)
    await settle()
    rig.distributors[0].brokers = {"b1": "1"}
    mock_clock.jump(2 * PERIOD_S)
    await settle()
    assert load_state(rig.directory) == SyncState(True, rig.distributors[0].version, [held_over(TOPIC)], 0, {"b1": "1"})


async def test_the_connections_are_closed_when_it_ends(rig):
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.sync.run)
            await settle()
            scope.cancel()
    assert rig.distributors[0].closed


async def test_an_older_state_is_refused_and_said(rig, nursery, mock_clock):
    nursery.start_soon(rig.sync.run)
    await settle()
    rig.distributors[0].change(0)
    await settle()
    assert rig.holder.applied == {"t": 3}
    assert any("older than 1" in line for line in rig.lines)


async def test_what_is_limited_is_on_disk_before_it_is_in_force(tmp_path, nursery, monkeypatch):
    rig = Rig(tmp_path, FakeDistributor(version=1, topics=[TOPIC]))
    saved_before_applied = []
    apply = rig.holder.apply

    def spying_apply(answer, asked_ns):
        saved_before_applied.append(load_state(tmp_path))
        apply(answer, asked_ns)

    monkeypatch.setattr(rig.holder, "apply", spying_apply)
    nursery.start_soon(rig.sync.run)
    await settle()
    state = saved_before_applied[0]
    assert (state.has_synced, state.version, [topic.topic for topic in state.topics]) == (True, 1, ["t"])
    assert state.topics == [held_over(TOPIC)]  # a million names are not written at every change


async def test_a_state_that_cannot_be_written_is_not_put_in_force(rig, nursery, monkeypatch, mock_clock):
    def refuse(_directory, _state):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full_disk:
        full_disk.setattr(sync, "save_state", refuse)
        nursery.start_soon(rig.sync.run)
        await settle()
        assert rig.holder.applied == {}
        assert rig.engine.calls == []
        assert any("No space left" in line for line in rig.lines)
    mock_clock.jump(PERIOD_S)
    await settle()
    assert rig.holder.applied == {"t": 3}


async def test_strangers_are_bounded_while_the_distributor_is_away(rig, monkeypatch):
    monkeypatch.setattr(unassigned_publishers, "MAX_PUBLISHERS", 3)
    for number in range(10):
        rig.sync.note_unassigned("t", f"p{number}")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.sync.run)
        await settle()
        nursery.cancel_scope.cancel()
    assert [stranger.publisher_id for stranger in rig.requests[0][1].strangers] == ["p0", "p1", "p2"]


async def test_a_member_of_an_empty_cluster_has_synced(tmp_path, nursery, mock_clock):
    rig = Rig(tmp_path, FakeDistributor(version=0))
    nursery.start_soon(rig.sync.run)
    await settle()
    assert ("set_accepting", True, "") in rig.engine.calls
    assert load_state(tmp_path).has_synced


def test_no_state_file_means_never_synced(tmp_path):
    assert load_state(tmp_path) == SyncState()
    save_state(tmp_path, SyncState(True, 7, [TOPIC]))
    assert load_state(tmp_path) == SyncState(True, 7, [TOPIC])


def test_a_broken_state_file_is_refused(tmp_path):
    (tmp_path / "srtm.state.json").write_bytes(b'{"has_synced": "perhaps"}')
    with pytest.raises(BadInput, match="must hold this broker's last state"):
        load_state(tmp_path)


def test_answers_that_are_none_are_sorted_by_whose_fault_it_is():
    with pytest.raises(Unavailable, match="503"):
        read_answer("http://d", 503, b"standby")
    with pytest.raises(PeerError, match=r"409.*stale"):
        read_answer("http://d", 409, b"stale incarnation")
    with pytest.raises(PeerError, match="sync answer"):
        read_answer("http://d", 200, b"{}")


async def test_a_broker_that_another_of_its_name_has_replaced_gives_its_tokens_up_until_it_is_taken_back(
    rig, nursery, mock_clock
):
    nursery.start_soon(rig.sync.run)
    await settle()
    refusal = Problem(title="conflict", status=409, detail="another broker named b1 (2-x)", field="incarnation")
    rig.distributors[0].refusal = 409, msgspec.json.encode(refusal)
    mock_clock.jump(2 * PERIOD_S)
    await settle()
    assert rig.engine.topics["t"].bucket["rate_micro"] == 0
    assert not rig.engine.accepting
    assert any("another broker named b1" in line for line in rig.lines)
    assert rig.disowned[-1] == "the distributor knows another broker b1: see the log"  # everybody may read that
    rig.distributors[0].refusal = None
    mock_clock.jump(2 * PERIOD_S)
    await settle()
    assert rig.engine.topics["t"].bucket["rate_micro"] == 10_000_000
    assert rig.disowned[-1] is None
    assert rig.engine.topics["t"].bucket["fill"] == 0  # what it had was clamped away
    assert rig.engine.accepting


async def test_contracts_are_on_disk_and_in_force_before_the_topics_that_name_them(rig, nursery, mock_clock):
    core = {"namespace": "sensors", "subject": "*", "policies": [{"name": "burst"}], "shadow": False}
    told = BrokerContract(namespace="sensors", subject="*", core=msgspec.Raw(msgspec.json.encode(core)))
    (distributor,) = rig.distributors
    distributor.contracts = BrokerContracts(version=9, contracts=[told])
    distributor.topics = [msgspec.structs.replace(TOPIC, terms=ContractTerms(publishers="sensors"))]
    nursery.start_soon(rig.sync.run)
    await settle()
    names = [call[0] for call in rig.engine.calls]
    assert names.index("set_contract") < names.index("set_bucket") < names.index("set_terms")
    saved = load_state(rig.directory)
    assert saved.contracts == distributor.contracts
    assert saved.topics[0].terms == ContractTerms(publishers="sensors")
    first, second = (asked for _, asked in rig.requests)
    assert (first.contracts, second.contracts) == (0, 9)
    assert rig.contracts.has_joined
    assert rig.engine.contracts_in_force["sensors", "*"]["rejoins"], "others may have held it before"


async def test_what_was_asked_of_contracts_is_reported_as_it_changes(rig, nursery, mock_clock):
    core = {"namespace": "sensors", "subject": "*", "policies": [{"name": "burst"}], "shadow": False}
    told = BrokerContract(namespace="sensors", subject="*", core=msgspec.Raw(msgspec.json.encode(core)))
    (distributor,) = rig.distributors
    distributor.takes_reports = True
    distributor.contracts = BrokerContracts(version=9, contracts=[told])
    nursery.start_soon(rig.sync.run)
    await settle()
    distributor.contracts = None
    rig.engine.contract_counts = {"allowed": 2, "refused": 1, "cost": 5}
    for _ in range(3):
        mock_clock.jump(PERIOD_S)
        await settle()
    reported = [asked.contract_counts for _, asked in rig.requests if asked.contract_counts]
    assert [[each.counts for each in counts] for counts in reported] == [[[(2, 1, 5)]]]


def full_sessions(topic, count):
    return {"topic": topic, "depth": 0, "in_flight": 0, "messages": 9, "holders": 1, "dropped": count, "full": count}


async def test_sessions_that_were_full_are_told_by_topic_as_it_changes(rig, nursery, mock_clock):
    rig.distributors[0].takes_reports = True
    nursery.start_soon(rig.sync.run)
    await settle()
    for held in ([full_sessions("t", 3)], [full_sessions("t", 3), full_sessions("elsewhere", 1)], []):
        rig.engine.mqtt_topics = held
        for _ in range(2):
            mock_clock.jump(PERIOD_S)
            await settle()
    told = [asked.mqtt_full for _, asked in rig.requests if asked.mqtt_full]
    assert told == [{"t": {"mqtt": 3}}, {"elsewhere": {"mqtt": 1}}, {"t": {}, "elsewhere": {}}]


async def test_what_a_request_told_that_was_cut_short_is_told_by_the_next_one_of_single_topics_too(
    rig, nursery, mock_clock
):
    rig.distributors[0].takes_reports = True
    nursery.start_soon(rig.sync.run)
    await settle()
    rig.engine.mqtt_topics = [full_sessions("t", 3)]
    mock_clock.jump(PERIOD_S)
    await settle()
    rig.engine.create_topic("new")
    rig.sync.note_topic("new")
    await settle()
    cut_short, again = (asked for _, asked in rig.requests if asked.mqtt_full)
    assert (cut_short.partial, again.partial) == (False, True)
    assert cut_short.mqtt_full == again.mqtt_full == {"t": {"mqtt": 3}}
