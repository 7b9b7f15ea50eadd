"""The broker's HTTP routes over a recording engine, without a connection."""

import json

from broker.admin.context import AdminContext
from broker.admin.forwarded_requests import request
from broker.admin.router import admin_handler
from broker.config import BrokerConfig, EngineConfig
from broker.links.consuming_brokers import ConsumingBrokers
from broker.nsqd.kept_buckets import KeptBuckets
from broker.sync.drain import Drain
from srtm.control import GdrlAnswer, Throttling
from srtm.log import Log, LogSettings
from srtm.net.address import parse_peer
from srtm.net.http_server import respond
from tests.support.fake_engine import FakeEngine


class Admin:
    def __init__(self, **changes):
        self.engine = FakeEngine()
        self.managed = set()
        self.changes = 0
        self.written = []
        self.logged = []
        self.health = "OK"
        self.log_settings = LogSettings()
        self.lookups = ["a:4160"]
        self.buckets = KeptBuckets(self.engine, self.note_change)
        self.consuming = ConsumingBrokers(
            self.engine,
            lambda _topic: None,
            tcp_address="127.0.0.1:4150",
            default_topic="default",
            speaks_mqtt=True,
            ready=2_500,
            patience_s=60.0,
        )
        context = AdminContext(
            **{
                "engine": self.engine,
                "settings": EngineConfig(max_msg_size=100, max_body_size=1000),
                "name": "b1",
                "incarnation": "1",
                "start_wall_ns": 1_700_000_000_000_000_000,
                "hostname": "vm",
                "broadcast_address": "127.0.0.1",
                "tcp_port": 4150,
                "http_port": 4151,
                "tokens": None,
                "is_managed": self.managed.__contains__,
                "buckets": self.buckets,
                "note_change": self.note_change,
                "write_topics": self.write_topics,
                "health": lambda: self.health,
                "consuming": self.consuming,
                "answer_gdrl": lambda _message: GdrlAnswer(accepted=False),
                "take_contract_news": lambda _news: None,
                "gdrl_rounds": lambda: 12,
                "gdrl_invalid_messages": lambda: 3,
                "throttling": lambda: Throttling(
                    quota_cores=1.5, throttled_share=0.25, throttled_s=7.0, steal_share=0.5
                ),
                "drain": Drain("b1", self.engine, Log("b1", lambda _line: None)),
                "config": BrokerConfig(name="b1", max_memory_bytes=99),
                "log": Log("b1", self.logged.append),
                "log_settings": self.log_settings,
                "lookup_addresses": lambda: self.lookups,
                "use_lookups": self.use_lookups,
                **changes,
            }
        )
        self.handler = admin_handler(context)

    async def write_topics(self):
        self.written.append({name: topic.paused for name, topic in self.engine.topics.items()})

    def use_lookups(self, addresses):
        for address in addresses:
            parse_peer("nsqlookupd_tcp_addresses", address)
        self.lookups = addresses

    def note_change(self):
        self.changes += 1

    async def ask(self, method, target, body=b"", **headers):
        asked = request(method, target, list(headers.items()), body, "10.0.0.7:50000")
        return await respond(self.handler, asked, Log("b1"))

    async def code(self, method, target, body=b""):
        """Status and nsqd's error word."""
        response = await self.ask(method, target, body)
        return response.status, json.loads(response.body)["message"] if response.body.startswith(b"{") else ""

    async def json(self, method, target, value=None):
        response = await self.ask(method, target, b"" if value is None else json.dumps(value).encode())
        return response.status, json.loads(response.body)
