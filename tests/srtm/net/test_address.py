"""Which addresses only this host reaches."""

import pytest

from srtm.net.address import is_loopback


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:4151", True),
        ("127.9.9.9:1", True),
        ("[::1]:4151", True),
        ("localhost:4151", True),
        ("/run/srtm.sock", True),
        ("0.0.0.0:4151", False),
        ("[::]:4151", False),
        ("10.0.0.1:4151", False),
        ("broker-1:4151", False),
    ],
)
def test_loopback_is_known_by_the_address(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected
