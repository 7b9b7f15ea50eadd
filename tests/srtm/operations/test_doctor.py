"""``srtm doctor``: each judgement at its boundaries, and the facts as this machine has them."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from srtm.cli import main
from srtm.operations import machine_checks as checks
from srtm.operations.doctor import _quota, examine
from srtm.operations.machine_checks import Finding

GB = 10**9


@pytest.mark.parametrize(
    ("finding", "state"),
    [
        (checks.descriptors(None, None), "ok"),
        (checks.descriptors(65_536, 65_536), "ok"),
        (checks.descriptors(65_535, None), "warn"),
        (checks.descriptors(1024, 4096), "warn"),
        (checks.descriptors(1023, 1023), "fail"),
        (checks.clock("tsc", True)[0], "ok"),
        (checks.clock("hpet", True)[0], "warn"),
        (checks.clock("", None)[0], "ok"),
        (checks.clock("tsc", False)[1], "warn"),
        (checks.clock("tsc", None)[1], "ok"),
        (checks.capabilities(1 << 13)[0], "ok"),
        (checks.capabilities(1 << 13)[1], "warn"),
        (checks.capabilities(None)[0], "ok"),
        (checks.kernel_stamps(True, ""), "ok"),
        (checks.kernel_stamps(False, "bytes come without a stamp"), "warn"),
        (checks.memory(8 * GB, None, 0)[0], "ok"),
        (checks.memory(8 * GB, 2 * GB, 0)[0], "warn"),
        (checks.memory(GB // 4, None, 0)[0], "fail"),
        (checks.memory(8 * GB, None, GB)[1], "warn"),
        (checks.memory(None, None, 0)[0], "ok"),
        (checks.processors(2, None), "ok"),
        (checks.processors(4, 4.0), "ok"),
        (checks.processors(4, 1.5), "warn"),
        (checks.processors(1, None), "warn"),
        (checks.disk("d", 3 * GB, ""), "ok"),
        (checks.disk("d", GB, ""), "warn"),
        (checks.disk("d", GB // 10, ""), "fail"),
        (checks.disk("d", None, "No such file or directory"), "fail"),
        (checks.disk("d", 3 * GB, "cannot be written"), "fail"),
    ],
)
def test_each_judgement_has_its_boundaries_and_says_what_to_do(finding: Finding, state: str) -> None:
    assert finding.state == state
    assert bool(finding.remedy) is (state != "ok")


def test_a_port_in_use_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        main(["doctor", "--port", str(port), "--data", str(tmp_path)])
    assert f"warn  ports: {port}: something listens there" in capsys.readouterr().out


def test_a_directory_that_is_not_there_fails_the_machine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["doctor", "--data", str(tmp_path / "no"), "--json", "-"]) == 1
    findings = json.loads(capsys.readouterr().out)["result"]
    assert {finding["check"]: finding["state"] for finding in findings}["disk"] == "fail"
    assert main(["doctor", "--port", "0"]) == 2


def test_facts_are_read_from_the_kernels_files(tmp_path: Path) -> None:
    files = {
        "proc/self/status": "Name:\tx\nCapEff:\t0000000000802000\n",
        "proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 9000000 kB\nSwapTotal: 2000000 kB\nSwapFree: 1000000 kB\n",
        "sys/fs/cgroup/memory.max": "1500000000\n",
        "sys/fs/cgroup/cpu.max": "50000 100000\n",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "acpi_pm\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = {(one.check, one.found) for one in examine(tmp_path, (), tmp_path)}
    assert found >= {
        ("clock source", "acpi_pm"),
        ("capabilities", "CAP_NET_RAW is here: --arrival-clock packet works"),
        ("capabilities", "CAP_SYS_NICE is here: --realtime works"),
        ("memory", "1.5 GB available, at most 1.5 GB"),
        ("swap", "1.0 GB"),
    }
    assert any(check == "processors" and text.startswith("a quota of 0.5 of ") for check, text in found)


def test_a_machine_without_these_files_is_judged_all_the_same(tmp_path: Path) -> None:
    states = {one.check: one.state for one in examine(tmp_path, (), tmp_path)}
    assert states["memory"] == "ok"
    assert states["capabilities"] == "ok"


@pytest.mark.parametrize(("text", "cores"), [("max 100000", None), ("150000 100000", 1.5), ("", None)])
def test_a_quota_is_read_in_cores(text: str, cores: float | None) -> None:
    assert _quota(text) == cores
