"""When the judges of our MQTT port are content, and how what is missing is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.mqtt import sources, vectors
from tests.interop.mqtt.__main__ import ask, passes, table
from tests.interop.mqtt.sources import (
    Judge,
    fetch_mosquitto,
    fetch_mqtt_packet,
    fetch_paho_testing,
    fetch_vectors,
)
from tests.interop.outcome import Outcome
from tests.interop.suites import CannotFetch

GOOD, BAD = Outcome("QoS 1", True, 0.1), Outcome("will", False, 0.2, "nothing came")


def nothing(_directory: Path) -> None:
    """Ready as it is."""


def judge(*command: str, count: int = 1) -> Judge:
    return Judge("client", "client", nothing, command, count)


def test_a_judge_is_content_when_all_that_should_be_asked_passes() -> None:
    assert passes(judge(), [GOOD])
    assert not passes(judge(count=2), [GOOD])
    assert not passes(judge(), [BAD])
    assert not passes(judge(), [])


def test_the_table_names_what_failed_and_what_is_missing() -> None:
    text = table([(judge(), [GOOD]), (judge(count=2), [GOOD, BAD]), (judge(), "missing: npm")])
    assert "| client | 1 of 1 in 0.1 s | passes |" in text
    assert "| client | 1 of 2 in 0.3 s | FAILS, 2 should pass |" in text
    assert "| client | - | NOT ASKED |" in text
    assert text.splitlines()[-2:] == ["client: will: nothing came", "client: missing: npm"]


def test_a_judge_that_breaks_off_has_asked_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = judge(sys.executable, "-c", "raise SystemExit('no broker')")
    assert ask(broken, tmp_path, {}) == []
    assert "client: no broker" in capsys.readouterr().err
    told = '[{"name": "QoS 1", "passed": true, "seconds": 0.1, "why": ""}]'
    assert ask(judge(sys.executable, "-c", f"print({told!r})"), tmp_path, {}) == [GOOD]


def test_what_cannot_be_made_ready_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CannotFetch, match="missing: mosquitto "):
        fetch_mosquitto(tmp_path)
    with pytest.raises(CannotFetch, match="missing: npm"):
        fetch_mqtt_packet(tmp_path)
    monkeypatch.setenv("PAHO_TESTING", "/nowhere")
    with pytest.raises(CannotFetch, match=r"missing: git \(PAHO_TESTING may name a clone\)"):
        fetch_paho_testing(tmp_path)


def test_one_that_is_half_ready_is_made_ready_again(tmp_path: Path) -> None:
    def fails_once(directory: Path) -> None:
        if not (tmp_path / "tried").exists():
            (tmp_path / "tried").touch()
            (directory / "half").touch()
            raise CannotFetch("the network is away")

    half = Judge("client", "client", fails_once, (), 1)
    with pytest.raises(CannotFetch):
        half.ready(tmp_path)
    assert [path.name for path in half.ready(tmp_path).iterdir()] == ["ready"]


def test_nobody_of_that_name_is_refused_by_name() -> None:
    command = [sys.executable, "-m", "tests.interop.mqtt", "pahoo"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, "nobody of that name: pahoo" in ended.stderr) == (2, True)
    assert len({one.name for one in sources.JUDGES}) == len(sources.JUDGES)


def test_vectors_pass_only_where_they_were_played() -> None:
    ok = "running 1 test\n.\ntest result: ok. 1 passed; 0 failed; 0 ignored\n"
    assert vectors.outcome(0, ok, 1.0).passed
    assert not vectors.outcome(0, "test result: ok. 0 passed; 0 failed; 0 ignored\n", 1.0).passed
    wrong = "panicked at vectors.rs:175:5:\n2 of 1825:\nCONNECT: closed\nPUBLISH: closed\n"
    assert vectors.outcome(101, wrong, 1.0) == Outcome("all vectors", False, 1.0, "2 of 1825: CONNECT: closed")


def test_vectors_need_a_folder_that_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRTM_MQTT_VECTORS", str(tmp_path))
    with pytest.raises(CannotFetch, match=r"must have files \*\.json"):
        fetch_vectors(tmp_path)
    (tmp_path / "CONNECT.json").write_text("[]")
    fetch_vectors(tmp_path)
    assert (tmp_path / "data" / "CONNECT.json").exists()
    monkeypatch.delenv("SRTM_MQTT_VECTORS")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CannotFetch, match=r"missing: git \(SRTM_MQTT_VECTORS may name"):
        fetch_vectors(tmp_path / "other")
