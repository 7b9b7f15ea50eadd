"""The ``srtm`` command in this process, with a distributor that the test plays: what it asks, shows, refuses, and its
exit status."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import httpx
import pytest

import srtm
from srtm.cli import main
from srtm.distributor_client import DistributorClient

TOPIC = 'name = "roads"\nrate = 100\nburst = 5\n[slo]\npercentile = 99\nlatency_ms = 1\n'
REPORT = {
    "received": 12_345,
    "last_60s": {"access": {"count": 5, "p99_ms": 0.25}, "processing": {"count": 0, "p99_ms": 0.0}},
}
VIEW = {
    "name": "roads",
    "version": 3,
    "rate": 100.0,
    "burst": 5.0,
    "lease": "15s",
    "slo": {"percentile": 99.0, "latency_ms": 1.0},
    "publishers": 7,
    "publishers_rate": 90.0,
    "state": "placed",
    "reason": "",
    "channels": [],
    "brokers": [
        {
            "broker": "broker-1",
            "address": "127.0.0.1:4150",
            "publishers": 7,
            "rate_assigned": 90.0,
            "rate": 100.0,
            "burst": 5.0,
            "share_version": 1,
            "applied_version": 1,
            "renewed_s_ago": 0.5,
            "report": REPORT,
        }
    ],
}
DELAYS = {"access_ms": 0.25, "processing_ms": 0.5, "total_ms": 0.625}
PREDICTED = {"method": "simulation", "seconds": 600.0, "messages": 54_000, "seed": 1, "percentile": 99.0, **DELAYS}
PENALTY = {"sum_ms": 81.0, "mean_ms": 0.0015, "p99_ms": 0.125, "one_mean_ms": 0.01, "one_p99_ms": 0.0625}
AFTERWARDS = {"brokers": [{"broker": "broker-1", "rate": 410.0}], "largest_topic": 410.0}
PLAN = {
    "name": "roads",
    "rate": 100.0,
    "burst": 5.0,
    "slo": {"percentile": 99.0, "latency_ms": 1.0},
    "placement": "srtm",
    "split": "fitted",
    "publishers": 7,
    "publishers_rate": 90.0,
    "k": 1,
    "state": "placed",
    "reason": "7 publishers",
    "reasons": ["7 publishers"],
    "brokers": [
        {
            "broker": "broker-1",
            "publishers": 7,
            "groups": 3,
            "rate_assigned": 90.0,
            "rate": 100.0,
            "burst": 5.0,
            "rate_part": 1.0,
            "burst_part": 1.0,
            "service_us": 15.0,
            "service_known": "assumed",
            "free_afterwards": 410.0,
            **DELAYS,
        }
    ],
    "predicted": {**PREDICTED, "keeps": True},
    "penalty": PENALTY,
    "admitted_afterwards": AFTERWARDS,
    "balanced": {
        "k": 4,
        "state": "placed",
        "predicted": {**PREDICTED, "total_ms": None, "keeps": False},
        "penalty": {**PENALTY, "sum_ms": 5400.0},
        "admitted_afterwards": {"brokers": [{"broker": "broker-1", "rate": None}], "largest_topic": None},
    },
}
FITTING = {
    "topic": "roads",
    "state": "fits",
    "method": "sequential",
    "rounds_s": None,
    "started_at": "2026-01-01T00:00:00Z",
    "took_s": 2.5,
    "certain": True,
    "brokers": 1,
    "rounds": [{"brokers": 1, "took_s": 2.0, "measured": []}],
    "measured": [
        {"broker": "broker-1", "messages": 900, "total_ms": 0.75, "access_ms": 0.25, "processing_ms": 0.5},
    ],
    "missing": None,
    "others_worst_ms": 0.875,
    "explanation": ["fits on 1 broker"],
    "reason": "",
}
BROKER = {"name": "broker-1", "tcp_address": "127.0.0.1:4150", "alive": True, "mcap": 500.0, "allocated": 100.0}


class Distributor:
    """Answers from ``answers``, {(method, path): (status, body)}; notes what was asked."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], tuple[int, object]] = {
            ("GET", "/v1/topics"): (200, [VIEW]),
            ("GET", "/v1/topics/roads"): (200, VIEW),
            ("GET", "/v1/topics/roads/fitting"): (200, FITTING),
            ("PUT", "/v1/topics/roads"): (200, {**VIEW, "explanation": PLAN}),
            ("DELETE", "/v1/topics/roads"): (204, None),
            ("POST", "/v1/plan"): (200, PLAN),
            ("GET", "/v1/brokers"): (200, [BROKER]),
        }
        self.asked: list[tuple[str, str]] = []
        self.bodies: list[dict[str, object]] = []
        self.headers: list[httpx.Headers] = []
        self.queries: dict[tuple[str, str], dict[str, str]] = {}  # of the latest

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append((request.method, request.url.path))
        self.headers.append(request.headers)
        self.queries[request.method, request.url.path] = dict(request.url.params)
        if request.content:
            self.bodies.append(json.loads(request.content))
        missing = {"title": "not found", "status": 404, "detail": "-", "field": "topic", "value": "nowhere"}
        status, body = self.answers.get((request.method, request.url.path), (404, missing))
        return httpx.Response(status) if body is None else httpx.Response(status, json=body)

    def changed(self) -> list[tuple[str, str]]:
        return [(method, path) for method, path in self.asked if method != "GET"]


@pytest.fixture
def distributor(monkeypatch: pytest.MonkeyPatch) -> Distributor:
    played = Distributor()
    client = partial(DistributorClient, transport=httpx.MockTransport(played.answer))
    monkeypatch.setattr("srtm.commands.topics.DistributorClient", client)
    monkeypatch.setattr("srtm.commands.drain.DistributorClient", client)
    monkeypatch.delenv("SRTM_DISTRIBUTOR", raising=False)
    monkeypatch.delenv("SRTM_TOKEN", raising=False)
    return played


@pytest.fixture
def topic_file(tmp_path: Path) -> Path:
    (tmp_path / "ids.csv").write_text("id,rate,correlation_group\na,90,\n")
    file = tmp_path / "roads.toml"
    file.write_text(
        TOPIC + '[[publishers]]\ncsv = "ids.csv"\nprocess = "periodic"\n[[publishers]]\ncount = 2\nrate = 5\n'
    )
    return file


def test_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"srtm {srtm.__version__}\n"


def test_submit_sends_the_file_with_its_csv_inside(
    distributor: Distributor, topic_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", "submit", str(topic_file)]) == 0
    assert distributor.asked == [("PUT", "/v1/topics/roads")]
    (document,) = distributor.bodies
    assert document["rate"] == 100
    assert document["publishers"] == [
        {"process": "periodic", "csv_text": "id,rate,correlation_group\na,90,\n"},
        {"count": 2, "rate": 5},
    ]
    shown = capsys.readouterr().out
    assert "roads: placed" in shown
    assert "broker-1" in shown
    assert "worst broker: p99 access 0.25 ms" in shown


def test_a_topic_that_found_no_place_is_a_failure(
    distributor: Distributor, topic_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = VIEW | {
        "explanation": PLAN,
        "state": "waiting",
        "reason": "3 brokers of 500 msg/s are needed",
        "brokers": [],
    }
    distributor.answers["PUT", "/v1/topics/roads"] = (200, waiting)
    assert main(["topic", "submit", str(topic_file)]) == 1
    assert "3 brokers of 500 msg/s are needed" in capsys.readouterr().out


def test_plan_shows_and_changes_nothing(
    distributor: Distributor, topic_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", "plan", str(topic_file)]) == 0
    assert distributor.asked == [("POST", "/v1/plan")]
    shown = capsys.readouterr().out
    for part in (
        "k = 1 (srtm, fitted split)",
        "15 (assumed)",
        "simulated: 54,000 messages, 600 s, seed 1",
        "p99 access 0.25 ms, processing 0.5 ms, both 0.625 ms: the promise is kept",
        "sum 81 ms over all messages, 0.0015 ms a message; p99 0.125 ms more than the 0.0625 ms of one bucket",
        "admitted afterwards: a further topic of up to 410 msg/s",
        "balanced over 4 brokers instead (lb)",
        "both without end: it would be BROKEN",
        "admitted afterwards: no limit is known",
    ):
        assert part in shown


@pytest.mark.parametrize(
    ("command", "name", "result"),
    [
        (["topic", "list"], "topic list", [VIEW]),
        (["topic", "show", "roads"], "topic show", {**VIEW, "fitting": FITTING}),
        (["topic", "remove", "roads", "--purge"], "topic remove", {"removed": "roads", "purged": True}),
        (["status"], "status", {"brokers": [BROKER], "topics": [VIEW]}),
    ],
)
def test_json_on_standard_output_is_the_whole_output(
    distributor: Distributor, capsys: pytest.CaptureFixture[str], command: list[str], name: str, result: object
) -> None:
    assert main([*command, "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert distributor.asked
    assert document == {"schema": 1, "command": name, "version": srtm.__version__, "result": result}


def test_json_in_a_file_leaves_the_table_for_people(
    distributor: Distributor, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["status", "--json", str(tmp_path / "status.json")]) == 0
    assert distributor.asked == [("GET", "/v1/brokers"), ("GET", "/v1/topics")]
    assert json.loads((tmp_path / "status.json").read_text())["result"]["topics"] == [VIEW]
    shown = capsys.readouterr().out
    assert "broker-1" in shown
    assert "roads" in shown


def test_remove_says_whether_to_purge(distributor: Distributor, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "remove", "roads"]) == 0
    assert distributor.asked == [("DELETE", "/v1/topics/roads")]
    assert capsys.readouterr().out == "removed roads\n"


def test_publishers_are_added_and_removed_in_one_change_and_then_listed(
    distributor: Distributor, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = {"ids": ["a=b"], "brokers": ["broker-1"], "groups": [""], "rates": [2.5]}
    distributor.answers["PATCH", "/v1/topics/roads/publishers"] = (200, VIEW)
    distributor.answers["GET", "/v1/topics/roads/publishers"] = (200, columns)
    assert main(["topic", "publishers", "roads", "--add", "a=b=2.5", "--remove", "c"]) == 0
    assert distributor.bodies == [{"add": [{"id": "a=b", "rate": 2.5}], "remove": ["c"]}]
    assert "a=b" in capsys.readouterr().out


def test_the_token_goes_along_as_a_bearer(distributor: Distributor) -> None:
    assert main(["topic", "list", "--token", "secret"]) == 0
    assert distributor.headers[0]["authorization"] == "Bearer secret"


def test_the_token_may_be_in_a_file(distributor: Distributor, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    assert main(["topic", "list", "--token-file", str(tmp_path / "token")]) == 0
    assert distributor.headers[0]["authorization"] == "Bearer secret"


BAD_RATE = {"title": "bad input", "status": 400, "detail": "-", "field": "rate", "value": -1, "rule": "must be above 0"}
STALE = {"title": "conflict", "status": 409, "detail": "-", "field": "version", "value": 2, "rule": "must be 3"}
NO_TOKEN = {"title": "unauthorized", "status": 401, "detail": "this route needs the cluster's bearer token"}
OTHER_SCOPE = {
    "title": "forbidden",
    "status": 403,
    "detail": "-",
    "rule": "the token of 'ann' has the scope client; this needs operator",
}
AWAY = {"title": "unavailable", "status": 503, "detail": "the store cannot be reached"}


@pytest.mark.parametrize(
    ("problem", "message", "status"),
    [
        (BAD_RATE, "srtm: rate: -1: must be above 0\n", 2),
        (STALE, "srtm: version: 2: must be 3\n", 1),
        (
            NO_TOKEN,
            "srtm: token: '(not shown)': http://127.0.0.1:4190/v1/topics/roads asks for a token that "
            "it knows: --token-file, --token or $SRTM_TOKEN\n",
            2,
        ),
        (
            OTHER_SCOPE,
            "srtm: token: '(not shown)': http://127.0.0.1:4190/v1/topics/roads: the token of 'ann' has the scope "
            "client; this needs operator\n",
            2,
        ),
        (AWAY, "srtm: the store cannot be reached\n", 1),
    ],
)
def test_a_refusal_is_one_line_with_field_value_and_rule(
    distributor: Distributor,
    topic_file: Path,
    capsys: pytest.CaptureFixture[str],
    problem: dict[str, object],
    message: str,
    status: int,
) -> None:
    distributor.answers["PUT", "/v1/topics/roads"] = (int(str(problem["status"])), problem)
    assert main(["topic", "submit", str(topic_file)]) == status
    captured = capsys.readouterr()
    assert (captured.err, captured.out) == (message, "")


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ("name = ", "file: .*: must be TOML: "),
        ("rate = 5\n", "name: None: must be the topic's name"),
        ("name = 7\n", "name: 7: must be the topic's name"),
        (
            TOPIC + '[[publishers]]\ncsv = "none.csv"\n',
            r"publishers\[0\].csv: .*none.csv': must be a file that can be read",
        ),
    ],
)
def test_a_topic_file_that_cannot_be_sent_changes_nothing(
    distributor: Distributor, tmp_path: Path, capsys: pytest.CaptureFixture[str], contents: str, message: str
) -> None:
    (tmp_path / "bad.toml").write_text(contents)
    assert main(["topic", "submit", str(tmp_path / "bad.toml")]) == 2
    assert re.match("srtm: " + message, capsys.readouterr().err)
    assert distributor.asked == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "No such command 'nosuch'"),
        (["topic", "submit"], "Missing argument 'FILE.toml'"),
        (["topic", "submit", "/nowhere.toml"], "file: '/nowhere.toml': must be a file that can be read"),
        (["topic", "show", "nowhere"], "topic 'nowhere' is not known here"),
        (["topic", "list", "--distributor", "localhost"], "distributor: 'localhost': must be a URL"),
        (["topic", "list", "--distributor", "http://\x01"], "distributor: 'http://\\x01': must be a URL"),
        (["topic", "list", "--token", "é"], "token: '(not shown)': must be ASCII"),
        (["topic", "list", "--token-file", "/nowhere"], "token_file: '/nowhere': must be a file that can be read"),
        (["topic", "list", "--token-file", "/dev/null"], "token_file: '/dev/null': must be a file with one token"),
        (
            ["topic", "list", "--distributor", "https://localhost", "--ca-file", "/dev/null"],
            "ca_file: '/dev/null': must hold certificates in PEM",
        ),
        (
            ["topic", "list", "--distributor", "https://localhost", "--ca-file", "/nowhere"],
            "ca_file: '/nowhere': must be a file that can be read",
        ),
        (["distributor", "--tokens", "/dev/null"], "tokens: 'no line': must have at least one token"),
        (["distributor", "--scaler-token-file", "/nowhere"], "scaler_token_file: '/nowhere': must be a file that can"),
        (["distributor", "--scaler-ca-file", "/nowhere"], "ca_file: '/nowhere': must be a file that can be read"),
        (["distributor", "--tls-cert", "/nowhere"], "tls_key: None: a certificate and its key must be given together"),
        (
            ["distributor", "--tls-cert", "/nowhere", "--tls-key", "/dev/null"],
            "tls_cert: '/nowhere': must be a file that can be read",
        ),
        (
            ["distributor", "--tls-cert", "/dev/null", "--tls-key", "/dev/null"],
            "tls_cert: '/dev/null': must be a certificate in PEM that fits its key",
        ),
        (["topic", "list", "--json", "/nowhere/x.json"], "json: '/nowhere/x.json': must be a file that can be written"),
        (
            ["topic", "remove", "roads", "--json", "/nowhere/x"],
            "json: '/nowhere/x': must be a file that can be written",
        ),
        (["topic", "remove", "roads", "--json", "/"], "json: '/': must be a file that can be written"),
        (["distributor", "--http-address", "127.0.0.1:99999"], "http_address: '127.0.0.1:99999': must be HOST:PORT"),
        (["distributor", "--store", "mysql://x"], "store: 'mysql://x': must be sqlite:///PATH"),
        (["distributor", "--token", "a b"], "token: '(not shown)': must be ASCII"),
        (["up", "--brokers", "0", "--mcap", "5", "--data", "/nowhere"], "brokers: 0: must be 1 to 1024"),
        (["up", "--brokers", "1", "--mcap", "-5", "--data", "/nowhere"], "mcap: -5.0: must be a rate above 0 msg/s"),
        (["up", "--brokers", "one", "--mcap", "5", "--data", "/nowhere"], "--brokers: 'one': must be a valid integer"),
        (
            ["up", "--brokers", "1", "--data", "x", "--scaler", "luck"],
            "--scaler: 'luck': 'luck' is not one of 'process'",
        ),
        (["topic", "set", "roads", "--window-s", "nan"], "adaptation.window_s: nan: must be a finite number"),
        (["topic", "show", "\udcff"], "name: '\\udcff': must be UTF-8"),
        (["topic", "show", ""], "name: '': must not be empty"),
        (["topic", "delete", "roads"], "No such command 'delete'. srtm topic --help lists"),
        (["up", "--brokers", "1", "--mcap", "5", "--data", "/proc/x"], "data: '/proc/x': must be a directory that can"),
        (
            ["up", "--brokers", "1", "--mcap", "5", "--data", "/nowhere", "--http-address", "x"],
            "http-address: 'x': must",
        ),
        (["topic", "publishers", "roads", "--add", "a=fast"], "add: 'a=fast': must be ID=RATE"),
        (["subscribe", "a b", "c"], "topic: 'a b': must be 1 to 64 of the characters"),
        (["subscribe", "t", "c", "--count", "0"], "count: 0: must be at least 1"),
        (["subscribe", "t", "c", "--json", "-"], "json: '-': must be a file"),
        (["publish", "t"], "Missing option '--id'"),
        (["publish", "t", "--id", "p", "--broker", "nohost"], "address: 'nohost': must be HOST:PORT"),
    ],
)
def test_bad_input_is_said_in_one_line_with_status_2_and_nothing_is_changed(
    distributor: Distributor, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"srtm: {message}")
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert distributor.changed() == []


@pytest.mark.parametrize("line", ["rate = nan", "rate = inf", "rate = -inf"])
def test_a_number_that_json_has_no_word_for_is_refused_by_its_name(
    distributor: Distributor, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    file = tmp_path / "roads.toml"
    file.write_text(f"{TOPIC}[[publishers]]\ncount = 2\n{line}\n")
    for command in ("plan", "submit"):
        assert main(["topic", command, str(file)]) == 2
        value = line.removeprefix("rate = ")
        assert capsys.readouterr().err == f"srtm: publishers[0].rate: {value}: must be a finite number\n"
    assert distributor.asked == []


@pytest.mark.parametrize("arguments", [[], ["topic"], ["capacity"]])
def test_a_command_without_its_subcommand_shows_its_help(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(" ".join(["Usage: srtm", *arguments]))


def test_a_distributor_that_cannot_be_reached_is_a_failure_not_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "list", "--distributor", "http://127.0.0.1:1"]) == 1  # nobody listens on tcpmux here
    assert capsys.readouterr().err.startswith("srtm: http://127.0.0.1:1 cannot be reached: ")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--version"], ["topic", "--help"]])
def test_a_reader_that_has_gone_costs_no_words(arguments: list[str]) -> None:
    """As in ``srtm --version | head -0``: the pipe's other end is closed before the first word."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "srtm", *arguments]
    with os.fdopen(writer, "wb") as pipe:
        ended = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, check=False, timeout=30)
    assert (ended.returncode, ended.stderr) == (1, b"")


def test_a_garbled_address_in_the_environment_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SRTM_DISTRIBUTOR", "garbage")
    assert main(["topic", "list"]) == 2
    assert capsys.readouterr().err == "srtm: distributor: 'garbage': must be a URL like http://127.0.0.1:4190\n"


def test_the_brokers_door_imports_neither_the_command_line_nor_the_http_client() -> None:
    """In a process of its own, where nothing is imported yet."""
    program = (
        "import sys, srtm.cli\n"
        "try: srtm.cli.main(['broker', '--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'typer', 'rich', 'httpx', 'numpy', 'fastapi'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert ended.stdout.endswith("\n[]\n")


def test_drain_asks_the_distributor_and_ends_when_the_broker_is_drained(
    distributor: Distributor, capsys: pytest.CaptureFixture[str]
) -> None:
    drained = {"broker": "broker-1", "state": "drained", "left": {}}
    distributor.answers["POST", "/v1/brokers/broker-1/drain"] = (202, BROKER | {"draining": True})
    distributor.answers["GET", "/v1/brokers/broker-1"] = (200, BROKER | {"dead": False, "drain": drained})
    assert main(["drain", "broker-1"]) == 0
    assert "broker-1 is drained and stops" in capsys.readouterr().out


def test_drain_that_the_others_cannot_bear_is_refused_with_the_reason(
    distributor: Distributor, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = {
        "title": "conflict",
        "status": 409,
        "detail": "-",
        "field": "broker",
        "value": "broker-1",
        "rule": "no room",
    }
    distributor.answers["POST", "/v1/brokers/broker-1/drain"] = (409, refusal)
    assert main(["drain", "broker-1"]) == 1
    assert capsys.readouterr().err == "srtm: broker: 'broker-1': no room\n"


def test_a_drain_whose_broker_dies_is_a_failure(distributor: Distributor, capsys: pytest.CaptureFixture[str]) -> None:
    distributor.answers["POST", "/v1/brokers/broker-1/drain"] = (202, BROKER)
    distributor.answers["GET", "/v1/brokers/broker-1"] = (200, BROKER | {"dead": True, "drain": None})
    assert main(["drain", "broker-1"]) == 1
    assert "ended before it was drained" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "NAME: None: must be given, or else --broker HOST:PORT"),
        (["b", "--broker", "127.0.0.1:1"], "NAME: 'b': must be given, or else --broker HOST:PORT"),
        (["b", "--timeout", "0"], "timeout: 0.0: must be above 0 s"),
    ],
)
def test_drain_refuses_what_it_cannot_mean(
    distributor: Distributor, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["drain", *arguments]) == 2
    assert capsys.readouterr().err == f"srtm: {said}\n"
    assert distributor.asked == []


def test_a_trace_is_sized_for_people_and_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_ns\n" + "".join(f"{at * 10**7}\n" for at in range(1000)))
    assert main(["topic", "size", str(trace), "--rate", "110"]) == 0
    shown = capsys.readouterr().out
    assert "1,000 messages in 10 s: 100 msg/s" in shown
    assert "warning: 10 s of traffic are less than 600 s" in shown
    assert main(["topic", "size", str(trace), "--json", "-"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert [size["burst"] for size in result["sizes"]] == [1] * 6  # evenly spaced: no burst at all


@pytest.mark.parametrize("arguments", [["nowhere.csv"], ["--percentile", "100", "x"], ["--rate", "soon", "x"]])
def test_what_cannot_be_sized_is_bad_input(arguments: list[str]) -> None:
    assert main(["topic", "size", *arguments]) == 2


def test_a_topic_is_shown_with_how_it_was_fitted(distributor: Distributor, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "show", "roads"]) == 0
    shown = capsys.readouterr().out
    for part in ("fitting (sequential): fits, 1 round, 2.5 s", "fits on 1 broker", "0.75", "0.875 ms"):
        assert part in shown
    distributor.answers["GET", "/v1/topics/roads/fitting"] = (200, {**FITTING, "state": "off"})
    assert main(["topic", "show", "roads"]) == 0
    assert "fitting" not in capsys.readouterr().out


@pytest.mark.parametrize(("state", "status"), [("fits", 0), ("does not fit", 1), ("failed", 1)])
def test_a_submission_that_waits_ends_as_its_fitting_does(
    distributor: Distributor,
    capsys: pytest.CaptureFixture[str],
    topic_file: Path,
    state: str,
    status: int,
) -> None:
    distributor.answers["GET", "/v1/topics/roads/fitting"] = (200, {**FITTING, "state": state})
    assert main(["topic", "submit", str(topic_file), "--fitting", "paper", "--rounds-s", "5", "--wait"]) == status
    assert distributor.queries["PUT", "/v1/topics/roads"] == {"fitting": "paper", "rounds_s": "5"}
    assert f"fitting (sequential): {state}" in capsys.readouterr().err
