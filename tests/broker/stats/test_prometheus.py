"""Series of topics: histograms around the promise, as many topics as the setting says, none of what is removed."""

from __future__ import annotations

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.config import BrokerConfig
from srtm.errors import BadInput
from tests.support.broker_admin import Admin


async def samples(admin: Admin) -> dict[tuple[str, ...], float]:
    """{(name, topic, le or channel or kind or namespace): value}"""
    text = (await admin.ask("GET", "/metrics")).body.decode()
    return {
        (
            one.name,
            *(one.labels[label] for label in ("topic", "le", "channel", "kind", "namespace") if label in one.labels),
        ): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def shown_topics(found: dict[tuple[str, ...], float], name: str = "srtm_topic_received_total") -> set[str]:
    return {key[1] for key in found if key[0] == name}


async def test_latencies_are_histograms_with_the_promise_as_a_bound():
    admin = Admin()
    admin.engine.create_topic("t")
    admin.engine.set_promise("t", 5_000_000)
    found = await samples(admin)
    for name in ("access", "processing", "latency"):
        metric = f"srtm_topic_{name}_seconds"
        bounds = [key[2] for key in found if key[0] == f"{metric}_bucket"]
        assert (bounds[0], bounds[7], bounds[11:]) == ("3.9062e-05", "0.005", ["0.08", "+Inf"])
        assert [found[f"{metric}_bucket", "t", bound] for bound in ("0.0025", "0.005", "0.08", "+Inf")] == [1, 3, 3, 6]
        assert (found[f"{metric}_count", "t"], found[f"{metric}_sum", "t"]) == (6, 0.004)
    assert found["srtm_topic_late_total", "t"] == 3


async def test_as_many_topics_and_channels_have_series_as_the_setting_says_the_busiest():
    admin = Admin(config=BrokerConfig(name="b1", metrics_topics=2))
    for number in range(5):
        topic = f"t{number}"
        admin.engine.create_topic(topic)
        admin.engine.create_channel(topic, "a")
        admin.engine.create_channel(topic, "b")
        admin.engine.topics[topic].received = number
    found = await samples(admin)
    for name in ("srtm_topic_received_total", "srtm_topic_late_total", "srtm_topic_access_seconds_count"):
        assert shown_topics(found, name) == {"t3", "t4"}
    assert len([key for key in found if key[0] == "srtm_channel_depth"]) == 2
    assert (found["srtm_metrics_left_out", "topic"], found["srtm_metrics_left_out", "channel"]) == (3, 8)
    assert found["srtm_broker_topics",] == 5


async def test_as_many_contracts_have_series_as_the_setting_says_those_most_asked():
    admin = Admin(config=BrokerConfig(name="b1", metrics_contracts=2))
    for number in range(5):
        core = {
            "namespace": f"n{number}",
            "subject": "*",
            "policies": [{"name": "p", "allowed": number}],
            "shadow": False,
        }
        admin.engine.set_contracts([(msgspec.json.encode(core), False)], rejoins=False)
    found = await samples(admin)
    shown = {key[1] for key in found if key[0] == "srtm_broker_contract_allowed_total"}
    assert (shown, found["srtm_metrics_left_out", "contract"]) == ({"n3", "n4"}, 3)


async def test_a_topic_that_is_removed_has_no_series():
    admin = Admin()
    admin.engine.create_topic("t")
    assert ("srtm_topic_latency_seconds_count", "t") in await samples(admin)
    admin.engine.delete_topic("t")
    assert not [key for key in await samples(admin) if "t" in key]


async def test_a_broker_that_cannot_write_says_so_and_how_full_its_disk_is():
    admin = Admin()
    found = await samples(admin)
    assert found["srtm_broker_healthy",] == 1
    assert 0 < found["srtm_broker_disk_free_bytes",] <= found["srtm_broker_disk_bytes",]
    admin.health = "NOK - disk full"
    assert (await samples(admin))["srtm_broker_healthy",] == 0


async def test_a_disk_that_does_not_answer_costs_its_own_series_alone(tmp_path):
    admin = Admin(config=BrokerConfig(name="b1", data_path=str(tmp_path / "gone")))
    found = await samples(admin)
    assert ("srtm_broker_disk_bytes",) not in found
    assert found["srtm_broker_connections",] == 0


@pytest.mark.parametrize("number", [-1, 1_000_001])
@pytest.mark.parametrize("setting", ["metrics_topics", "metrics_contracts"])
def test_a_number_of_series_that_makes_no_sense_is_refused(setting, number):
    with pytest.raises(BadInput, match=setting):
        BrokerConfig(**{"name": "b1", setting: number})
