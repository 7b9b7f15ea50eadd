"""Plays the shell lines of a document, as they stand there, on a host of its own: a network namespace with the
addresses that documents name, where the usual ports are free."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.shown_blocks import block_lines

ROOT = Path(__file__).resolve().parents[2]
HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.9")  # of the documents
_PROGRAMS = ("srtm", "curl", "printf", "head", "export", "mosquitto_sub", "mosquitto_pub")
_PATIENCE_S = 60
_ENDED = "::ended"
_PREPARED = f"""
set -u
ip link set lo up
for host in {" ".join(HOSTS)}; do ip address add $host/32 dev lo; done
mount -t tmpfs tmpfs /var/lib && mkdir /var/lib/srtm
until_answers() {{ timeout {_PATIENCE_S} sh -c "until curl -sf -o /dev/null $1; do sleep 0.1; done"; }}
until_true() {{ timeout {_PATIENCE_S} sh -c "until $1; do sleep 0.1; done"; }}
stop() {{ kill $(jobs -p) 2>/dev/null; wait; }}
trap stop EXIT
"""


class Step(NamedTuple):
    """How a shown line is played. A line without a step ends by itself with status 0."""

    before: str = ""  # shell lines that come before it
    instead: Mapping[str, str] = {}  # {placeholder of the document: what stands for it}
    ready: str = ""  # of a line that does not end: the shell line that waits for it
    after: str = ""  # shell lines that come after it
    statuses: Sequence[int] = (0,)


class Played(NamedTuple):
    """What became of a line."""

    line: str
    status: int
    printed: str


def shell_lines(text: str) -> list[str]:
    """The lines of a document's indented blocks that a shell runs, continued lines joined; without comments."""
    found = [re.sub(r"\s{2,}", " ", line.strip().replace(".venv/bin/", "")) for line in block_lines(text)]
    return [re.sub(r" # .*$", "", line) for line in found if line.split(" ")[0] in _PROGRAMS]


def has_namespaces() -> bool:
    """Whether this user may have a host of his own here."""
    tools = all(shutil.which(name) for name in ("unshare", "ip", "curl"))
    return tools and subprocess.run(_alone("true"), capture_output=True, check=False).returncode == 0


def _alone(script: str) -> list[str]:
    spaces = ["--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return ["unshare", *spaces, "bash", "-c", script]


def played(lines: Iterable[str], steps: Mapping[str, Step], begin: str, folder: Path) -> list[Played]:
    """Play ``lines`` one after the other. ``steps``: {begin of a line: how}. ``begin``: shell lines before all.

    ``folder``: the current directory of the shell. Raises subprocess.CalledProcessError where the host cannot be made.
    """
    (folder / "bin").mkdir()
    for name, command in {"srtm": "-m srtm", "python": ""}.items():
        (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {sys.executable} {command} "$@"\n')
        (folder / "bin" / name).chmod(0o755)
    for name in ("examples", "bench"):
        (folder / name).symlink_to(ROOT / name)
    script, shown = [_PREPARED, begin], []
    for number, line in enumerate(lines):
        step = next((step for beginning, step in steps.items() if line.startswith(beginning)), Step())
        command = line
        for word, value in step.instead.items():
            command = command.replace(word, value)
        out = folder / f"{number}.out"
        script += [step.before, _run(command, step, out), f"echo {_ENDED} {number} $?", step.after]
        shown.append((line, out))
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    environment.pop("SRTM_DISTRIBUTOR", None)
    done = subprocess.run(
        _alone("\n".join(script)), cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=500
    )
    ends = dict(re.findall(rf"^{_ENDED} (\d+) (\d+)$", done.stdout, re.MULTILINE))
    assert len(ends) == len(shown), done.stderr
    return [Played(line, int(ends[str(number)]), out.read_text()) for number, (line, out) in enumerate(shown)]


def _run(command: str, step: Step, out: Path) -> str:
    if step.ready:
        background = command if command.endswith("&") else f"{command} &"
        # A redirection of the line's own comes later, and counts.
        return f"{{ {background} }} > {out} 2>&1\n{step.ready}"
    return f"{{ {command}\n}} > {out} 2>&1 < /dev/null"
