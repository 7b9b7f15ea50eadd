"""``--log-level`` and ``--log-format`` of services: in force before they start, and for what they start."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import typer
from typer.testing import CliRunner

from broker.options import parse_arguments, parse_config
from broker.service import log_of
from srtm.console.log_options import add_log_options
from srtm.console.running import no_services
from srtm.errors import BadInput
from srtm.log import PROCESS

VARIABLES = [f"SRTM_{service}_LOG_{what}" for service in ("BROKER", "DISTRIBUTOR") for what in ("LEVEL", "FORMAT")]


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    before = PROCESS.level, PROCESS.format
    yield
    PROCESS.level, PROCESS.format = before


def run(*words: str) -> tuple[int, str]:
    """Exit status and output of a service that says what is in force."""
    app = typer.Typer()

    def service(name: str = "x") -> int:
        told = [os.environ.get(variable, "-") for variable in VARIABLES]
        print(name, PROCESS.level, PROCESS.format, *told)
        return 0

    app.command()(add_log_options(service))
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.output.strip()


def test_what_is_said_is_in_force_and_children_are_told() -> None:
    assert run("--name", "y", "--log-level", "debug", "--log-format", "json") == (
        0,
        "y debug json debug json debug json",
    )


def test_children_are_not_told_what_nobody_said() -> None:
    assert run() == (0, "x info text - - - -")


def test_a_check_of_settings_changes_nothing() -> None:
    with no_services():
        assert run("--log-format", "json") == (0, "x info text - - - -")


@pytest.mark.parametrize("words", [("--log-level", "loud"), ("--log-format", "xml")])
def test_what_does_not_exist_is_refused(words: tuple[str, str]) -> None:
    status, output = run(*words)
    assert status == 2
    assert words[1] in output


def test_a_broker_takes_them_too() -> None:
    config = parse_config(parse_arguments(["--name", "b1", "--log-level", "warn", "--log-format", "json"]))
    settings = log_of(config).settings
    assert (settings.level, settings.format) == ("warn", "json")


@pytest.mark.parametrize(("flag", "field"), [("--log-level", "log_level"), ("--log-format", "log_format")])
def test_a_broker_refuses_what_does_not_exist_by_the_name_of_the_setting(flag: str, field: str) -> None:
    with pytest.raises(BadInput, match=f"{field}: 'loud': must be one of"):
        parse_config(parse_arguments(["--name", "b1", flag, "loud"]))
