"""Which addresses only this host reaches, and what is a host alone."""

import pytest

from srtm.errors import BadInput
from srtm.net.address import check_host, is_loopback


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


@pytest.mark.parametrize("host", ["broker-1", "b.example", "10.0.0.1", "::1", "fe80::1%eth0"])
def test_a_host_alone_is_a_name_or_an_address(host: str) -> None:
    check_host("broadcast_address", host)


@pytest.mark.parametrize("text", ["", "a b", "host:80", "10.0.0.1:80", "[::1]", "http://host", "a/b", "a..b"])
def test_what_is_no_host_alone_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_host("broadcast_address", text)
    assert (caught.value.field, caught.value.value) == ("broadcast_address", text)
