"""The command lines of the documents' blocks run as they stand there, one document after the other as it is read."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.shown_sessions import ROOT, Step, has_namespaces, played, shell_lines

READY = "srtm wait --timeout 240 --data"  # a busy machine takes longer than the usual 60 s
UP = f"srtm up --brokers 3 --mcap 1300 --data up --ports 4150-4170 --mqtt > up.log 2>&1 &\n{READY} up\n"
CLUSTER = f"{UP}srtm topic submit examples/sensors.toml > /dev/null\n"
TOPIC = """cat > t.toml <<END
name = "t"
rate = 100
burst = 10
slo = { percentile = 99, latency_ms = 50 }
publishers = [{ count = 10, rate = 1 }]
END
"""
CONTRACTS = """cat > contracts.toml <<END
[[contracts]]
namespace = "api"
subject = "user:*"
policies = [{ name = "burst", rate = 20, burst = 40 }]
[[contracts]]
namespace = "api"
subject = "bench-*"
policies = [{ name = "burst", rate = 20, burst = 40 }]
[[contracts]]
namespace = "per-sensor"
subject = "*"
policies = [{ name = "burst", rate = 10, burst = 20 }]
END
"""
LIMITS = "until_answers http://127.0.0.1:4196/healthz"


class Session(NamedTuple):
    """How the lines of a document are played."""

    steps: Mapping[str, Step]  # {begin of a line: how}
    begin: str = ""  # shell lines before the first
    needs: str = ""  # a program without which it says nothing


SESSIONS = {
    "README.md": Session(
        {
            "srtm up": Step(instead={"/tmp/srtm": "up"}, ready=f"{READY} up"),
            "srtm subscribe": Step(ready="true", instead={"--count 2": "--count 2 > got"}),
            "printf": Step(after="until_true 'grep -q 18.0 got'"),
            "mosquitto_sub": Step(
                ready="until_true 'srtm mqtt sessions | grep -q broker-1'",
                instead={"la-highways &": "la-highways > heard &"},
            ),
            "mosquitto_pub": Step(after="until_true 'grep -q 19.5 heard'"),
            "srtm limit serve": Step(ready=LIMITS),
        }
    ),
    "docs/broker.md": Session(
        {
            "srtm broker": Step(instead={"/tmp": "."}, ready="until_answers http://127.0.0.1:4151/ping"),
            "curl": Step(instead={"curl": "curl -sSf"}),
            "printf": Step(instead={"/usr/local/bin": "bin"}, after="nsqd --version > /dev/null"),
        }
    ),
    "docs/late-topic.md": Session(
        {
            "srtm topic show la-highways --watch": Step(
                instead={"--watch": "--watch > watched"}, ready="until_true 'grep -q la-highways watched'"
            ),
            "curl": Step(instead={"BROKER_HTTP": "127.0.0.1:4151", "curl": "curl -f"}),
        },
        CLUSTER,
    ),
    "docs/topic-file.md": Session(
        {
            "srtm topic submit": Step(instead={"FILE": "t.toml", "--wait": ""}),  # that waits a minute has its own test
            "srtm": Step(instead={"NAME": "t", "FILE": "t.toml", "ID=RATE": "new=1"}),
        },
        UP + TOPIC,
    ),
    "docs/operating.md": Session(
        {
            "srtm up --brokers 3 --mcap 1300 --data /var/lib/srtm >": Step(
                before="rm -r /var/lib/srtm/*", ready=f"{READY} /var/lib/srtm"
            ),
            "srtm up": Step(ready=f"{READY} /var/lib/srtm", after="stop"),
            "srtm wait": Step(after="stop; rm -r /var/lib/srtm/*"),
            "srtm distributor": Step(ready="until_answers http://10.0.0.1:4190/healthz"),
            "srtm broker --name": Step(ready="until_answers http://10.0.0.2:4151/ping", after="broker=$!"),
            "curl": Step(before="kill -9 $broker; wait $broker", instead={"curl": "curl -sSf"}, after="stop"),
            "srtm audit --topic": Step(instead={"roads": "la-highways"}),
            "srtm audit": Step(before=CLUSTER),
            "srtm drain b1": Step(instead={"b1": "broker-1"}),
            "srtm drain --broker": Step(
                before="mkdir alone; srtm broker --name alone --tcp-address 10.0.0.2:4150 --data-path alone "
                "--http-address 10.0.0.2:4151 2> alone.log & until_answers http://10.0.0.2:4151/ping"
            ),
            "srtm brokers": Step(instead={"b3": "broker-1"}),
        },
    ),
    "docs/limiting.md": Session(
        {
            "srtm limit serve --contracts contracts.toml --data": Step(ready=LIMITS),
            "srtm limit check api user:1 --cost 41": Step(statuses=(1,)),  # more than the burst
            "srtm limit serve --contracts contracts.toml --grpc-address": Step(before="stop", ready=LIMITS),
            "srtm limit import": Step(
                before="echo '{domain: edge, descriptors: [{key: a, rate_limit: "
                "{unit: second, requests_per_unit: 5}}]}' > config.yaml",
                instead={"contracts.toml": "imported.toml"},
            ),
            "srtm limit serve --node": Step(before="stop", ready="until_answers http://10.0.0.1:4196/healthz"),
            "curl": Step(instead={"curl": "curl -sSf"}, after="stop"),
            "srtm limit serve --store": Step(
                before="redis-server --bind 10.0.0.9 --protected-mode no --save '' > redis.log & "
                "until_true 'redis-cli -h 10.0.0.9 ping'",
                ready=LIMITS,
                after="stop; srtm limit serve --contracts contracts.toml --resp-address 127.0.0.1:6380 2> limit.log &"
                f"{LIMITS}",
            ),
            "srtm limit bench": Step(instead={"--seconds 10": "--seconds 3", "--rate 3000": "--rate 300 --seconds 3"}),
            "srtm limit contract submit": Step(before=f"stop\n{UP}"),
        },
        CONTRACTS,
    ),
    "docs/mqtt.md": Session(
        {
            "srtm broker": Step(before="mkdir data", ready="until_answers http://127.0.0.1:4151/ping"),
            "mosquitto_sub": Step(
                ready="until_true 'curl -s http://127.0.0.1:4151/metrics | grep -q \"^srtm_mqtt_sessions[^ ]* 1\"'",
                instead={"-q 1 &": "-q 1 > heat &"},
            ),
            "mosquitto_pub": Step(after="until_true 'grep -q 20 heat'; stop"),
            "srtm mqtt sessions": Step(
                before=f"{UP}mosquitto_sub -i CLIENT -t 'plant/#' -p 4156 &\n"  # broker-1
                "until_true 'srtm mqtt sessions | grep CLIENT'"
            ),
        },
        needs="mosquitto_sub",
    ),
}
# Without these their lines are left out: Debian's package mosquitto-clients brings them.
OPTIONAL = ("mosquitto_sub", "mosquitto_pub")
# Lines that need what a test may not have, or take minutes; each has a test of its own kind.
NOT_PLAYED = {
    "docs/benchmarking.md": {
        "srtm bench run": "a minute each: tests/bench runs shorter ones",
        "srtm bench topic": "tests/test_examples.py runs it with fewer seconds",
    },
    "docs/broker.md": {"srtm capacity": "minutes: tests/system/test_capacity.py measures one"},
    "docs/clients.md": {"srtm broker ...": "elided"},
    "docs/deploying.md": {"srtm config check": "tests/deploy checks the file that it names"},
    "docs/limiting.md": {
        "srtm limit serve --node a --distributor": "it waits for two more nodes: tests/limiting plays how they meet",
    },
    "docs/operating.md": {
        "srtm distributor --http-address 10.0.0.1:4190 --store postgresql": "test_takeover.py runs several",
        "srtm distributor --http-address 10.0.0.2:4190 --store postgresql": "test_takeover.py runs several",
        "export": "a variable for the lines before",
        "srtm store export backup.jsonl --store postgresql": "tests of the store copy both ways, with PostgreSQL",
        "srtm store import backup.jsonl --store postgresql": "tests of the store copy both ways, with PostgreSQL",
    },
    "docs/performance.md": {"srtm bench": "minutes to hours; tests/bench has short forms"},
}
DOCUMENTS = [
    path for path in [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md"))] if path.name != "CHANGELOG.md"
]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def lines_of(name: str) -> list[str]:
    """Those that are played."""
    left_out = tuple(NOT_PLAYED.get(name, {}))
    return [line for line in shell_lines((ROOT / name).read_text()) if not left_out or not line.startswith(left_out)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_each_line_is_played_or_has_a_reason_not_to_be(document: Path) -> None:
    name = name_of(document)
    assert name in SESSIONS or lines_of(name) == []
    shown = shell_lines(document.read_text())
    for beginning in [*NOT_PLAYED.get(name, {}), *(SESSIONS[name].steps if name in SESSIONS else ())]:
        assert any(line.startswith(beginning) for line in shown), f"no line begins with {beginning!r}"


@pytest.mark.slow
@pytest.mark.skipif(not has_namespaces(), reason="no network namespace may be made here (unshare, ip, curl)")
@pytest.mark.parametrize("name", SESSIONS)
def test_the_lines_of_a_document_run_as_they_stand(name: str, tmp_path: Path) -> None:
    session = SESSIONS[name]
    absent = tuple(program for program in OPTIONAL if shutil.which(program) is None)
    if session.needs in absent:
        pytest.skip(f"{session.needs} is not here: Debian's package mosquitto-clients brings it")
    lines = [line for line in lines_of(name) if not absent or not line.startswith(absent)]
    failed = {
        line: (status, printed)
        for line, status, printed in played(lines, session.steps, session.begin, tmp_path)
        if status not in next((step.statuses for begin, step in session.steps.items() if line.startswith(begin)), (0,))
    }
    assert failed == {}
