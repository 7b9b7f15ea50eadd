"""What the ``srtm`` command says where it cannot do what it was asked: one line, an exit status, nothing changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from srtm.cli import main
from srtm.net.tls_trust import CA_VARIABLE
from tests.support.played_distributor import TOPIC, Distributor

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


@pytest.fixture(autouse=True)
def forget_authority(monkeypatch: pytest.MonkeyPatch) -> None:
    """``--ca-file`` of one command is not the next one's: it lives as long as the process, and tests share one."""
    monkeypatch.setenv(CA_VARIABLE, "")


@pytest.mark.parametrize(
    ("problem", "message", "status"),
    [
        (BAD_RATE, "srtm: rate: -1: must be above 0\n", 2),
        (STALE, "srtm: version: 2: must be 3\n", 1),
        (
            NO_TOKEN,
            "srtm: token: '(not shown)': http://127.0.0.1:4190/v1/topics/roads?confidence=95 asks for a token that "
            "it knows: --token-file, --token or $SRTM_TOKEN\n",
            2,
        ),
        (
            OTHER_SCOPE,
            "srtm: token: '(not shown)': http://127.0.0.1:4190/v1/topics/roads?confidence=95: the token of 'ann' "
            "has the scope client; this needs operator\n",
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
        ("", "name: must be the topic's name; the file has nothing"),
        ("[[contracts]]\n", "name: must be the topic's name; the file has contracts"),
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
        (["distributor", "--token-file", "/nowhere"], "token_file: '/nowhere': must be a file that can be read"),
        (["limit", "serve", "--token-file", "/dev/null"], "token_file: '/dev/null': must be a file with one token"),
        (["adaptor", "--token-file", "/nowhere"], "token_file: '/nowhere': must be a file that can be read"),
        (["distributor", "--scaler-token-file", "/nowhere"], "scaler_token_file: '/nowhere': must be a file that can"),
        (["distributor", "--scaler-ca-file", "/nowhere"], "ca_file: '/nowhere': must be a file that can be read"),
        (["distributor", "--tls-cert", "/nowhere"], "tls_key: a certificate and its key must be given together"),
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
        (
            ["distributor", "--http-address", "127.0.0.1:0", "--store", "mysql://x"],
            "store: 'mysql://x': must be sqlite:///PATH",
        ),
        (["distributor", "--token", "a b"], "token: '(not shown)': must be ASCII"),
        (["up", "--brokers", "0", "--mcap", "5", "--data", "/nowhere"], "brokers: 0: must be 1 to 1024"),
        (["up", "--brokers", "1", "--mcap", "-5", "--data", "/nowhere"], "mcap: -5.0: must be a rate above 0 msg/s"),
        (["up", "--brokers", "one", "--mcap", "5", "--data", "/nowhere"], "--brokers: 'one': must be a valid integer"),
        (
            ["up", "--brokers", "1", "--data", "/nowhere", "--scaler", "command"],
            "scaler_command: '': must be given with scaler \"command\", and only then",
        ),
        (
            ["up", "--brokers", "1", "--data", "x", "--scaler", "luck"],
            "--scaler: 'luck': 'luck' is not one of 'process'",
        ),
        (["topic", "set", "roads"], "topic set: needs what to change, such as --mode"),
        (["topic", "set", "roads", "--window-s", "nan"], "adaptation.window_s: nan: must be a finite number"),
        (["topic", "show", "\udcff"], "name: '\\udcff': must be UTF-8"),
        (["drain", "--broker", "nowhere"], "broker: 'nowhere': must be HOST:PORT"),
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


def test_a_distributor_that_cannot_be_reached_is_a_failure_not_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "list", "--distributor", "http://127.0.0.1:1"]) == 1  # nobody listens on tcpmux here
    assert capsys.readouterr().err.startswith("srtm: http://127.0.0.1:1 cannot be reached: ")


def test_a_garbled_address_in_the_environment_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SRTM_DISTRIBUTOR", "garbage")
    assert main(["topic", "list"]) == 2
    assert capsys.readouterr().err == "srtm: distributor: 'garbage': must be a URL like http://127.0.0.1:4190\n"
