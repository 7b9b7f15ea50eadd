"""What all messages of the control plane have in common."""

import gc

import msgspec

from broker.snapshot import Bucket, Topic
from srtm.control import SyncRequest, TopicHistory, TopicReport


def test_the_garbage_collector_looks_at_no_message_and_no_part_of_a_snapshot():
    report = msgspec.json.decode(
        b'{"topic": "t", "share_version": 1, "channels": ["c"], "recent": {}}', type=TopicReport
    )
    assert report.recent is not None
    for one in (report, report.last_60s, report.recent, msgspec.structs.replace(report, received=1)):
        assert not gc.is_tracked(one)
    assert not any(kind.__struct_config__.gc for kind in (SyncRequest, TopicHistory, Topic, Bucket))
