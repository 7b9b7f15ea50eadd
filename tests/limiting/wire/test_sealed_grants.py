"""Grants come back from their bytes, and nobody makes or changes one without the cluster's key."""

from __future__ import annotations

from limiting.replication.node_grants import Grant
from limiting.wire import sealed_grants
from limiting.wire.cluster_key import ClusterKey
from limiting.wire.sealed_grants import read_grant, sealed
from srtm.limiting import limiter

KEY = ClusterKey(b"k" * 32)
GRANT = Grant(2**32 - 1, b"contract", b"sixteen bytes ..", 2**32 - 1, 2**60)


def test_a_grant_comes_back_from_its_bytes() -> None:
    assert read_grant(sealed(GRANT, KEY), KEY) == GRANT


def test_it_is_as_long_as_those_of_other_modes_so_that_one_text_has_several() -> None:
    assert len(sealed(GRANT, KEY)) == sealed_grants.GRANT_BYTES == limiter.GRANT_BYTES


def test_one_of_another_cluster_or_of_other_bytes_is_none() -> None:
    content = sealed(GRANT, KEY)
    assert read_grant(content, ClusterKey(b"l" * 32)) is None
    for place in range(len(content)):
        forged = bytearray(content)
        forged[place] ^= 1
        assert read_grant(bytes(forged), KEY) is None
    for other in (b"", content[:-1], content + b"\0"):
        assert read_grant(other, KEY) is None
