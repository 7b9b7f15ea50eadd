"""An unmodified pynsq program, in a process of its own: its Writer publishes, its Reader receives, found by address or
by lookup.

    python pynsq_program.py by-address HOST:PORT TOPIC COUNT python pynsq_program.py by-lookup  HOST:PORT TOPIC COUNT
    http://LOOKUP...

A first argument ``--settings=JSON`` is handed to Writer and Reader (``{"snappy": true}``); certificates of servers are
not judged. Prints in JSON the received bodies, sorted, what the Writer was answered, and what the Reader's connection
was wrapped in. Ends with status 3 if not all came within 20 s.
"""

from __future__ import annotations

import functools
import json
import ssl
import sys
from collections import Counter

import nsq
from tornado.ioloop import IOLoop
from tornado.iostream import SSLIOStream

PATIENCE_S = 20.0


class Program:
    def __init__(
        self, how: str, address: str, topic: str, count: int, lookups: list[str], settings: dict[str, object]
    ) -> None:
        self.topic = topic
        self.count = count
        self.bodies: list[str] = []
        self.answers: Counter[str] = Counter()
        self.requeued: set[bytes] = set()
        self.wrapped = ""
        self.writer = nsq.Writer([address], **settings)
        where = {"nsqd_tcp_addresses": [address]} if how == "by-address" else {"lookupd_http_addresses": lookups}
        self.reader = nsq.Reader(
            topic=topic,
            channel="pynsq",
            message_handler=self.take,
            max_in_flight=50,
            lookupd_poll_interval=1,
            requeue_delay=0,
            **where,
            **settings,
        )

    def take(self, message: nsq.Message) -> bool:
        """Every tenth message is requeued once, so that a REQ is part of it."""
        if int(message.body) % 10 == 0 and message.id not in self.requeued:
            self.requeued.add(message.id)
            return False
        self.bodies.append(message.body.decode())
        if len(self.bodies) == self.count:
            (connection,) = self.reader.conns.values()
            secured = isinstance(connection.stream, SSLIOStream)
            self.wrapped = f"{'TLS+' * secured}{type(connection.encoder).__name__}"
            IOLoop.current().call_later(0.1, IOLoop.current().stop)  # time for the last FIN
        return True

    def publish(self) -> None:
        if not self.writer.conns:
            IOLoop.current().call_later(0.02, self.publish)
            return
        half = self.count // 2
        for number in range(half):
            self.writer.pub(self.topic, str(number).encode(), callback=self.answered)
        rest = [str(number).encode() for number in range(half, self.count - 1)]
        self.writer.mpub(self.topic, rest, callback=self.answered)
        self.writer.dpub(self.topic, 100, str(self.count - 1).encode(), callback=self.answered)

    def answered(self, _connection: object, data: object) -> None:
        self.answers[data.decode() if isinstance(data, bytes) else repr(data)] += 1


def main(*arguments: str) -> None:
    settings: dict[str, object] = {}
    if arguments[0].startswith("--settings="):
        settings = {**json.loads(arguments[0].partition("=")[2]), "tls_options": {"cert_reqs": ssl.CERT_NONE}}
        arguments = arguments[1:]
    how, address, topic, count, *lookups = arguments
    loop = IOLoop.current()
    program = Program(how, address, topic, int(count), lookups, settings)
    loop.add_callback(program.publish)
    loop.call_later(PATIENCE_S, functools.partial(sys.exit, 3))
    loop.start()
    said = {"bodies": sorted(program.bodies, key=int), "answers": dict(program.answers), "wrapped": program.wrapped}
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
