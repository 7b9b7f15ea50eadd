"""Tests that send SIGINT hold under a parent that ignores it, such as the shell of ``make test &``."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.signals import let_children_be_interrupted

NUMBERS = [signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM]


@contextmanager
def ignored(number: signal.Signals) -> Iterator[None]:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


def end_of_a_child(number: signal.Signals) -> int:
    """How a program ended that was sent ``number`` while it waited."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"it runs\n")
        child.stdin.flush()
        child.stdout.readline()
        child.send_signal(number)
        child.stdin.close()
        return child.wait(timeout=30)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_child_can_be_interrupted_though_this_process_ignores_the_signal(number: signal.Signals) -> None:
    with ignored(number):
        assert end_of_a_child(number) == 0
        let_children_be_interrupted()
        assert end_of_a_child(number) == -number
        signal.raise_signal(number)  # and this process still ignores it


def test_what_a_process_does_not_ignore_stays_as_it_was() -> None:
    before = [signal.getsignal(number) for number in NUMBERS]
    let_children_be_interrupted()
    assert [signal.getsignal(number) for number in NUMBERS] == before


@pytest.mark.slow
def test_these_tests_hold_under_a_parent_that_ignores_sigint() -> None:
    with ignored(signal.SIGINT):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "child_of_the_tests"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "1 passed" in done.stdout, done.stdout


def test_a_child_of_the_tests_can_be_interrupted() -> None:
    assert end_of_a_child(signal.SIGINT) == -signal.SIGINT
