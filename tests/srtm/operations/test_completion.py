"""A real bash completes the commands of ``srtm``, those too that parse their arguments by themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
SRTM = f'{sys.executable} -c "import sys; from srtm.cli import main; sys.exit(main())"'


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a bash reads at its start, with a command ``srtm`` of this checkout."""
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed here")
    folder = tmp_path_factory.mktemp("completion")
    command = folder / "srtm"
    command.write_text(f"#!/bin/sh\nexec {SRTM}\n")
    command.chmod(0o755)
    environment = os.environ | {"_SRTM_COMPLETE": "source_bash", "PYTHONPATH": os.curdir}
    done = subprocess.run([command], env=environment, capture_output=True, text=True, timeout=60, check=True)
    file = folder / "completion.bash"
    file.write_text(done.stdout)
    return file


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("topic pl", {"plan"}),
        ("topic set --on", {"--on-excess"}),
        ("broker --tls-c", {"--tls-cert", "--tls-client-auth-policy"}),
        ("nsqd --max-m", {"--max-memory", "--max-msg-timeout", "--max-msg-size", "--max-mpub-messages"}),
        ("bench table", {"table1"}),
        ("topic nothing", set()),
    ],
)
def test_bash_completes_what_begins_so(script: Path, words: str, found: set[str]) -> None:
    typed = f"srtm {words}"
    code = f"source {script}; COMP_WORDS=({typed}); COMP_CWORD={len(typed.split()) - 1}; "
    code += f"_srtm_completion {script.parent}/srtm; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    environment = os.environ | {"PYTHONPATH": os.curdir}
    done = subprocess.run(["bash", "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert (set(done.stdout.split()), done.stderr) == (found, "")
