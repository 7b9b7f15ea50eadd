"""What a testbed needs, told before anything is made."""

import msgspec
import pytest

from bench.harness.machine import namespaces as own_network
from bench.testbed.net.capabilities import Means, check, means, uses
from bench.testbed.net.layout import Link, hosts
from srtm.errors import Unavailable

ALL = Means(lacking=[], netem=True, tun=True)
LATE = hosts(link=Link(delay_ms=1.0))


def without(**fields: object) -> Means:
    return msgspec.structs.replace(ALL, **fields)


def test_what_a_layout_does_not_ask_for_may_be_missing():
    nothing = without(netem=False, tun=False)
    check(hosts(), nothing)
    assert uses(hosts(), nothing) == "no delay, jitter or loss"


def test_a_relay_does_where_there_is_no_netem_and_the_result_says_which():
    check(LATE, ALL)
    check(LATE, without(netem=False))
    assert uses(LATE, ALL) == "delay, jitter and loss by netem"
    assert uses(LATE, without(netem=False)) == "delay, jitter and loss by a relay of ours between TAP devices"


@pytest.mark.parametrize(
    ("missing", "words"),
    [({"lacking": ["CAP_SYS_ADMIN"]}, "CAP_SYS_ADMIN"), ({"netem": False, "tun": False}, "sch_netem")],
)
def test_what_is_asked_for_and_not_there_is_named(missing, words):
    with pytest.raises(Unavailable, match=words):
        check(LATE, without(**missing))


def test_without_capabilities_nothing_is_tried_and_both_are_named(monkeypatch):
    monkeypatch.setattr(own_network, "effective_capabilities", lambda: 0)
    found = means()
    assert found.lacking == ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]
    with pytest.raises(Unavailable, match="needs CAP_NET_ADMIN; CAP_SYS_ADMIN"):
        check(hosts(), found)
