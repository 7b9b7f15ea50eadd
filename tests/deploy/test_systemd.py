"""The units: systemd takes them, they are hardened, and their commands are ours."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.deployed_commands import unknown_words

UNITS = sorted((Path(__file__).resolve().parents[2] / "deploy" / "systemd").glob("*.service"))
MOST_EXPOSED = 20  # in tenths, as --threshold takes it; systemd calls below 2.0 "OK", and most services have 9.6
ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed here")


def test_there_is_a_unit_for_each_service() -> None:
    names = ["srtm-adaptor.service", "srtm-broker@.service", "srtm-distributor.service", "srtm-limit.service"]
    assert [unit.name for unit in UNITS] == names


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_command_of_a_unit_is_one_of_ours(unit: Path) -> None:
    (command,) = re.findall(r"^ExecStart=/opt/srtm/bin/srtm (.*)$", unit.read_text(), re.MULTILINE)
    assert unknown_words(command.split()) == []


@needs_systemd
@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_hardened(unit: Path) -> None:
    assert ANALYZE is not None
    done = subprocess.run(
        [ANALYZE, "security", "--offline=yes", f"--threshold={MOST_EXPOSED}", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "offline" in done.stderr:
        pytest.skip(f"this systemd rates no file: {done.stderr.strip()}")
    assert done.returncode == 0, done.stdout[-400:] + done.stderr


@needs_systemd
@pytest.mark.slow
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    assert ANALYZE is not None
    command = tmp_path / "srtm"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    copies = []
    for unit in UNITS:
        copy = tmp_path / unit.name.replace("@.", "@b1.")
        copy.write_text(unit.read_text().replace("/opt/srtm/bin/srtm", str(command)))
        copies.append(str(copy))
    environment = {**os.environ, "SYSTEMD_LOG_LEVEL": "warning"}
    done = subprocess.run(
        [ANALYZE, "verify", "--recursive-errors=no", *copies],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    ours = [line for line in done.stderr.splitlines() if "srtm" in line]
    assert (done.returncode, ours) == (0, [])
