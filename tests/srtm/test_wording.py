import pytest

from srtm.text import plural


@pytest.mark.parametrize(("count", "said"), [(0, "rounds"), (1, "round"), (2, "rounds")])
def test_a_noun_stands_alone_behind_one_only(count, said):
    assert plural(count, "round") == said
