"""A recording stand-in for ``srtm._native.Engine`` in unit tests: it keeps topics, channels, buckets, no messages.

A test asserts on ``calls``; the code under test sees the snapshot. The system tests use the real engine.
"""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

_LATENCY = {"count": 0, "p50_ns": 0, "p95_ns": 0, "p99_ns": 0, "p999_ns": 0, "max_ns": 0}
KINDS = ("access", "processing", "consumer_wait", "total")


MQTT_FIGURES = (
    "sessions", "subscriptions", "retained", "published", "delivered", "dropped", "denied", "expired", "refused",
)  # fmt: skip


@dataclass
class FakeTopic:
    name: str
    held: bool = False
    paused: bool = False
    channels: dict[str, bool] = field(default_factory=dict)  # {name: paused}
    bucket: dict[str, Any] | None = None
    publishers: list[str] | None = None
    messages: list[bytes] = field(default_factory=list)
    received: int = 0
    promise_ns: int = 0
    e2e: dict[str, Any] | None = None
    network_ns: int | None = None
    nearness: dict[str, int] = field(default_factory=dict)  # of each of its channels
    untaken: dict[str, list[int]] = field(default_factory=dict)  # by MQTT: mqtt_refused, mqtt_dropped


class FakeEngine:
    def __init__(self, config: bytes = b"{}") -> None:
        self.config = msgspec.json.decode(config)
        self.calls: list[tuple[Any, ...]] = []
        self.topics: dict[str, FakeTopic] = {}
        self.interest: dict[str, Any] = {"version": 1, "filters": [], "groups": [], "kept": [], "durable": False}
        self.settled = 0
        self.links: dict[int, tuple[object, ...]] = {}  # {number: what was said of it}, open
        self.sessions_left = [0]  # what ``hand_over_mqtt_sessions`` gives
        self.mqtt: dict[str, dict[str, Any]] = {}  # {client id: its session, as ``srtm.control.MqttSession``}
        self.tells_topics = False  # to clients of MQTT that have subscribed
        self.mqtt_topics: list[dict[str, Any]] = []  # as ``broker.snapshot.MqttTopic``
        self.contracts_in_force: dict[tuple[str, str], dict[str, Any]] = {}
        self.taken: list[tuple[str, str, int]] = []  # of replicated contracts
        self.owed: list[tuple[str, str, int]] = []  # what ``overdrawn`` says
        self.heaviest: dict[str, list[dict[str, Any]]] = {}  # {namespace: as ``srtm.control.ContractSubject``}
        self.contract_counts = {"allowed": 0, "refused": 0, "cost": 0}  # of each policy
        self.connections = 0  # of clients, NSQ and MQTT
        self.producers: list[dict[str, Any]] = []  # connections that publish, as ``broker.snapshot`` reads them
        self.accepting = self.config.get("accepting", True)
        self.reason = self.config.get("not_accepting_reason", "")
        self.health = "OK"
        self.http = "bound"
        self._numbers = itertools.count()
        self.asked: list[tuple[Any, ...]] = []  # HTTP requests, as ``drain_requests`` gives them
        self.answers: dict[int, tuple[Any, ...]] = {}  # {id: status, headers, body}
        self.refusals: dict[tuple[str, str], str] = {}  # {topic, channel: why a client may not make it}
        self.stopped = False
        self.list_is_final = False
        self.sharing = {"timestamp_bias_max_ns": 0, "publish_reads": 0, "merged_reads": 0}
        self.unsaved = ""  # why not everything can be saved at the end
        self.gone: set[int] = set()  # connections that do not wait for an authorization any more
        self.start_error: OSError | None = None
        self._events: list[dict[str, Any]] = []
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def start(self) -> tuple[int | None, ...]:
        if self.start_error:
            raise self.start_error
        others = {"http": 4151, "https": 4152, "mqtt": 1883, "mqtts": 8883, "mqtt_ws": 9001, "mqtt_wss": 9443}
        given = (port if self.config.get(f"{name}_address") else None for name, port in others.items())
        return None if "/" in self.config.get("tcp_address", "") else 4150, *given

    def renew_certificates(self, cert: str, key: str, root_ca: str) -> None:
        self.certificates = (cert, key, root_ca)

    def stop(self, _patience_ms: int) -> bool:
        if self.unsaved:
            self.emit(type="disk_failed", reason=self.unsaved)
            self.emit(type="disk_failed", reason="No space left on device")
            self.emit(type="disk_failed", reason="sync t.000001.seg: failed")
        if not self.stopped:
            self.stopped = True
            os.close(self._eventfd)
        return not self.unsaved

    def fileno(self) -> int:
        return self._eventfd

    def emit(self, **event: Any) -> None:
        self._events.append(event)
        os.eventfd_write(self._eventfd, 1)

    def drain_events(self) -> bytes:
        if not self.stopped:
            with suppress(BlockingIOError):
                os.eventfd_read(self._eventfd)
        events, self._events = self._events, []
        return msgspec.json.encode(events)

    def ask(self, method: str, target: str, body: bytes = b"") -> int:
        """A request comes by HTTP; gives its id."""
        number = next(self._numbers)
        self.asked.append((number, method, target, [("host", "h")], body, "10.0.0.7:5"))
        os.eventfd_write(self._eventfd, 1)
        return number

    def drain_requests(self) -> list[tuple[Any, ...]]:
        asked, self.asked = self.asked, []
        return asked

    def respond(self, number: int, status: int, headers: list[tuple[str, str]], body: bytes) -> bool:
        self.answers[number] = (status, headers, body)
        return True

    def open_http(self) -> None:
        self.http = "open"

    def close_http(self) -> None:
        self.http = "closing"

    def finish_list(self) -> None:
        self.list_is_final = True

    def refusal_to_make(self, topic: str, channel: str) -> str | None:
        return self.refusals.get((topic, channel))

    def set_health(self, health: str) -> None:
        self.health = health

    def create_topic(self, topic: str, *, held: bool = False) -> FakeTopic:
        self.calls.append(("create_topic", topic))
        if topic not in self.topics:
            self.topics[topic] = FakeTopic(topic, held)
            self.emit(type="topic_created", topic=topic)
        return self.topics[topic]

    def set_hold_new_topics(self, hold: bool) -> None:
        self.calls.append(("set_hold_new_topics", hold))

    def delete_topic(self, topic: str) -> bool:
        self.calls.append(("delete_topic", topic))
        if self.topics.pop(topic, None) is None:
            return False
        self.emit(type="topic_deleted", topic=topic)
        return True

    def delete_unused_topic(self, topic: str) -> bool:
        found = self.topics.get(topic)
        is_used = found is None or found.messages or found.channels or found.bucket
        return not is_used and self.delete_topic(topic)

    def empty_topic(self, topic: str) -> bool:
        self.calls.append(("empty_topic", topic))
        return topic in self.topics

    def pause_topic(self, topic: str, paused: bool) -> bool:
        self.calls.append(("pause_topic", topic, paused))
        if topic in self.topics:
            self.topics[topic].paused = paused
        return topic in self.topics

    def release_topic(self, topic: str) -> bool:
        self.calls.append(("release_topic", topic))
        if topic in self.topics:
            self.topics[topic].held = False
        return topic in self.topics

    def create_channel(self, topic: str, channel: str) -> bool:
        self.calls.append(("create_channel", topic, channel))
        if topic not in self.topics:
            return False
        if channel not in self.topics[topic].channels:
            self.topics[topic].channels[channel] = False
            self.emit(type="channel_created", topic=topic, channel=channel)
        return True

    def _has_channel(self, topic: str, channel: str) -> bool:
        return topic in self.topics and channel in self.topics[topic].channels

    def delete_channel(self, topic: str, channel: str) -> bool:
        self.calls.append(("delete_channel", topic, channel))
        return self._has_channel(topic, channel) and self.topics[topic].channels.pop(channel) is not None

    def empty_channel(self, topic: str, channel: str) -> bool:
        self.calls.append(("empty_channel", topic, channel))
        return self._has_channel(topic, channel)

    def pause_channel(self, topic: str, channel: str, paused: bool) -> bool:
        self.calls.append(("pause_channel", topic, channel, paused))
        if self._has_channel(topic, channel):
            self.topics[topic].channels[channel] = paused
        return self._has_channel(topic, channel)

    def set_bucket(
        self,
        topic: str,
        rate_micro: int,
        burst_micro: int,
        reject: bool,
        max_backlog: int,
        max_backlog_bytes: int,
        version: int,
        full: bool,
        expires_ns: int | None = None,
    ) -> bool:
        self.calls.append(("set_bucket", topic, rate_micro, burst_micro, version, full, expires_ns))
        target = self.create_topic(topic)
        self.calls.pop()
        if target.bucket is not None and version < target.bucket["version"]:
            return False
        fill = target.bucket["fill"] if target.bucket else (burst_micro / 1e6 if full else 0.0)
        target.bucket = {
            "rate_micro": rate_micro,
            "burst_micro": burst_micro,
            "reject": reject,
            "max_backlog": max_backlog,
            "max_backlog_bytes": max_backlog_bytes,
            "version": version,
            "fill": min(fill, burst_micro / 1e6),
            **dict.fromkeys(("received", "released", "delayed", "rejected", "undeclared", "backlog"), 0),
            "backlog_bytes": 0,
            "largest_backlog": 0.0,
            "lateness_max_ns": 0,
            "timestamp_source": "kernel",
            "expires_ns": expires_ns,
        }
        return True

    def renew_leases(self, renewals: list[tuple[str, int, int]]) -> None:
        self.calls.append(("renew_leases", list(renewals)))
        for topic, version, expires_ns in renewals:
            bucket = self.topics[topic].bucket
            if bucket is not None and bucket["version"] == version:
                bucket["expires_ns"] = expires_ns

    def keep_bucket(
        self, topic: str, rate_micro: int, burst_micro: int, reject: bool, max_backlog: int, max_backlog_bytes: int
    ) -> bool:
        self.calls.append(("keep_bucket", topic, rate_micro, burst_micro, reject, max_backlog, max_backlog_bytes))
        return True

    def clear_bucket(self, topic: str) -> bool:
        self.calls.append(("clear_bucket", topic))
        if topic not in self.topics or self.topics[topic].bucket is None:
            return False
        self.topics[topic].bucket = self.topics[topic].publishers = None
        return True

    def set_publishers(self, topic: str, publishers: list[str], version: int) -> None:
        self.calls.append(("set_publishers", topic, list(publishers), version))
        self.topics[topic].publishers = list(publishers)

    def set_mqtt_names(self, topic: str, filters: list[str], v3_excess: str) -> None:
        self.calls.append(("set_mqtt_names", topic, list(filters), v3_excess))

    def set_mqtt_groups(self, topic: str, groups: list[str]) -> None:
        self.calls.append(("set_mqtt_groups", topic, list(groups)))

    def forget_left_mqtt_groups(self) -> None:
        self.calls.append(("forget_left_mqtt_groups",))

    def take_taken(self) -> list[tuple[str, str, int]]:
        taken, self.taken = self.taken, []
        return taken

    def charge_contracts(self, taken: list[tuple[str, str, int]], late: bool) -> None:
        self.calls.append(("charge_contracts", list(taken), late))

    def heaviest_subjects(self, namespace: str, most: int) -> bytes:
        return msgspec.json.encode(self.heaviest.get(namespace, [])[:most])

    def overdrawn(self) -> list[tuple[str, str, int]]:
        return self.owed

    def join_contracts(self) -> None:
        self.calls.append(("join_contracts",))

    def set_contracts(self, contracts: list[tuple[bytes, bool]], rejoins: bool) -> list[str | None]:
        refused: list[str | None] = []
        for contract, is_replicated in contracts:
            document = msgspec.json.decode(contract)
            if "policies" not in document:
                refused.append("missing field `policies`")
                continue
            refused.append(None)
            self.calls.append(("set_contract", document["namespace"], document["subject"]))
            in_force = {**document, "is_replicated": is_replicated, "rejoins": rejoins}
            self.contracts_in_force[document["namespace"], document["subject"]] = in_force
        return refused

    def remove_contract(self, namespace: str, subject: str) -> bool:
        self.calls.append(("remove_contract", namespace, subject))
        return self.contracts_in_force.pop((namespace, subject), None) is not None

    def set_terms(self, topic: str, terms: bytes) -> None:
        self.calls.append(("set_terms", topic, msgspec.json.decode(terms)))

    def contracts(self) -> bytes:
        return msgspec.json.encode(
            [
                {
                    "namespace": one["namespace"],
                    "subject": one["subject"],
                    "shadow": one["shadow"],
                    "policies": [{**self.contract_counts, **each} for each in one["policies"]],
                }
                for one in self.contracts_in_force.values()
            ]
        )

    def set_mqtt_name(self, topic: str, said: str) -> None:
        self.calls.append(("set_mqtt_name", topic, said))

    def share_mqtt_interest(self, is_shared: bool) -> None:
        self.calls.append(("share_mqtt_interest", is_shared))

    def mqtt_interest(self) -> bytes:
        return msgspec.json.encode(self.interest)

    def hand_over_mqtt_sessions(self) -> int:
        """The next of ``sessions_left``; its last one again and again."""
        left = self.sessions_left[0]
        del self.sessions_left[: len(self.sessions_left) > 1]
        return left

    def settle_mqtt_interest(self, version: int) -> None:
        self.settled = version

    def allow_links(
        self,
        broker: str,
        channel: str,
        _key: str,
        filters: list[str] | None,
        groups: list[str],
        kept: list[str],
        durable: bool,
    ) -> None:
        if any("#/" in one for one in filters or ()):
            raise ValueError("filters: one is no topic filter of MQTT")
        self.calls.append(("allow_links", broker, channel, filters, groups, kept, durable))

    def mark_link(self, channel: str, mark: str) -> bool:
        self.calls.append(("mark_link", channel, mark))
        return self._has_channel("srtm.retained", channel)

    def forbid_links(self, broker: str) -> None:
        self.calls.append(("forbid_links", broker))

    def open_link(self, number: int, fd: int, *about: object) -> None:
        os.close(fd)
        self.links[number] = about

    def close_link(self, number: int) -> bool:
        return self.links.pop(number, None) is not None

    def mqtt_sessions(self, most: int) -> bytes:
        shown = [{**one, "filters": []} for one in self.mqtt.values()]
        return msgspec.json.encode({"sessions": shown[:most], "total": len(shown)})

    def mqtt_session(self, client_id: str) -> bytes | None:
        found = self.mqtt.get(client_id)
        return None if found is None else msgspec.json.encode(found)

    def kick_mqtt(self, client_id: str) -> bool:
        return self.mqtt.pop(client_id, None) is not None

    def mqtt_retained(self, pattern: str, most: int, clear: bool) -> bytes:
        if pattern == "a/#/b":
            raise ValueError("must be a topic filter of MQTT")
        self.calls.append(("mqtt_retained", pattern, clear))
        return msgspec.json.encode([{"name": "a/b", "qos": 1, "bytes": 3, "expires_in_s": None}][:most])

    def move_publisher(
        self, topic: str, publisher_id: str, address: str, mqtt: tuple[str, str, str, str], version: int
    ) -> int:
        self.calls.append(("move_publisher", topic, publisher_id, address, mqtt, version))
        return 1

    def awaits_authorization(self, connection: int) -> bool:
        return connection not in self.gone

    def set_authorization(self, connection: int, answer: bytes | None) -> str | None:
        self.calls.append(("set_authorization", connection, answer))
        return None

    def set_access(self, rules: bytes) -> None:
        self.calls.append(("set_access", msgspec.json.decode(rules)))

    def set_accepting(self, accepting: bool, reason: str) -> None:
        self.calls.append(("set_accepting", accepting, reason))
        self.accepting, self.reason = accepting, reason

    def accept_limited(self, reason: str) -> None:
        self.calls.append(("accept_limited", reason))
        self.accepting, self.reason = False, reason

    def trace(self, topic: str) -> tuple[Any, ...] | None:
        if topic not in self.topics or self.topics[topic].bucket is None:
            return None
        times = [n.to_bytes(8, "little") * 2 for n in (10, 20, 30, 0, 7)]
        return (["a", "b"], b"\0\0\0\0\1\0\0\0", *times)

    def histogram(self, topic: str, kind: str, window: str) -> bytes | None:
        return b"HISTFAAAAA" if topic in self.topics and (kind, window) == ("access", "since_start") else None

    def set_verdicts(self, verdicts: list[tuple[str, str, float | None]]) -> None:
        self.calls.append(("set_verdicts", *verdicts))

    def set_promise(self, topic: str, latency_ns: int) -> None:
        if topic in self.topics:
            self.topics[topic].promise_ns = latency_ns

    def latency_buckets(self, topics: list[str]) -> bytes:
        return msgspec.json.encode([buckets_json(self.topics[name]) for name in topics if name in self.topics])

    def snapshot(self, topic: str, channel: str, _clients: bool) -> bytes:
        shown = [found for name, found in self.topics.items() if topic in ("", name)]
        return msgspec.json.encode(
            {
                "now_ns": 5_000_000_000,
                "wall_ns": 1_700_000_100_000_000_000,
                "memory_bytes": 0,
                "max_memory_bytes": 1 << 30,
                "connections": self.connections,
                "http_connections": 0,
                "accepted": 0,
                "accept_failures": 0,
                "limits_met": {"max_topics": 2},
                "postponements": 3,
                "unfinished_bytes": 4,
                "unread_bytes": 5,
                "timestamp_fallbacks": 0,
                "packet_fallbacks": 0,
                "packets_lost": 0,
                "clock_steps": 0,
                "stamps_corrected": 0,
                **self.sharing,
                "lab_service_time_ns": 0,
                "accepting": self.accepting,
                "topics": [topic_json(found, channel) for found in shown],
                "producers": self.producers,
                "mqtt": {**dict.fromkeys(MQTT_FIGURES, 7), "tells_topics": self.tells_topics},
                "mqtt_topics": [one for one in self.mqtt_topics if topic in ("", one["topic"])],
            }
        )


