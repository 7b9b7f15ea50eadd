"""The Python, TOML and JSON of the documents: programs run, or at least find what they import; files are taken.

``tests/test_examples.py`` runs what needs a cluster: the programs of README.md and docs/mqtt.md.
``tests/system/test_shown_sessions.py`` plays all shell lines.
"""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.harness.load.histogram_files import Curves, interval_log
from srtm.contracts.contract_file import read_contract_text
from srtm.errors import LimitReached
from srtm.topics.file import read_topic_text
from srtm.topics.spec import parse_topic_json
from tests.support.run_results import result
from tests.support.shown_blocks import Block, code_blocks
from tests.support.shown_commands import unknown_flags

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    path
    for pattern in ("*.md", "docs/*.md", "examples/*.md", "wheels/client/*.md")
    for path in sorted(ROOT.glob(pattern))
    if path.name != "CHANGELOG.md"
]
BLOCKS = [block for path in DOCUMENTS for block in code_blocks(path.relative_to(ROOT).as_posix(), path.read_text())]
# Languages whose blocks this test does not read.
NOT_READ = {
    "mermaid": "drawn by whoever shows the page",
    "js": "needs the library of MQTT.js: `make interop-mqtt` plays that client",
    "java": "needs HiveMQ's library: `make interop-mqtt` plays that client",
}
# What a topic file must have beside a part that a document shows.
TOPIC = {"name": "t", "rate": 1e6, "burst": 1e5, "slo": {"percentile": 99, "latency_ms": 50}}


class Lists(dict[str, str]):
    """Every CSV file that a topic file may name."""

    def __missing__(self, _name: str) -> str:
        return "id,rate\na,1\n"

    def __contains__(self, _name: object) -> bool:
        return True


def of(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


def shown(block: Block) -> str:
    return f"{block.document}: {block.first_line}"


def test_each_language_is_read_here_or_has_a_reason_not_to_be() -> None:
    assert {block.language for block in BLOCKS} == {"python", "toml", "json"} | NOT_READ.keys()
    assert len(of("python")) >= 11
    assert len(of("toml")) >= 6


@pytest.mark.parametrize("block", of("json"), ids=shown)
def test_json_can_be_read(block: Block) -> None:
    json.loads(block.text)


@pytest.mark.parametrize("block", of("toml"), ids=shown)
def test_toml_is_taken_by_what_reads_it(block: Block) -> None:
    document = tomllib.loads(block.text)
    if isinstance(document.get("contracts"), list):
        assert read_contract_text(block.text)
    elif document.keys() & {"broker", "distributor"}:
        for service, settings in document.items():
            assert unknown_flags([service, *(f"--{key.replace('_', '-')}" for key in settings)]) == []
    else:
        lacking = {key: value for key, value in TOPIC.items() if key not in document}
        head = "".join(f"{key} = {json.dumps(value).replace(':', ' =')}\n" for key, value in lacking.items())
        assert parse_topic_json(read_topic_text(head + block.text, Lists())).name


@pytest.mark.parametrize("block", of("python"), ids=shown)
def test_python_compiles_and_finds_what_it_imports(block: Block) -> None:
    tree = ast.parse(block.text)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(imports, []), shown(block), "exec"), {})


def programs(document: str) -> Iterator[Block]:
    return (block for block in of("python") if block.document == document)


def test_the_limits_in_a_program_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [contracts] = [
        block.text for block in of("toml") if block.document == "docs/limiting.md" and "burst = 40" in block.text
    ]
    mail = '[[contracts]]\nnamespace = "mail"\nsubject = "*"\npolicies = [{ name = "b", rate = 0.001, burst = 1 }]\n'
    Path("contracts.toml").write_text(contracts + mail)
    added: list[dict[str, Any]] = []
    app = SimpleNamespace(add_middleware=lambda kind, **given: added.append({"kind": kind, **given}), wsgi_app=print)
    names: dict[str, Any] = {"app": app}
    for block in programs("docs/limiting.md"):
        exec(compile(block.text, shown(block), "exec"), names)
        names.setdefault("limits", added[0]["limits"])
    assert [one["namespace"] for one in added] == ["api", "api"]
    for one in added:
        one.pop("kind")(None, **one)
    assert added[1]["subject"]({"path": "/", "session": {"user": "ann"}}) == "user:ann"
    assert type(app.wsgi_app).__module__ == "srtm.limiting.wsgi"
    names["send"]("ann", "hello")
    with pytest.raises(LimitReached):
        names["send"]("ann", "again")


def test_a_log_of_a_measurement_is_read_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("NAME.hlog").write_text(interval_log("a title", Curves.of(result(), 2.0)))
    [block] = programs("docs/benchmarking.md")
    exec(compile(block.text, shown(block), "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert all(line.endswith(" ms") for line in lines)


def test_a_client_that_follows_goes_to_the_server_that_it_is_told() -> None:
    [_, follow] = programs("docs/mqtt.md")
    gone: list[tuple[str, int]] = []
    client = SimpleNamespace(connect_async=lambda host, port, properties: gone.append((host, port)))
    names: dict[str, Any] = {"properties": SimpleNamespace(), "connect_properties": None}
    exec(compile(follow.text, shown(follow), "exec"), names)
    on_disconnect: Callable[..., None] = names["on_disconnect"]
    for reason in (0x9C, 0x9D, 0x8E):
        told = SimpleNamespace(ServerReference="[::1]:1883")
        on_disconnect(client, None, None, SimpleNamespace(value=reason), told)
    assert gone == [("[::1]", 1883)] * 2
