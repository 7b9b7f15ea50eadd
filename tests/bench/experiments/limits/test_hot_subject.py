"""The page of one hot subject, with a tenth of its requests."""

from __future__ import annotations

import pytest

from bench.experiments.lab.figure import Effort
from bench.experiments.limits import hot_subject

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def figure():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hot_subject, "RATE", 1_000)
        patch.setattr(hot_subject, "SECONDS", 3.0)
        patch.setattr(hot_subject, "LOADS", (0.9, 3.0))
        patch.setattr(hot_subject, "BETAS", hot_subject.BETAS[1:2])
        return hot_subject.figure(Effort(repetitions=1))


def test_what_does_not_need_the_full_rate_holds(figure):
    # with a burst of 3 tokens a node, chance is as large as what is on its way
    small = {
        "replicated: above, of what is asked within frame and wire",
        "replicated: said with frames of 1, 5 and 20 ms, 3 times the rate",
    }
    assert {check.what for check in figure.checks if not check.kept} == small


def test_deciding_alone_is_above_with_a_long_wire_and_shares_end_that(figure):
    late = {one["mode"]: one for one in figure.rows if one["load"] == 3 and one["wire_ms"] == 50}
    assert late["replicated"]["above_later"] > 0 == late["auto"]["above_later"]


def test_each_claim_can_fail(figure):
    bad = {"above": 1e9, "entries": 1e9, "above_later": 1.0, "let_percent": 1.0}
    for name, value in bad.items():
        rows = [{**one, name: value} for one in figure.rows]
        missed = [sum(not check.kept for check in checks) for checks in (figure.checks, hot_subject.checks(rows))]
        assert missed[0] < missed[1], name
