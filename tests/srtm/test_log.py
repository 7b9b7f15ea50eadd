"""Log lines: of which levels, as text or as JSON, and that no fact forges a line or a field."""

from __future__ import annotations

import json

import pytest

from srtm.log import FORMATS, LEVELS, PROCESS, REQUEST_ID, Log, LogSettings, format_json, format_line

AT_NS = 1_700_000_000_123_000_000


def test_a_line_says_who_speaks_first_and_cannot_be_forged() -> None:
    line = format_line("b1", "INFO", "listening", {"tcp": "h:1", "why": "a b\nb2 forged"}, AT_NS)
    assert line == "b1 2023-11-14T22:13:20.123Z INFO: listening tcp=h:1 why='a b\\nb2 forged'\n"


def test_a_line_of_json_is_one_object_with_the_facts_as_fields() -> None:
    facts = {"tcp": "h:1", "times": 3, "s": 0.5, "on": True, "none": None, "error": ValueError("bad\nline")}
    line = format_json("b1", "WARNING", "listening", facts, AT_NS)
    assert (line.count("\n"), line[-1]) == (1, "\n")
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.123Z",
        "level": "warning",
        "service": "b1",
        "message": "listening",
        **facts,
        "error": "bad\nline",
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\udc80", b"bytes", {"a": object()}])
def test_whatever_a_fact_is_the_line_is_json(value: object) -> None:
    line = format_json("b1", "INFO", "x", {"fact": value}, AT_NS)
    assert isinstance(json.loads(line, parse_constant=pytest.fail)["fact"], str)


def test_no_fact_takes_the_place_of_what_every_line_has() -> None:
    line = json.loads(format_json("b1", "INFO", "x", {"level": "forged", "service": "forged"}, AT_NS))
    assert (line["level"], line["service"]) == ("info", "b1")


@pytest.mark.parametrize("level", LEVELS)
def test_lines_below_the_level_are_not_written(level: str) -> None:
    lines: list[str] = []
    log = Log("b1", lines.append, LogSettings(level))  # type: ignore[arg-type]
    for say in (log.debug, log.info, log.warning, log.failure):
        say("x")
    assert len(lines) == max(0, 4 - LEVELS.index(level))  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMATS)
def test_a_line_names_the_request_that_its_task_works_on(form: str) -> None:
    lines: list[str] = []
    log = Log("b1", lines.append, LogSettings("info", form))  # type: ignore[arg-type]
    mark = REQUEST_ID.set("r-1")
    log.info("x", topic="cars")
    REQUEST_ID.reset(mark)
    log.info("x", topic="cars")
    assert ["r-1" in line for line in lines] == [True, False]


def test_logs_without_settings_of_their_own_share_those_of_the_process() -> None:
    assert Log("a").settings is Log("b").settings is PROCESS
