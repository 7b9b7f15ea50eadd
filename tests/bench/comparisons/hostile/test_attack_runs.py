"""Attacks: each gets under way against a real broker, which outlives it; and what is made of their figures."""

from __future__ import annotations

import os
from contextlib import closing
from io import StringIO
from itertools import islice

import pytest
import trio
from rich.console import Console

from bench.comparisons.builds import NEW, OLD
from bench.comparisons.hostile import attack_runs as hostile
from bench.comparisons.hostile import attacker
from bench.comparisons.hostile.attack_runs import ATTACKED, BURNING, QUIET, SYSTEMS, HostileOptions
from bench.comparisons.hostile.attacks import ATTACKS
from bench.comparisons.hostile.cpu_burner import CHUNK, burn
from bench.comparisons.hostile.flood import Target
from bench.comparisons.rows.row_runs import measured
from bench.harness.machine import softirqs
from bench.harness.machine.affinity import keep_engine_apart, may_be_apart
from bench.harness.machine.checkout import THIS
from bench.harness.machine.threads import ENGINE, threads_named
from bench.harness.results.comparison import Sample, judge
from bench.harness.results.provenance import Origin
from bench.harness.systems.systems import answers_ping, bare_broker, free_addresses
from srtm.errors import BadInput


def sample(system: str, p99_ms: float) -> Sample:
    values = {
        "p50_ms": 0.1,
        "p99_ms": p99_ms,
        "p999_ms": 2.0,
        "lost": 0.0,
        "refused": 0.0,
        "lateness_p99_ms": 0.1,
        "work_per_s": 5.0,
        "attacker_cpu": 0.5,
        "resident_mib": 40.0,
    }
    return Sample(system, values)


def outcome(*pairs: tuple[float, float], attack: str = "nops"):
    row = hostile.row_of(attack)
    rounds = [[sample(QUIET, 0.2), sample(ATTACKED, attacked), sample(BURNING, burning)] for burning, attacked in pairs]
    verdict = judge(row, rounds, {"pairs": len(pairs), "seconds": 2.0, "seed": 1})
    return verdict, measured(row, rounds, verdict, 0.0)


def test_an_attack_that_more_than_doubles_the_p99_beside_a_burning_process_falls_short():
    assert outcome((0.3, 0.5), (0.3, 0.59))[0].reached
    verdict, _ = outcome((0.3, 0.5), (0.3, 0.7), (0.3, 0.7))
    assert not verdict.reached
    assert "2.33x (1.67 to 2.33), must be at most 2x" in verdict.line


def test_the_page_gets_a_line_for_each_attack():
    table = hostile.page_of(hostile.NSQ_PAGE, [outcome((0.3, 0.5))[1], outcome((0.3, 0.9))[1]], Origin.here(0.0)).text
    p99s = "0.200 (0.200 to 0.200) | 0.300 (0.300 to 0.300) | 0.500 (0.500 to 0.500)"
    assert f"| nops | {p99s} | 1.67x (1.67 to 1.67) | yes | 2.5x | 5 | 40 (40 to 40) |" in table
    assert "| 3x (3 to 3) | **no** | 4.5x | 5 | 40 (40 to 40) |" in table
    assert (
        "| yes | 1.5x (under 2x) | 5 | 40 (40 to 40) |"
        in hostile.page_of(hostile.NSQ_PAGE, [outcome((0.2, 0.3))[1]], Origin.here(0.0)).text
    )


def test_an_attack_on_the_mqtt_port_may_treble_the_p99_beside_a_burning_process_or_take_a_millisecond():
    assert outcome((0.3, 1.0), attack="mqtt-wills")[0].reached
    assert outcome((0.5, 1.5), attack="mqtt-wills")[0].reached
    verdict, told = outcome((0.5, 1.6), attack="mqtt-wills")
    assert "p99, attacked / burning 3.2x (3.2 to 3.2), must be at most 3x, or 1 ms" in verdict.line
    page = hostile.page_of(hostile.MQTT_PAGE, [told], Origin.here(0.0))
    assert page.verdict == "mqtt-hostile: 0 of 1 attacks within 3x, or 1 ms."


