"""The list of nodes, and the settings that go with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from limiting.config import LimitConfig, mode_named
from limiting.nodes.links import nodes_of
from limiting.nodes.members import MOST_NODES, read_members
from srtm.errors import BadInput


def test_all_nodes_are_read_from_one_list() -> None:
    members = read_members("b", "a=10.0.0.1:4197, b=[::1]:4197")
    assert members.addresses == {"a": "10.0.0.1:4197", "b": "[::1]:4197"}
    assert list(members.numbers.values()) == ["a"]


@pytest.mark.parametrize(
    ("peers", "why"),
    [
        ("a:4197,b=h:1", "NAME=HOST:PORT"),
        ("a=h:1,a=h:2", "two nodes"),
        ("a=h:1", "2 to 64"),
        ("x=h:1,b=h:2", "must be one of peers"),
        ("a=h,b=h:2", "HOST:PORT"),
        ("a b=h:1,b=h:2", "NAME=HOST:PORT"),
        (",".join(f"n{i}=h:1" for i in range(MOST_NODES)) + ",a=h:1", "2 to 64"),
    ],
)
def test_a_list_that_cannot_be_is_refused(peers: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        read_members("a", peers)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"node": "a"}, "peers"),
        ({"peers": "a=h:1,b=h:2"}, "node"),
        ({"node": "a", "peers": "a=h:1,b=h:2"}, "cluster_key_file"),
        ({"mode": "exact"}, "mode"),
        ({"node": "a", "peers": "a=h:1,b=h:2", "cluster_key_file": "k", "peers_ca": "ca"}, "tls_cert"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, str], field: str) -> None:
    with pytest.raises(BadInput, match=field):
        LimitConfig(**settings)  # type: ignore[arg-type]


def test_the_mode_of_several_nodes_is_replicated_unless_said(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef")
    config = LimitConfig(node="a", peers="a=h:1,b=h:2", cluster_key_file=str(key))
    nodes = nodes_of(config)
    assert nodes is not None
    assert nodes.mode == "replicated"
    assert nodes_of(LimitConfig()) is None
    with pytest.raises(BadInput, match="cluster_key_file"):
        nodes_of(LimitConfig(node="a", peers="a=h:1,b=h:2", cluster_key_file=str(tmp_path / "none")))
    assert mode_named("exact") == "exact"
    with pytest.raises(BadInput, match="mode"):
        mode_named("shares")