def buckets_json(topic: FakeTopic) -> dict[str, Any]:
    bounds = [(topic.promise_ns or 10_000_000) * 2**step // 128 for step in range(12)]
    buckets = {"counts": [1, *[0] * 6, 2, *[0] * 4, 3], "sum_ns": 4_000_000}
    kinds = dict.fromkeys(("access", "processing", "total"), buckets)
    return {"topic": topic.name, "bounds_ns": bounds, "late": 3, **kinds}


def topic_json(topic: FakeTopic, channel: str = "") -> dict[str, Any]:
    return {
        "topic_name": topic.name,
        "paused": topic.paused,
        "held": topic.held,
        "depth": len(topic.messages),
        "message_count": len(topic.messages),
        "message_bytes": sum(map(len, topic.messages)),
        "received": topic.received,
        "released": topic.received,
        "rejected": 0,
        "channels": [
            _channel_json(name, p) | topic.nearness for name, p in topic.channels.items() if channel in ("", name)
        ],
        "bucket": topic.bucket,
        "e2e": topic.e2e,
        "network_ns": topic.network_ns,
        **topic.untaken,
        "latency": {window: dict.fromkeys(KINDS, _LATENCY) for window in ("since_start", "last_60s")},
    }


def _channel_json(name: str, paused: bool) -> dict[str, Any]:
    counts = ("depth", "in_flight_count", "deferred_count", "message_count", "requeue_count", "timeout_count")
    return {"channel_name": name, "paused": paused, **dict.fromkeys(counts, 0), "client_count": 0, "clients": []}