@pytest.mark.parametrize(("share", "sent"), [(0.0, 0), (1_000.0, 5 * CHUNK)])
def test_the_control_sends_as_its_share_of_a_processor_lets_it(share, sent):
    with closing(burn(share)) as steps:
        assert sum(islice(steps, 5)) == sent


def test_an_attacker_leaves_other_hosts_alone(capsys):
    assert attacker.main(["nops", "192.0.2.1:4150", "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "1"]) == 2
    assert "192.0.2.1:4150: must be on loopback" in capsys.readouterr().err


async def test_nothing_is_measured_where_a_flood_would_starve_the_kernel_s_own_packet_work(monkeypatch):
    monkeypatch.setattr(softirqs, "are_behind", lambda **_: True)
    said = StringIO()
    with pytest.raises(BadInput, match=r"must be above that of broker \(under chrt\)"):
        await hostile.hostile(HostileOptions(["nops"]), Console(file=said))
    assert not said.getvalue()


@pytest.mark.slow
@pytest.mark.skipif(not may_be_apart(), reason="needs two processors")
async def test_an_attacker_stays_off_the_processors_of_a_broker_s_engine(tmp_path):
    async with bare_broker(tmp_path / "b") as broker:
        target = Target(broker.tcp_address, broker.http_address, *free_addresses())
        keep_engine_apart(broker.pid)
        (engine,) = (os.sched_getaffinity(int(thread.name)) for thread in threads_named(broker.pid, [ENGINE]))
        async with hostile.attacking("nops", target, 5.0) as doing:
            attackers = os.sched_getaffinity(doing.pid)
        assert len(attackers) == 1
        assert engine == os.sched_getaffinity(0) - attackers


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_broker_outlives_each_attack(attack, tmp_path):
    https, mqtt = free_addresses()
    options = ["--tls-cert", str(hostile.CERTIFICATES / "server.pem"), "--https-address", https]
    options += ["--tls-key", str(hostile.CERTIFICATES / "server.key"), "--mqtt-address", mqtt]
    async with bare_broker(tmp_path / "b", *options) as broker:
        target = Target(broker.tcp_address, broker.http_address, https, mqtt)
        async with hostile.attacking(attack, target, 5.0) as doing:
            with trio.fail_after(25):
                await doing.progress(1)
        assert await trio.to_thread.run_sync(answers_ping, broker.http_address)


@pytest.mark.slow
async def test_a_short_run_shows_the_attack_beside_the_quiet_flow():
    said = StringIO()
    options = HostileOptions(["huge-sizes"], pairs=1, seconds=2.0)
    (verdict,) = await hostile.hostile(options, Console(file=said, width=200))
    assert {run["system"] for run in verdict.runs} == set(SYSTEMS)
    assert all(run["p99_ms"] > 0 for run in verdict.runs)
    late = [run["reasons"] for run in verdict.runs if not run["valid"]]
    assert all("the generator's p99 lateness" in reason for reason in late)
    assert ("p99, ms" in said.getvalue()) is (not verdict.reasons)


async def test_against_another_build_there_is_a_verdict_and_no_page(monkeypatch, tmp_path):
    row = hostile.row_of("nops", against=THIS)
    rounds = [[sample(NEW, 0.5), sample(OLD, 0.5), sample(BURNING, 0.3)]]
    verdict = judge(row, rounds, {"pairs": 1, "seconds": 2.0, "seed": 1})

    async def measure(*_arguments):
        return verdict, measured(row, rounds, verdict, 0.0)

    monkeypatch.setattr(hostile, "measure", measure)
    monkeypatch.setattr(hostile, "refuse_starved_softirqs", lambda **_options: None)
    options = HostileOptions(["nops"], pairs=1, against=THIS, json_file=str(tmp_path / "found.json"))
    assert await hostile.hostile(options, Console(file=StringIO(), width=200)) == [verdict]
    assert (tmp_path / "found.json").exists()
