"""nsqlookupd and nsqadmin, as their users see them: is the broker there, with its topics and channels, and do
nsqadmin's buttons work on it?"""

from __future__ import annotations

import json
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.interop.processes import READY_S, report, run_each, running

NSQD = "http://127.0.0.1:4151"
LOOKUPD = "http://127.0.0.1:4161"
ADMIN = "http://127.0.0.1:4171"


def ask(url: str, method: str = "GET", value: object = None) -> Any:
    body = None if value is None else json.dumps(value).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=READY_S) as answer:
        text = answer.read()
    return json.loads(text) if text.startswith((b"{", b"[")) else text


def until(what: str, condition: Callable[[], bool]) -> None:
    """nsqlookupd is told between two events of ours; nobody tells us when."""
    deadline = time.monotonic() + READY_S
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)


def channels(topic: str) -> list[str]:
    found: list[str] = ask(f"{LOOKUPD}/channels?topic={topic}")["channels"]
    return found


def test_nsqlookupd_lists_the_node_with_its_ports() -> None:
    until("a producer", lambda: len(ask(f"{LOOKUPD}/nodes")["producers"]) == 1)
    (node,) = ask(f"{LOOKUPD}/nodes")["producers"]
    assert (node["tcp_port"], node["http_port"], node["version"]) == (4150, 4151, "1.3.0"), node


def test_nsqlookupd_learns_topics_and_channels_and_forgets_who_has_a_deleted_one() -> None:
    for topic in ("roads", "paths"):
        ask(f"{NSQD}/topic/create?topic={topic}", "POST")
        ask(f"{NSQD}/channel/create?topic={topic}&channel=audit", "POST")
        until("the channel", lambda topic=topic: channels(topic) == ["audit"])  # type: ignore[misc]
        assert len(ask(f"{LOOKUPD}/lookup?topic={topic}")["producers"]) == 1
    ask(f"{NSQD}/topic/delete?topic=paths", "POST")
    until("no producer", lambda: ask(f"{LOOKUPD}/lookup?topic=paths")["producers"] == [])


def test_a_new_topic_gets_the_channels_that_nsqlookupd_knows() -> None:
    ask(f"{LOOKUPD}/channel/create?topic=rivers&channel=archive", "POST")
    ask(f"{NSQD}/topic/create?topic=rivers", "POST")
    until("the channel", lambda: "archive" in str(ask(f"{NSQD}/stats?format=json&topic=rivers")))


def test_nsqadmin_lists_the_node() -> None:
    (node,) = ask(f"{ADMIN}/api/nodes")["nodes"]
    assert (node["tcp_port"], node["http_port"]) == (4150, 4151), node
    assert "roads" in [topic["topic"] for topic in node["topics"]], node
    seen = ask(f"{ADMIN}/api/nodes/{node['broadcast_address']}:4151")
    assert "roads" in [topic["topic_name"] for topic in seen["topics"]], seen


def test_nsqadmin_lists_the_topics() -> None:
    topics = ask(f"{ADMIN}/api/topics")["topics"]
    names = topics if isinstance(topics, list) else list(topics)
    assert {"roads", "rivers"} <= set(names), names


def test_nsqadmin_shows_a_topic_with_depth_and_a_channel_with_its_client_counts() -> None:
    ask(f"{NSQD}/channel/create?topic=roads&channel=audit", "POST")
    ask(f"{NSQD}/pub?topic=roads", "POST", "x")
    until("a message", lambda: ask(f"{ADMIN}/api/topics/roads")["message_count"] == 1)
    (channel,) = ask(f"{ADMIN}/api/topics/roads")["channels"]
    assert (channel["channel_name"], channel["depth"], channel["client_count"]) == ("audit", 1, 0), channel
    seen = ask(f"{ADMIN}/api/topics/roads/audit")
    assert (seen["depth"], seen["message_count"]) == (1, 1), seen


def test_nsqadmin_pauses_empties_and_deletes() -> None:
    act = f"{ADMIN}/api/topics/roads/audit"
    ask(act, "POST", {"action": "pause"})
    assert ask(act)["paused"] is True
    ask(act, "POST", {"action": "unpause"})
    assert ask(act)["paused"] is False
    ask(act, "POST", {"action": "empty"})
    assert ask(act)["depth"] == 0
    ask(act, "DELETE")
    until("no channel", lambda: not ask(f"{ADMIN}/api/topics/roads")["channels"])
    ask(f"{ADMIN}/api/topics/roads", "DELETE")
    until("no topic", lambda: "roads" not in str(ask(f"{NSQD}/stats?format=json")))


def test_nsqadmin_counts_messages() -> None:
    ask(f"{NSQD}/mpub?topic=rivers", "POST", "many")
    counted = ask(f"{ADMIN}/api/counter")["stats"]
    assert any(row["topic_name"] == "rivers" for row in counted.values()), counted


TESTS = (
    test_nsqlookupd_lists_the_node_with_its_ports,
    test_nsqlookupd_learns_topics_and_channels_and_forgets_who_has_a_deleted_one,
    test_a_new_topic_gets_the_channels_that_nsqlookupd_knows,
    test_nsqadmin_lists_the_node,
    test_nsqadmin_lists_the_topics,
    test_nsqadmin_shows_a_topic_with_depth_and_a_channel_with_its_client_counts,
    test_nsqadmin_pauses_empties_and_deletes,
    test_nsqadmin_counts_messages,
)


def main() -> None:
    with tempfile.TemporaryDirectory() as text:
        data = Path(text)
        lookupd = running("nsqlookupd", "-broadcast-address=127.0.0.1", ping=f"{LOOKUPD}/ping", directory=data)
        nsqd = running(
            "nsqd",
            "-lookupd-tcp-address=127.0.0.1:4160",
            "-broadcast-address=127.0.0.1",
            ping=f"{NSQD}/ping",
            directory=data,
        )
        admin = running("nsqadmin", "-lookupd-http-address=127.0.0.1:4161", ping=f"{ADMIN}/ping", directory=data)
        with lookupd, nsqd, admin:
            report(run_each(TESTS))


if __name__ == "__main__":
    main()
