"""The mean access delay of a topic on a broker, as its histories tell it."""

import pytest

from distributor.sync.history_store import HistoryStore, problem
from srtm.control import HistoryReport, TopicHistory
from tests.support.distributor_in_process import settle, spec

NOW_NS = 1_790_000_000_000_000_000
BIN_NS = 100_000_000
MS = 1_000_000


def history(arrivals, **fields):
    nothing = {"waiting": [0] * len(arrivals), "unfinished": [0.0] * len(arrivals)}
    first_ns = NOW_NS - len(arrivals) * BIN_NS
    told = {"topic": "cars", "share_version": 3, "first_ns": first_ns, "supply": [(0, 100.0)]}
    return TopicHistory(**{**told, **nothing, "arrivals": arrivals, **fields})


@pytest.fixture
async def histories(distributor):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec(mode="fitted"))
    await settle(a, b)
    return HistoryStore(distributor.registry, wall_ns=lambda: NOW_NS)


def delays(histories, *told):
    for one in told:
        histories.take("a", HistoryReport(incarnation="1", topics=[one]))
    return histories.access_delay_ms("cars")


async def test_it_is_that_of_the_messages_of_the_last_second_over_all_reports(histories):
    before = history([100] * 10, delay_ns=[900 * MS] * 10)
    told = history([10] * 4, delay_ns=[0, 0, 0, 80 * MS])
    assert delays(histories, before, told) == {"a": pytest.approx((6 * 900 + 80) / (6 * 100 + 4 * 10))}


async def test_it_is_nothing_where_nothing_waited_and_not_known_where_nothing_came(histories):
    assert delays(histories, history([3, 4])) == {"a": 0.0}
    assert delays(histories, history([0] * 10)) == {}


async def test_it_is_not_known_under_a_share_of_nothing_but_where_no_rate_is_told_it_is(histories):
    told = {"delay_ns": [5 * MS, 0]}
    assert delays(histories, history([1, 1], supply=[(0, 100.0), (1, 0.0)], **told)) == {}
    assert delays(histories, history([0] * 9 + [1], supply=[])) == {"a": 0.0}


@pytest.mark.parametrize(
    "fields",
    [
        {"delay_ns": [1]},
        {"delay_ns": [1, -1]},
        {"delay_ns": [1, (1 << 53) + 1]},
        {"supply": [(0, -1.0)]},
        {"supply": [(0, float("nan"))]},
        {"supply": [(-1, 1.0)]},
        {"supply": [(2, 1.0)]},
        {"supply": [(1, 1.0), (1, 2.0)]},
        {"supply": [(1, 1.0), (0, 2.0)]},
    ],
)
def test_delays_and_rates_that_cannot_be_make_no_history(fields):
    assert problem(history([1, 1]), NOW_NS) is None
    assert problem(history([1, 1], **fields), NOW_NS) is not None


async def test_the_arrival_rate_leaves_out_what_waited_before(histories):
    delays(histories, history([108] * 10, waiting=[25_000] * 10))
    assert histories.arrival_rates("cars") == {"a": pytest.approx(1080.0)}


async def test_figures_have_an_age(histories, mock_clock):
    delays(histories, history([10] * 10))
    mock_clock.jump(3.0)
    assert histories.ages_s("cars") == {"a": pytest.approx(3.0)}
    assert histories.ages_s("boats") == {}
