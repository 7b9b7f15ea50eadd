"""Proposals of shares: which are taken, how they get into force, and what changing a topic's mode does."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from distributor.api.app import make_app
from distributor.placement.proposals import shares_version, traits
from distributor.views.metrics import exposition
from distributor.views.topic_view import topic_view
from srtm.control import HistoryReport, ProposedShare, ShareProposal, TopicHistory, TopicReport
from srtm.errors import BadInput, NotFound
from srtm.topics.spec import TopicSpec, parse_options
from tests.support.distributor_in_process import Distributor, FakeBroker, settle, spec, total

ADAPTED = {"burst": 30, "mode": "fitted", "placement": "lb"}


def proposal(opened: Distributor, shares: dict[str, tuple[float, float]], **changes: object) -> ShareProposal:
    topic = opened.registry.topics["cars"]
    made = {"topic": "cars", "mode": "fitted", "version": shares_version(topic), "reason": "traffic moved"}
    return ShareProposal(
        **{**made, **changes},  # type: ignore[arg-type]
        shares={name: ProposedShare(rate=rate, burst=burst) for name, (rate, burst) in shares.items()},
    )


async def placed(path: Path, **changes: object) -> tuple[Distributor, list[FakeBroker]]:
    """100 publishers of 10 msg/s, r = 1,100, on two brokers that could take twice as much each."""
    opened = await Distributor.open(path / "store.sqlite3")
    brokers = await opened.brokers("b1", "b2", mcap=2_000.0)
    await opened.submit(spec(**{**ADAPTED, **changes}))
    await settle(*brokers)
    return opened, brokers


async def test_a_proposal_is_put_in_force_by_shrinking_before_growing(tmp_path: Path) -> None:
    opened, (b1, b2) = await placed(tmp_path)
    wanted = {"b1": (100.0, 5.0), "b2": (1_000.0, 25.0)}
    answer = await opened.registry.adapt([proposal(opened, wanted)])
    assert [one.taken for one in answer.results] == [True]
    await b2.sync()
    assert b2.share() == (550.0, 15.0)  # b1 has not given anything yet
    await b1.sync()
    assert b1.share() == (100.0, 5.0)
    await settle(b1, b2)
    assert (b1.share(), b2.share()) == (wanted["b1"], wanted["b2"])
    await opened.aclose()


async def test_shares_follow_the_traffic_while_a_layout_is_searched(tmp_path: Path) -> None:
    opened, brokers = await placed(tmp_path)
    opened.registry.being_fitted.add("cars")
    wanted = {"b1": (100.0, 5.0), "b2": (1_000.0, 25.0)}
    (result,) = (await opened.registry.adapt([proposal(opened, wanted)])).results
    assert result.taken, result.problem
    await settle(*brokers)
    assert [broker.share() for broker in brokers] == list(wanted.values())
    await opened.aclose()


async def test_a_stale_proposal_is_refused_and_the_others_are_taken(tmp_path: Path) -> None:
    opened, brokers = await placed(tmp_path)
    await opened.submit(spec("vans", **ADAPTED))
    await settle(*brokers)
    good = {"b1": (100.0, 5.0), "b2": (1_000.0, 25.0)}
    stale = proposal(opened, good, version=opened.registry.topics["cars"].version - 1)
    vans = proposal(opened, good, topic="vans", version=shares_version(opened.registry.topics["vans"]))
    answer = await opened.registry.adapt([stale, vans, proposal(opened, good, topic="bikes")])
    assert [(one.topic, one.taken) for one in answer.results] == [("cars", False), ("vans", True), ("bikes", False)]
    assert "version" in answer.results[0].problem
    await settle(*brokers)
    assert brokers[0].share("cars") == (550.0, 15.0)
    assert brokers[0].share("vans") == good["b1"]
    await opened.aclose()


@pytest.mark.parametrize(
    ("shares", "changes", "problem"),
    [
        ({"b1": (600.0, 15.0), "b2": (600.0, 15.0)}, {}, "must sum to at most 1,100 msg/s and 30 messages"),
        ({"b1": (500.0, 16.0), "b2": (600.0, 15.0)}, {}, "must sum to at most"),
        ({"b1": (500.0, 0.5), "b2": (600.0, 15.0)}, {}, "a burst of at least one message"),
        ({"b1": (-1.0, 5.0), "b2": (600.0, 15.0)}, {}, "must be a rate above 0"),
        ({"b1": (float("nan"), 5.0), "b2": (600.0, 15.0)}, {}, "must be a rate above 0"),
        ({"b1": (1e-9, 5.0), "b2": (600.0, 15.0)}, {}, "must be a rate above 0"),
        ({"b1": (500.0, 5.0)}, {}, "must name the brokers that have a share: b1, b2"),
        ({"b1": (500.0, 5.0), "b9": (600.0, 15.0)}, {}, "must name the brokers"),
        ({"b1": (500.0, 5.0), "b2": (600.0, 15.0)}, {"mode": "proportional"}, "the topic's mode is fitted"),
        ({"b1": (500.0, 5.0), "b2": (600.0, 15.0)}, {"version": 10**9}, "the topic has changed"),
    ],
)
async def test_what_makes_no_sense_is_refused_and_changes_nothing(
    tmp_path: Path, shares: dict[str, tuple[float, float]], changes: dict[str, object], problem: str
) -> None:
    opened, _ = await placed(tmp_path)
    before = opened.registry.version
    answer = await opened.registry.adapt([proposal(opened, shares, **changes)])
    assert not answer.results[0].taken
    assert problem in answer.results[0].problem
    assert opened.registry.version == before
    await opened.aclose()


@pytest.mark.parametrize("mode", ["static", "gdrl"])
async def test_nobody_proposes_shares_to_a_topic_that_is_not_adapted_from_outside(tmp_path: Path, mode: str) -> None:
    opened, _ = await placed(tmp_path, mode=mode)
    answer = await opened.registry.adapt([proposal(opened, {"b1": (500.0, 5.0), "b2": (600.0, 15.0)}, mode=mode)])
    assert not answer.results[0].taken
    await opened.aclose()


async def test_switching_the_mode_moves_no_share_but_to_static_it_restores_the_split(tmp_path: Path) -> None:
    opened, brokers = await placed(tmp_path)
    await opened.registry.adapt([proposal(opened, {"b1": (100.0, 5.0), "b2": (1_000.0, 25.0)})])
    await settle(*brokers)
    await opened.registry.set_options("cars", lambda old: parse_options(old, {"mode": "proportional"}))
    await settle(*brokers)
    assert brokers[0].share() == (100.0, 5.0)
    await opened.registry.set_options("cars", lambda old: parse_options(old, {"mode": "static"}))
    await settle(*reversed(brokers))  # the one that gives first
    assert brokers[0].share() == (550.0, 15.0)
    assert total(*brokers) == (1_100.0, 30.0)
    assert opened.registry.decisions["cars"][-1].lines == ("options: mode static instead of proportional",)
    await opened.aclose()


async def test_a_change_of_the_promise_leaves_adapted_shares_alone(tmp_path: Path) -> None:
    opened, brokers = await placed(tmp_path)
    await opened.registry.adapt([proposal(opened, {"b1": (100.0, 5.0), "b2": (1_000.0, 25.0)})])
    await settle(*brokers)
    await opened.submit(spec(**ADAPTED, slo={"percentile": 95, "latency_ms": 5}))
    await settle(*brokers)
    assert brokers[0].share() == (100.0, 5.0)
    await opened.aclose()


async def test_mode_and_adaptation_survive_a_restart_of_the_distributor(tmp_path: Path) -> None:
    opened, _ = await placed(tmp_path)
    await opened.registry.set_options("cars", lambda old: parse_options(old, {"adaptation": {"window_s": 2}}))
    await opened.aclose()
    again = await Distributor.open(tmp_path / "store.sqlite3")
    kept: TopicSpec = again.registry.topics["cars"].spec
    assert (kept.mode, kept.adaptation.window_s) == ("fitted", 2.0)
    await again.aclose()


async def test_what_a_policy_must_know_comes_from_the_topic_and_its_brokers(tmp_path: Path) -> None:
    opened, _ = await placed(tmp_path)
    found = traits(opened.registry.topics["cars"], opened.registry.max_rate)
    assert found.brokers["b1"].capacity == 2_000.0
    assert found.brokers["b1"].dispersion > 1.5  # groups of five, half of each here
    assert found.percentile == 99
    await opened.aclose()


async def test_options_come_by_http_and_bad_ones_are_refused_with_the_rule(tmp_path: Path) -> None:
    opened, _ = await placed(tmp_path)
    transport = httpx.ASGITransport(make_app(opened.registry, opened.syncing))
    async with httpx.AsyncClient(transport=transport, base_url="http://d") as http:
        good = await http.patch("/v1/topics/cars", json={"mode": "central", "adaptation": {"floor": 0.1}})
        assert (good.status_code, good.json()["mode"], good.json()["adaptation"]["floor"]) == (200, "central", 0.1)
        bad = await http.patch("/v1/topics/cars", json={"mode": "quick"})
        assert (bad.status_code, bad.json()["field"]) == (400, "mode")
        empty = await http.patch("/v1/topics/cars", json={})
        assert empty.json()["rule"] == "must say what to change: mode, split or adaptation"
        assert (await http.patch("/v1/topics/bikes", json={"mode": "static"})).status_code == 404
        shares = {"b1": {"rate": 100, "burst": 5}, "b2": {"rate": 1000, "burst": 25}}
        version = shares_version(opened.registry.topics["cars"])
        body = {"proposals": [{"topic": "cars", "mode": "central", "version": version, "shares": shares}]}
        assert (await http.put("/v1/shares", json=body)).json()["results"][0]["taken"]
        assert (await http.put("/v1/shares", json={"proposals": 3})).status_code == 400
    await opened.aclose()


async def test_options_of_an_unknown_topic_are_not_found(tmp_path: Path) -> None:
    opened, _ = await placed(tmp_path)
    with pytest.raises(NotFound):
        await opened.registry.set_options("bikes", lambda old: replace(old, mode="static"))
    with pytest.raises(BadInput, match="interval_s"):
        await opened.registry.set_options("cars", lambda old: parse_options(old, {"adaptation": {"interval_s": 20}}))
    await opened.aclose()


async def test_operators_see_demand_fill_ratio_and_the_last_changes_with_their_reasons(tmp_path: Path) -> None:
    opened, (b1, b2) = await placed(tmp_path)
    b1.reports = [TopicReport(topic="cars", share_version=3, rate=100.0, burst=5.0)]
    await b1.sync()
    history = TopicHistory(
        topic="cars",
        share_version=3,
        first_ns=time.time_ns() - 10**9,
        arrivals=[10, 15] * 5,
        waiting=[5] * 10,
        unfinished=[9.0] * 10,
        delay_ns=[25_000_000] * 10,
    )
    opened.syncing.histories.take("b1", HistoryReport(incarnation=b1.incarnation, topics=[history]))
    await opened.registry.adapt([proposal(opened, {"b1": (100.0, 5.0), "b2": (1_000.0, 25.0)})])
    view = topic_view(opened.registry.topics["cars"], opened.registry, opened.syncing)
    first, second = view.brokers
    assert (first.demand, first.rate_in_force, first.burst_in_force) == (pytest.approx(125.0), 100.0, 5.0)
    assert first.fill_ratio == pytest.approx(100.0 / 125.0)
    assert first.access_mean_ms == pytest.approx(2.0)
    assert (second.demand, second.fill_ratio, second.access_mean_ms) == (None, None, None)
    change, submitted = view.changes
    assert submitted.reason == "submitted"
    assert (change.mode, change.reason) == ("fitted", "traffic moved")
    assert change.shares["b2"] == ProposedShare(rate=1_000.0, burst=25.0)
    text = b"".join(exposition(opened.registry, opened.syncing)).decode()
    assert 'srtm_share_demand{broker="b1",topic="cars"} 125.0' in text
    ratios = [line.split() for line in text.splitlines() if line.startswith("srtm_share_fill_ratio{")]
    assert [labels for labels, _ in ratios] == ['srtm_share_fill_ratio{broker="b1",topic="cars"}']
    assert float(ratios[0][1]) == pytest.approx(100.0 / 125.0)
    assert 'srtm_share_changes_total{topic="cars"} 1.0' in text
    await settle(b1, b2)
    await opened.aclose()


async def test_decisions_that_change_the_shares_are_among_the_last_changes_with_their_reasons(tmp_path: Path) -> None:
    opened, brokers = await placed(tmp_path)
    await opened.registry.adapt([proposal(opened, {"b1": (100.0, 5.0), "b2": (1_000.0, 25.0)})])
    await settle(*brokers)
    await opened.registry.set_options("cars", lambda old: parse_options(old, {"mode": "static"}))
    await opened.registry.set_options("cars", lambda old: parse_options(old, {"adaptation": {"window_s": 2}}))
    changes = topic_view(opened.registry.topics["cars"], opened.registry, opened.syncing).changes
    assert [(one.mode, one.reason) for one in changes] == [
        ("static", "options: mode static instead of fitted"),
        ("fitted", "traffic moved"),
        ("fitted", "submitted"),
    ]
    assert changes[0].shares["b1"] == ProposedShare(rate=550.0, burst=15.0)
    await opened.registry.remove("cars", purge=False)
    assert "cars" not in opened.registry.share_changes
    await opened.aclose()
