"""``Publisher`` sends MQTT messages of one topic to the broker that the publisher is assigned to, for threads.

It is paho-mqtt (extra ``mqtt``), MQTT 5.0, QoS 1, with three things beside it: the distributor names the broker, a
DISCONNECT with a Server Reference is followed, and what was not acknowledged is sent again there, in order. Delivery is
**at least once**. The broker ends a connection once the messages that it acknowledged have left, or after 5 s; others
it leaves unacknowledged meanwhile. So a move keeps the order (``srtm.client.handover``).

Any number of threads may publish at once. Begin with ``Publisher``.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self

import anyio

from srtm.client.distributor import DistributorClient
from srtm.client.handover import Handover
from srtm.concurrency.backoff import Backoff
from srtm.errors import BadInput, Closed, Misuse, PeerError, PublishRefused, SrtmError, Unavailable
from srtm.net.address import parse_peer
from srtm.protocol import Receipt

try:
    from paho.mqtt.client import Client
    from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties
except ModuleNotFoundError:
    raise Misuse("srtm.mqtt needs paho-mqtt: pip install 'srtm-messaging[mqtt]'") from None

__all__ = ["Publisher"]

_ASK_TIMEOUT_S = 2.0  # then the publisher goes to the last known broker, without the distributor
_CONNECT_TIMEOUT_S = 5.0  # to the CONNACK
_QUOTA_EXCEEDED = 0x97
_REFUSAL = 0x80  # and above
# (5.0, section 4.11): for now, and for good. Both are followed: the next start asks the distributor anyway.
_MOVES = (0x9C, 0x9D)
_LONGEST_NAME = 65_535  # bytes (5.0, section 1.5.4)
_LONGEST_PACKET = 268_435_460  # bytes (5.0, section 2.1.4)
_HEAD_BYTES = 10  # of a PUBLISH at most, beside name and payload: 5, 2 for the name's length, 2, 1 for no properties
_MAX_OUTSTANDING = 100  # messages without an acknowledgement at the broker; below the Receive Maximum of brokers

_Told = tuple[str, int, Any, Any]  # what, packet identifier, reason code, properties
_CLOSE: _Told = ("close", 0, None, None)


@dataclass(eq=False, slots=True)
class _Pending:
    """A publish without an answer."""

    name: str
    payload: bytes
    settled: threading.Event = field(default_factory=threading.Event)
    receipt: Receipt | None = None
    error: SrtmError | None = None

    def settle(self, receipt: Receipt | None, error: SrtmError | None = None) -> None:
        self.receipt, self.error = receipt, error
        self.settled.set()


class Publisher:
    """Publishes to MQTT names of a topic as one publisher. Use it as a context manager.

    ``distributor``: URLs (default $SRTM_DISTRIBUTOR). Entering raises NotFound (no such topic), BadInput, Unavailable
    (no broker answers within ``patience_s``). Later the publisher retries lost connections with growing pauses.
    """

    def __init__(
        self,
        topic: str,
        publisher_id: str,
        *,
        distributor: str | Sequence[str] | None = None,
        token: str | None = None,
        patience_s: float = 10.0,
    ) -> None:
        self.topic, self.publisher_id = topic, publisher_id
        self._distributor, self._token, self._patience_s = distributor, token, patience_s
        self._changed = threading.Condition()
        self._pending: deque[_Pending] = deque()  # in the order of the calls
        self._sent: dict[int, _Pending] = {}  # {packet identifier on the present connection: its publish}
        self._client: Client | None = None  # that is connected
        self._told: SimpleQueue[_Told] | None = None  # what paho's thread tells of it
        self._address: str | None = None
        self._longest = _LONGEST_PACKET  # bytes that the present broker takes
        self._handover = Handover()
        self._closed = False
        self._failed: SrtmError | None = None  # why it could not go on
        self._thread = threading.Thread(target=self._run, name=f"srtm-mqtt-{publisher_id}", daemon=True)

    @property
    def address(self) -> str | None:
        """HOST:PORT of the broker in use; None while there is no connection."""
        return self._address if self._client is not None else None

    def publish(self, name: str, payload: bytes, *, timeout_s: float | None = None) -> Receipt:
        """Publish to an MQTT name with QoS 1 and wait until the broker accepted it.

        The receipt states how long the message waits for its token, and the fill of the bucket. Raises BadInput,
        PublishRefused (``retry_after_ms``: time until there are tokens), PeerError, Misuse (outside ``with``), Closed,
        TimeoutError (it may be published yet).
        """
        if not isinstance(payload, bytes):
            raise BadInput("payload", payload, "must be bytes")
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            size = 0  # half a surrogate pair
        if not 1 <= size <= _LONGEST_NAME or any(wildcard in name for wildcard in "+#\0"):
            rule = f"must be an MQTT topic name: 1 to {_LONGEST_NAME} bytes of UTF-8, without + and #"
            raise BadInput("name", name[:80], rule)
        pending = _Pending(name, payload)
        with self._changed:
            if self._thread.ident is None:
                raise Misuse("publish inside a 'with' block of the publisher")
            self._check_open()
            self._pending.append(pending)
            self._send(pending)
        if not pending.settled.wait(timeout_s):
            raise TimeoutError(f"the broker did not acknowledge a message within {timeout_s:g} s")
        if pending.receipt is None:
            raise pending.error or Closed("this publisher was closed before the broker answered")
        return pending.receipt

    def __enter__(self) -> Self:
        if self._thread.ident is not None:
            raise Misuse("this publisher was entered before: make a new one for each 'with' block")
        self._thread.start()
        with self._changed:
            self._changed.wait_for(lambda: self._client is not None or self._failed is not None)
            if self._failed is not None:
                raise self._failed
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._closed = True
            if self._told is not None:
                self._told.put(_CLOSE)
            self._changed.notify_all()
        self._thread.join()

    def _check_open(self) -> None:
        if self._failed is not None:
            raise self._failed
        if self._closed:
            raise Closed("this publisher is closed: publish inside its 'with' block")

    # ---- The thread that connects, and hears what paho's thread tells ----

    def _run(self) -> None:
        backoff, deadline_s = Backoff(first_s=0.05, longest_s=2.0), time.monotonic() + self._patience_s
        reference: str | None = None
        trouble: SrtmError | None = None
        while self._may_connect():
            try:
                reference = self._serve(reference or anyio.run(self._where), backoff)
            except (Unavailable, PeerError) as error:
                reference, trouble = None, error
            except SrtmError as error:
                self._end(error)
                return
            if self._address is None and time.monotonic() >= deadline_s:
                where = f"topic {self.topic!r} within {self._patience_s:g} s"
                self._end(Unavailable(f"no broker that speaks MQTT for {where}: {trouble}"))
                return
            if reference is None:
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, backoff.next_s())
        self._end(None)

    def _may_connect(self) -> bool:
        """Wait until what the old broker has accepted is delivered. False: closed."""
        with self._changed:
            left_s = self._handover.leaves_at_s - time.monotonic()
            return not self._changed.wait_for(lambda: self._closed, max(left_s, 0.0))

    async def _where(self) -> str:
        """The address of the broker to use. Raises Unavailable, PeerError, NotFound, BadInput."""
        try:
            async with DistributorClient(self._distributor, token=self._token, timeout_s=_ASK_TIMEOUT_S) as client:
                assignment = await client.assignment(self.topic, self.publisher_id)
        except Unavailable:
            if self._address is None:
                raise
            return self._address
        if not assignment.mqtt_address:
            raise Unavailable(f"broker {assignment.broker} speaks no MQTT (see its --mqtt-address)")
        return assignment.mqtt_address

    def _serve(self, address: str, backoff: Backoff) -> str | None:
        """Be connected to ``address`` until the connection ends; returns where to go then, if the broker says so.

        Raises Unavailable, PeerError.
        """
        host, port = parse_peer("address", address)
        told: SimpleQueue[_Told] = SimpleQueue()
        client = _client(self.publisher_id, told)
        wishes = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        wishes.UserProperty = [("srtm-receipts", "1"), ("srtm-follow", "1")]
        try:
            client.connect(host, port, properties=wishes)
        except OSError as error:
            raise Unavailable(f"no answer from {address}: {error}") from None
        client.loop_start()
        try:
            kind, _, reason, said = _next(told, _CONNECT_TIMEOUT_S, address)
            if kind != "connected" or reason.is_failure:
                raise Unavailable(f"{address} refuses the connection: {reason}")
            backoff.reset()
            self._longest = getattr(said, "MaximumPacketSize", _LONGEST_PACKET)
            self._adopt(client, address, told)
            while True:
                kind, number, reason, properties = told.get()
                if kind == "answer":
                    self._settle(number, reason, properties)
                elif kind == "ended" and reason.value in _MOVES:
                    self._note_left()
                    return reference_of(getattr(properties, "ServerReference", ""))
                else:
                    return None
        finally:
            with self._changed:
                self._client = self._told = None
            client.disconnect()
            client.loop_stop()

    def _note_left(self) -> None:
        """The broker has ended the connection as soon as all messages had left, which answers LEFT at NSQ."""
        now_s = time.monotonic()
        if (number := self._handover.question(now_s)) is not None:
            self._handover.answered(number, now_s)

    def _adopt(self, client: Client, address: str, told: SimpleQueue[_Told]) -> None:
        with self._changed:
            self._client, self._address, self._told = client, address, told
            if self._closed:
                told.put(_CLOSE)
            self._handover.begin(can_ask=True)
            self._sent.clear()
            for pending in list(self._pending):
                self._send(pending)
            self._changed.notify_all()

    def _end(self, error: SrtmError | None) -> None:
        with self._changed:
            self._closed, self._failed, self._client = True, error, None
            for pending in self._pending:
                pending.settle(None, error)
            self._pending.clear()
            self._changed.notify_all()

    def _send(self, pending: _Pending) -> None:
        """Send it on the present connection, if there is one. What the connection does not take goes with the next."""
        if self._client is None:
            return
        length = len(pending.name.encode()) + len(pending.payload) + _HEAD_BYTES
        if length > self._longest:  # the broker would end the connection, again and again
            self._pending.remove(pending)
            pending.settle(None, PublishRefused(f"a packet of {length} bytes is longer than the broker takes"))
        else:
            self._sent[self._client.publish(pending.name, pending.payload, qos=1).mid] = pending

    def _settle(self, number: int, reason: Any, properties: Any) -> None:
        """A message is answered. Raises PeerError: it is sent again then."""
        said = dict(getattr(properties, "UserProperty", []))
        is_accepted = reason.value < _REFUSAL
        receipt = receipt_of(said) if is_accepted else None
        if receipt is not None:
            self._handover.accepted(receipt, time.monotonic())
        with self._changed:
            pending = self._sent.pop(number)
            self._pending.remove(pending)
        pending.settle(receipt, None if is_accepted else refusal_of(reason, properties, said))


def _client(publisher_id: str, told: SimpleQueue[_Told]) -> Client:
    """A client of paho that puts what the broker says into ``told``.

    paho holds its locks while it tells: who reads ``told`` takes other locks without them.
    """
    client = Client(
        CallbackAPIVersion.VERSION2, publisher_id, protocol=MQTTProtocolVersion.MQTTv5, reconnect_on_failure=False
    )
    client.max_inflight_messages_set(_MAX_OUTSTANDING)
    client.on_connect = lambda _client, _data, _flags, reason, said: told.put(("connected", 0, reason, said))
    client.on_publish = lambda _client, _data, number, reason, said: told.put(("answer", number, reason, said))
    client.on_disconnect = lambda _client, _data, _flags, reason, said: told.put(("ended", 0, reason, said))
    return client


def _next(told: SimpleQueue[_Told], within_s: float, address: str) -> _Told:
    try:
        return told.get(timeout=within_s)
    except Empty:
        raise Unavailable(f"no CONNACK from {address} within {within_s:g} s") from None


def receipt_of(said: dict[str, str]) -> Receipt:
    """The receipt in the User Properties of an acknowledgement. Raises PeerError."""
    try:
        wait_ns, fill = said.get("srtm-wait-ns"), said.get("srtm-fill")
        return Receipt(None if wait_ns is None else int(wait_ns) / 1e6, None if fill is None else float(fill))
    except ValueError:
        raise PeerError(f"the broker sent a receipt that is none: {said}") from None


def refusal_of(reason: Any, properties: Any, said: dict[str, str]) -> SrtmError:
    """Why a message was not accepted, in the broker's words."""
    words = f"{reason}: {text}" if (text := getattr(properties, "ReasonString", "")) else f"{reason}"
    retry = said.get("srtm-retry-ms", "")
    is_number = reason.value == _QUOTA_EXCEEDED and retry.isascii() and retry.isdigit()
    return PublishRefused(words, float(retry) if is_number else None)


def reference_of(text: str) -> str | None:
    """The first server of a Server Reference (5.0, section 4.11) that is HOST:PORT; None: there is none."""
    for word in text.split():
        try:
            parse_peer("server reference", word)
        except BadInput:
            continue
        return word
    return None
