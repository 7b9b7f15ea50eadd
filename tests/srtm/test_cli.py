"""The ``srtm`` command's front door, in this process: output for people and programs, tokens, help, exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import srtm
from srtm.cli import main
from srtm.commands.app import app
from tests.support.played_distributor import BROKER, FITTING, VIEW, Distributor

# The view as JSON shows it: of a delay that no message had nothing is known.
NO_MESSAGES = {"count": 0, "p99_ms": None}
LAST_60S = {"access": {"count": 5, "p99_ms": 0.25}, "processing": NO_MESSAGES}
KNOWN = {
    **VIEW,
    "reason": None,
    "brokers": [{**VIEW["brokers"][0], "report": {"received": 12_345, "last_60s": LAST_60S}}],
}  # type: ignore[index]


def test_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"srtm {srtm.__version__}\n"


def test_whoever_lacks_the_extension_or_a_library_is_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(arguments: list[str]) -> int:
        raise ModuleNotFoundError(name=missing)

    monkeypatch.setattr("srtm.commands.run", run)
    missing = "srtm._native"
    assert main(["bench", "--help"]) == 1
    assert capsys.readouterr().err == (
        "srtm: srtm._native, the engine in Rust, is not built in this checkout: run make build\n"
    )
    missing = "matplotlib.pyplot"
    assert main(["bench", "--help"]) == 1
    assert capsys.readouterr().err == (
        "srtm: matplotlib, which measurements need, is not installed: pip install 'srtm-messaging[bench]'\n"
    )
    missing = "srtm._nothing"
    with pytest.raises(ModuleNotFoundError):
        main(["bench", "--help"])


@pytest.mark.parametrize(
    ("command", "name", "result"),
    [
        (["topic", "list"], "topic list", [KNOWN]),
        (["topic", "show", "roads"], "topic show", {**KNOWN, "fitting": {**FITTING, "reason": None}}),
        (["topic", "remove", "roads", "--purge"], "topic remove", {"removed": "roads", "purged": True}),
        (["status"], "status", {"brokers": [BROKER], "topics": [KNOWN]}),
    ],
)
def test_json_on_standard_output_is_the_whole_output(
    distributor: Distributor, capsys: pytest.CaptureFixture[str], command: list[str], name: str, result: object
) -> None:
    assert main([*command, "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert distributor.asked
    assert document == {"schema": 2, "command": name, "version": srtm.__version__, "result": result}


def test_json_in_a_file_leaves_the_table_for_people(
    distributor: Distributor, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["status", "--json", str(tmp_path / "status.json")]) == 0
    assert distributor.asked == [("GET", "/v1/brokers"), ("GET", "/v1/topics")]
    assert json.loads((tmp_path / "status.json").read_text())["result"]["topics"] == [KNOWN]
    shown = capsys.readouterr().out
    assert "broker-1" in shown
    assert "roads" in shown


def test_the_token_goes_along_as_a_bearer(distributor: Distributor) -> None:
    assert main(["topic", "list", "--token", "secret"]) == 0
    assert distributor.headers[0]["authorization"] == "Bearer secret"


def test_the_token_may_be_in_a_file(distributor: Distributor, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    assert main(["topic", "list", "--token-file", str(tmp_path / "token")]) == 0
    assert distributor.headers[0]["authorization"] == "Bearer secret"


def test_every_command_that_shows_a_token_to_another_service_reads_it_from_a_file_too() -> None:
    def commands(command: Any, path: str) -> Iterator[tuple[str, set[str]]]:
        for name, each in getattr(command, "commands", {}).items():
            yield from commands(each, f"{path} {name}")
        yield path, {option for parameter in command.params for option in parameter.opts}

    found = dict(commands(get_command(app), "srtm"))
    asking = {path: options for path, options in found.items() if options & {"--distributor", "--url"}}
    assert {"srtm topic show", "srtm limit check", "srtm limit serve", "srtm mqtt sessions"} <= asking.keys()
    assert {path for path, options in asking.items() if not {"--token-file", "--ca-file"} <= options} == set()


@pytest.mark.parametrize("arguments", [[], ["topic"], ["capacity"]])
def test_a_command_without_its_subcommand_shows_its_help(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(" ".join(["Usage: srtm", *arguments]))


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


def test_a_command_that_asks_a_service_waits_for_no_library_that_computes() -> None:
    program = (
        "import sys, srtm.commands.app\n"
        "print(sorted({'numpy', 'scipy', 'pydantic', 'fastapi', 'sqlalchemy', 'matplotlib'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert ended.stdout == "[]\n"


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
