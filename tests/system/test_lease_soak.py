"""Both lease rules, and GDRL, on real processes in network namespaces, for a while; ``make soak``: ten minutes."""

import subprocess
import sys

import pytest

from srtm.errors import Unavailable
from tests.faults.program import check_means


def what_is_missing() -> str:
    try:
        check_means()
    except Unavailable as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.skipif(what_is_missing() != "", reason=what_is_missing())
def test_nothing_is_let_go_above_the_envelope_and_the_shares_come_back_to_it():
    command = [sys.executable, "-m", "tests.faults.lease_soak", "--seconds", "20", "--seed", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "passed" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_killed_distributor_costs_no_message_and_no_delay_where_leases_are_kept():
    command = [sys.executable, "-m", "tests.faults.distributor_loss", "--seconds", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "refused 0, lost 0" in done.stdout
