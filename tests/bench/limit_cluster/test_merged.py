"""The checker finds what a node let through without cause, and allows for what it could not know."""

from __future__ import annotations

from bench.limit_cluster.merged import Cut, Decision, judge


def takes(node: str, times: list[float], *, allowed: bool = True) -> list[Decision]:
    return [Decision(node, at, at + 0.001, allowed) for at in times]


def test_what_one_bucket_lets_through_is_never_above() -> None:
    judged = judge(takes("a", [1.0] * 5) + takes("b", [2.0, 3.0]), 1, 5, nodes=2, delay_s=0.0)
    assert (judged.excess, judged.unexplained, judged.allowed) == (0, 0, 7)


def test_a_node_may_not_know_what_another_took_within_the_delay() -> None:
    at_once = takes("a", [1.0] * 5) + takes("b", [1.0] * 5)
    judged = judge(at_once, 1, 5, nodes=2, delay_s=0.05)
    assert 4.9 < judged.excess <= 5
    assert judged.unexplained <= 0


def test_what_it_must_have_known_is_found() -> None:
    late = takes("a", [1.0] * 5) + takes("b", [1.5] * 5)
    assert judge(late, 0.001, 5, nodes=2, delay_s=0.05).unexplained > 0


def test_nobody_is_excused_for_the_own_takes() -> None:
    assert judge(takes("a", [1.0] * 6), 0.001, 5, nodes=2, delay_s=0.05).unexplained > 0.9


def test_a_cut_is_a_delay_as_long_as_itself() -> None:
    apart = takes("a", [1.0] * 5) + takes("c", [3.0] * 5)
    assert judge(apart, 0.001, 5, nodes=3, delay_s=0.05, cuts=[Cut("c", 0.5, 4.0)]).unexplained <= 0
    assert judge(apart, 0.001, 5, nodes=3, delay_s=0.05, cuts=[Cut("c", 1.5, 4.0)]).unexplained > 0


def test_a_killed_node_takes_a_part_with_it() -> None:
    decided = takes("a", [1.0] * 6)
    assert judge(decided, 0.001, 5, nodes=2, delay_s=0.0, kills=[0.5]).unexplained <= 0


def test_refusals_are_those_of_one_bucket() -> None:
    asked = takes("a", [1.0] * 5) + takes("b", [1.0] * 5, allowed=False)
    judged = judge(asked, 1, 5, nodes=2, delay_s=0.0)
    assert (judged.refused, judged.refused_centrally, judged.refused_percent) == (5, 5, 100)
