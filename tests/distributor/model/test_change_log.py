"""Which topics have changed since."""

from hypothesis import given
from hypothesis import strategies as st

from distributor.model.change_log import Changes


@given(st.lists(st.sampled_from("abcdef")), st.lists(st.sampled_from("abcdef")))
def test_all_that_has_changed_since_a_moment_is_told_once_and_nothing_else(
    earlier: list[str], later: list[str]
) -> None:
    changes = Changes()
    changes.note(earlier)
    moment = changes.count
    assert changes.since(moment) == []
    changes.note(later)
    assert sorted(changes.since(moment)) == sorted(set(later))
    assert sorted(changes.since(0)) == sorted({*earlier, *later})


def test_what_is_forgotten_is_told_no_more_and_counts_go_on() -> None:
    changes = Changes(count=7)
    changes.note("ab")
    changes.step()
    changes.forget("a")
    changes.forget("never there")
    assert (changes.since(7), changes.count) == (["b"], 10)
