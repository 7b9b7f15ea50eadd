"""``srtm bench peers``: what may be asked, what is made again, and that every real peer delivers everything."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from bench.comparisons.peers import runs as peer_runs
from bench.comparisons.peers.load_points import FIGURES
from bench.comparisons.peers.runs import PeersOptions, chosen, compare_peers, loads
from bench.harness.load.run import run_plan
from bench.harness.load.workload import Plan, Subscriber, modelled
from bench.harness.results.comparison import Sample, Turn
from bench.harness.systems.peer_servers import ALL, Peer, missing
from srtm.errors import BadInput

VALUES = {figure.key: 1.0 for figure in FIGURES}


def test_peers_and_loads_are_read_and_refused_by_name() -> None:
    assert chosen("redis, nats,redis") == ("redis", "nats")
    assert loads("2000,1000, 2000") == (1_000, 2_000)
    for text in ("", "kafka", "srtm", "nats,,kafka"):
        with pytest.raises(BadInput, match=r"peers: .*: must be of nsqd, nats, srtm-mqtt, mosquitto, nats-mqtt, "):
            chosen(text)
    for text in ("", "fast", "15", "0", "-10", "100010"):
        with pytest.raises(BadInput, match=r"rates: .*: must be multiples of 10 from 10 to 100,000"):
            loads(text)


def measured_by(monkeypatch: pytest.MonkeyPatch, sample: Callable[[str, int], Sample]) -> list[tuple[str, int, int]]:
    """(system, load, seed) of each run that is asked for; every peer is here but nats."""
    asked = []

    async def one(peer: Peer, rate: int, turn: Turn, _folder: Path) -> Sample:
        asked.append((peer.name, rate, turn.seed))
        return sample(peer.name, len(asked))

    async def version(_peer: Peer) -> str:
        return "1.0"

    monkeypatch.setattr(peer_runs, "_sample", one)
    monkeypatch.setattr(peer_runs, "version", version)
    monkeypatch.setattr(peer_runs, "missing", lambda peer: "nats: none" if peer.name == "nats" else None)
    return asked


async def test_systems_take_turns_and_one_that_is_not_here_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = measured_by(monkeypatch, lambda name, _: Sample(name, {**VALUES, "lost": 0}))
    file, shown = tmp_path / "peers.json", io.StringIO()
    options = PeersOptions(("nats", "redis"), (10, 20), 2.0, 2, 5, str(file))
    outcome = await compare_peers(options, Console(file=shown, width=200))
    in_turn = [("srtm", 5), ("redis", 5), ("redis", 6), ("srtm", 6)]
    assert asked == [(name, rate, seed) for rate in (10, 20) for name, seed in in_turn]
    assert [about.name for about in outcome.systems] == ["srtm", "redis"]
    assert outcome.absent == ["nats: none"]
    assert "left out: nats: none" in shown.getvalue()
    assert [(one.system, one.rate, one.runs) for one in outcome.points] == [
        ("srtm", 10, 2),
        ("redis", 10, 2),
        ("srtm", 20, 2),
        ("redis", 20, 2),
    ]
    written = msgspec.json.decode(file.read_bytes())
    assert (written["valid"], len(written["runs"]), written["settings"]["rates"]) == (True, 8, [10, 20])


async def test_a_run_that_the_machine_spoilt_is_made_again_once_and_one_with_losses_stands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    samples = {
        1: Sample("srtm", {**VALUES, "lost": 0}, ["late"]),
        2: Sample("srtm", {**VALUES, "lost": 0}),
        3: Sample("redis", {**VALUES, "lost": 7}, ["late"]),
    }
    asked = measured_by(monkeypatch, lambda _name, number: samples[number])
    file = tmp_path / "peers.json"
    options = PeersOptions(("redis",), (10,), 2.0, 1, 1, str(file))
    outcome = await compare_peers(options, Console(file=io.StringIO()))
    assert [name for name, _, _ in asked] == ["srtm", "srtm", "redis"]
    assert [(one.runs, one.lost) for one in outcome.points] == [(1, 0), (0, 7)]
    assert msgspec.json.decode(file.read_bytes())["reasons"] == ["redis at 10 msg/s: late"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
async def test_a_real_broker_delivers_every_message_once(name: str, tmp_path: Path) -> None:
    peer = ALL[name]
    not_here = missing(peer)
    if not_here is not None:
        pytest.skip(not_here)
    async with peer.start(tmp_path / name) as system:
        plan = Plan(
            topic="peers",
            targets=[system.tcp_address],
            publishers=modelled([0] * 20, 20.0, batch=2),
            subscribers=[Subscriber(target=0), Subscriber(target=0, channel="other")],
            duration_s=0.5,
            warmup_s=0.1,
            protocol=peer.protocol,
            qos=peer.qos,
        )
        result = await run_plan(plan)
        assert system.cpu_s() > 0
        assert system.resident_bytes() > 1 << 20
    assert result.received == 2 * result.sent == 2 * result.offered > 0
    assert (result.lost, result.duplicates, result.foreign, result.errors) == (0, 0, 0, {})
