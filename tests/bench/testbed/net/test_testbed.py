"""Real namespaces, where this process may make them."""

import fcntl
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyroute2 import netns

from bench.harness.machine import namespaces as own_network
from bench.harness.machine.checkout import ROOT
from bench.testbed.net.capabilities import Means, means
from bench.testbed.net.cleanup import listed, remove_dead
from bench.testbed.net.layout import Layout, Link, hosts
from bench.testbed.net.names import NAMESPACES
from bench.testbed.net.network import add_namespace
from bench.testbed.net.one_way_delay import between, measuring
from bench.testbed.owner import LiveTestbed, environment, live_testbed

pytestmark = pytest.mark.slow
FOREIGN = "srtm-foreign"
HERE = Path("/proc/thread-self/ns/net")
OWNER = """
import sys
from bench.testbed.net.layout import Link, hosts
from bench.testbed.net.capabilities import means
from bench.harness.machine.checkout import ROOT
from bench.testbed.owner import live_testbed
with live_testbed(hosts(link=Link(delay_ms=1.0)), means(), 1, print) as there:
    print(there.owner.pid, there.owner.started, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One of these tests at a time, whichever worker runs it: they count the namespaces of this machine."""
    with (tmp_path_factory.getbasetemp().parent / "testbed.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="module")
def found() -> Means:
    here = means()
    if here.lacking:
        pytest.skip(f"namespaces need {', '.join(here.lacking)}")
    if not here.lateness:
        pytest.skip("neither netem nor /dev/net/tun")
    return here


def run(there: LiveTestbed, layout: Layout, role: str, *command: str) -> str:
    words = there.command(layout.of(role)[0], command)
    done = subprocess.run(words, capture_output=True, text=True, env=environment(), cwd=ROOT, check=True)
    return done.stdout


def mine(there: LiveTestbed) -> list[str]:
    return [name for name in listed() if name.startswith(f"srtm-{there.owner.pid}-{there.owner.started}-")]


def test_a_testbed_is_there_for_its_block_and_nothing_of_it_after(found):
    layout = hosts()
    with live_testbed(layout, found, 1, print) as there:
        assert len(mine(there)) == 8  # the switch besides
        devices = json.loads(run(there, layout, "broker", "ip", "-json", "-4", "addr"))
        assert [address["local"] for device in devices for address in device["addr_info"]] == [
            "127.0.0.1",
            "10.99.0.11",
        ]
    assert mine(there) == []


def test_no_packet_is_faster_than_both_links_of_its_way(found):
    layout = hosts(publishers=1, subscribers=1, brokers=1, link=Link(delay_ms=3.0, jitter_ms=1.0))
    ways = between(layout.of("publisher"), layout.of("broker"))
    with live_testbed(layout, found, 1, print) as there:
        with measuring(ways, {host.name: there.namespace(host) for host in layout.hosts}):
            run(there, layout, "publisher", "sleep", "0.3")
        [way] = ways
        assert len(way.took_ns) >= 10
        assert min(way.took_ns) >= 6_000_000


def test_a_link_that_loses_half_of_its_packets_is_seen_to(found):
    layout = hosts(publishers=1, subscribers=1, brokers=1, each=["broker1:loss=0.5"])
    ways = between(layout.of("publisher"), layout.of("broker"))
    with live_testbed(layout, found, 1, print) as there:
        with measuring(ways, {host.name: there.namespace(host) for host in layout.hosts}):
            run(there, layout, "publisher", "sleep", "1")
        [way] = ways
        assert 0.2 * way.sent < way.lost < 0.8 * way.sent


def test_a_thread_that_visits_a_host_comes_home_again(found):
    home = HERE.readlink()
    layout = hosts()
    with live_testbed(layout, found, 1, print) as there, own_network.visiting(there.namespace(layout.control)):
        assert HERE.readlink() != home
    assert HERE.readlink() == home


@pytest.fixture
def foreign(found) -> Iterator[Path]:
    add_namespace(FOREIGN)
    yield NAMESPACES / FOREIGN
    netns.remove(FOREIGN)


def test_what_a_killed_owner_leaves_is_removed_and_nobody_elses(found, foreign):
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as owner:
        assert owner.stdout is not None
        pid, started = owner.stdout.readline().split()
        prefix = f"srtm-{pid}-{started}-"
        assert len([name for name in listed() if name.startswith(prefix)]) == 8
        assert not any(name.startswith(prefix) for name in remove_dead())  # it lives
        inside = [sys.executable, "-m", "bench.testbed.net.inside", f"{prefix}broker1", "--", "sleep", "1000"]
        left = subprocess.Popen(inside, cwd=ROOT, stdin=subprocess.DEVNULL)
        while not Path(f"/proc/{left.pid}/comm").read_text().startswith("sleep"):
            assert left.poll() is None
        owner.send_signal(signal.SIGKILL)
        owner.wait(10)
    removed = remove_dead()
    assert len([name for name in removed if name.startswith(prefix)]) >= 8
    assert not any(name.startswith(prefix) for name in listed())
    assert left.wait(10) == -signal.SIGKILL
    assert foreign.exists()
    assert stranger.poll() is None
    stranger.communicate(b"\n", timeout=10)


@pytest.mark.timeout(300)
def test_a_run_measures_every_message_one_way_through_the_links(found, tmp_path):
    results = tmp_path / "run.json"
    command = [sys.executable, "-m", "srtm", "bench", "testbed", "run", "--seconds", "1", "--count", "40"]
    command += ["--delay-ms", "2", "--promise-ms", "1000", "--json", str(results)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    [*brokers, everything] = json.loads(results.read_bytes())["runs"]
    assert {broker["broker"] for broker in brokers} == {"broker1", "broker2"}
    assert everything["sent"] == everything["received"] > 0
    assert everything["least_ms"] >= 8.0  # four links
    assert min(everything["to_p50_ms"], everything["from_p50_ms"]) >= 4.0


@pytest.mark.parametrize(
    ("words", "told"),
    [(["--host", "nobody:loss=0.1"], "host: "), (["--loss", "2"], "loss: "), (["--brokers", "0"], "brokers: ")],
)
def test_a_wrong_option_is_told_by_name_and_makes_nothing(words, told):
    before = listed()
    command = [sys.executable, "-m", "srtm", "bench", "testbed", "up", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, cwd=ROOT)
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr
    assert listed() == before
