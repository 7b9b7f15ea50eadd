"""A program on a host that does not do as it is told: the user is told its name and its last words."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import trio

from bench.harness.machine.lossy_link import READY
from bench.testbed.programs import Program
from srtm.errors import Unavailable


class Stubborn:
    """Neither says anything nor ends, whatever is done to it: its process is this one."""

    def __init__(self) -> None:
        (theirs, mine), (my_end, its_end) = os.pipe(), os.pipe()
        self.stdin, self.stdout = os.fdopen(mine, "wb"), os.fdopen(my_end, "rb")
        self.its_input, self.its_output = os.fdopen(theirs, "rb"), os.fdopen(its_end, "wb")
        self.pid = os.getpid()
        self.killed = False

    def poll(self) -> None:
        return None

    def kill(self) -> None:
        self.killed = True


@pytest.fixture
def stubborn() -> Iterator[Stubborn]:
    made = Stubborn()
    with made.its_input, made.its_output:
        yield made


def program(stubborn: Stubborn, folder: Path) -> Program:
    log = folder / "broker1.log"
    log.write_text("still tidying up\n")
    return Program("broker1", cast("subprocess.Popen[bytes]", stubborn), log)


async def test_one_that_cannot_be_ended_is_named_and_its_pipes_are_closed(stubborn, tmp_path, autojump_clock):
    there = program(stubborn, tmp_path)
    with pytest.raises(Unavailable, match="broker1 did not end within 10 s: still tidying up"):
        await there.end()
    assert stubborn.killed
    with pytest.raises(trio.ClosedResourceError):
        await there.read(1)
    with pytest.raises(trio.ClosedResourceError):
        await there.send_last(b"more")


async def test_one_that_closes_its_output_and_stays_is_named(stubborn, tmp_path, autojump_clock):
    there = program(stubborn, tmp_path)
    stubborn.its_output.close()
    with pytest.raises(Unavailable, match="broker1 did not end within 10 s: still tidying up"):
        await there.read_all()


async def test_one_that_never_says_that_it_is_ready_is_named(stubborn, tmp_path, autojump_clock):
    with pytest.raises(Unavailable, match="broker1 did not start within 30 s: still tidying up"):
        await program(stubborn, tmp_path).started(READY, 30.0)


async def test_one_that_says_something_else_did_not_start_and_one_that_is_ready_did(stubborn, tmp_path):
    there = program(stubborn, tmp_path)
    stubborn.its_output.write(READY + bytes(len(READY)))
    stubborn.its_output.flush()
    await there.started(READY, 30.0)
    with pytest.raises(Unavailable, match="broker1 did not start: still tidying up"):
        await there.started(READY, 30.0)
