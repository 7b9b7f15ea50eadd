"""Who is on the testbed."""

import pytest

from bench.testbed.net.layout import Link, hosts
from srtm.errors import BadInput


def test_the_papers_testbed_has_seven_hosts_with_addresses_of_their_own():
    layout = hosts()
    assert [host.name for host in layout.hosts] == [
        "control",
        "broker1",
        "broker2",
        "publisher1",
        "publisher2",
        "subscriber1",
        "subscriber2",
    ]
    assert len({host.address for host in layout.hosts}) == 7


def test_the_largest_testbed_has_no_address_twice():
    layout = hosts(brokers=32, publishers=32, subscribers=32)
    assert len({host.address for host in layout.hosts}) == 97


def test_a_setting_of_a_role_holds_for_each_of_it_and_a_later_one_of_a_host_over_it():
    layout = hosts(link=Link(delay_ms=1.0), each=["broker:delay_ms=5", "broker2:delay_ms=7"])
    delays = {host.name: host.link.delay_ms for host in layout.hosts}
    assert (delays["broker1"], delays["broker2"], delays["control"]) == (5.0, 7.0, 1.0)


def test_only_links_that_delay_or_lose_are_emulated():
    layout = hosts(each=["broker1:loss=0.1", "subscriber1:jitter_ms=1"])
    assert [host.name for host in layout.emulated] == ["broker1", "subscriber1"]


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ("nobody:delay_ms=1", "host"),
        ("broker1", "host"),
        ("broker1:colour=2", "host"),
        ("broker1:delay_ms=", "host"),
        ("broker1:delay_ms=x", "delay_ms"),
        ("broker1:delay_ms=-1", "delay_ms"),
        ("broker1:delay_ms=nan", "delay_ms"),
        ("broker1:loss=1", "loss"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(words, field):
    with pytest.raises(BadInput) as refused:
        hosts(each=[words])
    assert refused.value.field == field


@pytest.mark.parametrize("count", [0, 33])
def test_a_number_of_hosts_out_of_bounds_is_refused(count):
    with pytest.raises(BadInput, match="brokers"):
        hosts(brokers=count)
