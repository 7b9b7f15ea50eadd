"""A key that stands twice in one object is refused, wherever it stands."""

import pytest

from srtm.errors import BadInput
from srtm.net.json_keys import refuse_repeated_keys


@pytest.mark.parametrize(
    "content",
    [b'{"rate": 1, "rate": 2}', b'[{"rate": 1, "b": 3, "rate": 1}]', b'{"a": [{"b": {"rate": 1, "r\\u0061te": 2}}]}'],
)
def test_a_key_that_stands_twice_is_named(content):
    with pytest.raises(BadInput, match="rate: 'rate': must not stand twice in one object"):
        refuse_repeated_keys(content)


@pytest.mark.parametrize(
    "content", [b"{}", b"3", b'{"a": {"b": 1}, "b": {"a": 1}}', b'["a", "a"]', b"[" + b"9" * 10_000 + b"]"]
)
def test_all_else_is_let_through(content):
    refuse_repeated_keys(content)


def test_what_is_nested_too_deep_is_refused():
    with pytest.raises(BadInput, match="nested"):
        refuse_repeated_keys(b"[" * 100_000 + b"]" * 100_000)
