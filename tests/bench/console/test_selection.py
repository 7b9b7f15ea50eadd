"""Names on a command line."""

from __future__ import annotations

import pytest

from bench.console.selection import chosen
from srtm.errors import BadInput

KNOWN = {"b": 1, "a": 2, "c": 3}


def test_all_are_taken_in_their_order_unless_some_are_named() -> None:
    assert chosen("row", [], KNOWN) == ["b", "a", "c"]
    assert chosen("row", ["c", "b"], KNOWN) == ["c", "b"]
    assert chosen("row", [], KNOWN, usual=("a", "b")) == ["a", "b"]


def test_what_is_named_twice_is_taken_once() -> None:
    assert chosen("step", ["a", "c", "a"], KNOWN) == ["a", "c"]


def test_others_are_refused_with_those_that_there_are_and_why() -> None:
    with pytest.raises(BadInput, match=r"row: 'x': must be one of b, a, c$"):
        chosen("row", ["a", "x"], KNOWN)
    with pytest.raises(BadInput, match=r"real: 'x': must be one of b, a, c: two cores"):
        chosen("real", ["x"], KNOWN, why="two cores do not carry the others")
