"""Runs a whole cluster as processes of this host: a distributor with SQLite and brokers, on loopback.

While the block of ``cluster`` runs, a process that ends is started again on the same port with the same data. Its end
is reported to the distributor (proof of death). ``DIR/cluster.json`` lists what runs. When the block
ends, all processes have ended. If this process is killed, the kernel ends them (``srtm.cluster.parent_death``).
New files in ``DIR`` are for their owner alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TextIO

import msgspec
import trio

from srtm.client.broker import BrokerClient
from srtm.client.distributor import DistributorClient
from srtm.cluster.cluster_file import (
    FILE_NAME,
    BrokerPlace,
    ClusterFile,
    pick_addresses,
    present_boot,
    read_cluster,
    unusable,
    write_cluster,
)
from srtm.cluster.parent_death import PARENT_VARIABLE
from srtm.cluster.token_files import Issued, issue
from srtm.concurrency.background import background_nursery
from srtm.concurrency.backoff import Backoff
from srtm.control import DeadNotice
from srtm.errors import BadInput, Conflict, NotFound, SrtmError, Unavailable
from srtm.net.address import parse_peer

PROGRAM = (sys.executable, "-m", "srtm")
STOP_GRACE_S = 65.0  # then SIGKILL; a broker needs at most 60 s to save its queues
READY_TIMEOUT_S = 60.0  # a busy machine takes half a minute to start a cluster
_STEADY_S = 10.0  # a process that ran for so long did not crash at its start: its next restart is quick
# Time between two checks whether the cluster is ready: a port of another process cannot notify us.
_FIRST_CHECK_S, _LAST_CHECK_S = 0.02, 0.2
LONGEST_LOG_BYTES = 64 << 20  # of a process; as much is kept of what is older
_LOG_CHECK_S = 10.0
_LAST_WORDS_BYTES = 4096
_DRAINED_CHECK_S = 1.0  # how soon a drained broker that is wanted again is started


class Child:
    """A supervised process. Its output goes to ``DIR/NAME.log``, what is older to ``DIR/NAME.log.1``."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        data: Path,
        tell: Callable[[str], object],
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self.name = name
        self._tell = tell
        self.log = data / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.ended: str | None = None  # how the last process ended
        self.stays_ended = False  # it was drained or stopped on purpose
        self._command = [*program, *arguments]

    @property
    def pid(self) -> int | None:
        """The process id; None while it does not run."""
        return None if self.process is None else self.process.pid

    def start(self) -> subprocess.Popen[bytes]:
        """Start the process. Call it from the main thread: the parent-death signal follows the thread that forked."""
        self.log.touch(mode=0o600)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
                process_group=0,  # Ctrl-C on a terminal reaches the supervisor alone, which stops the others in order
            )
        return self.process

    async def run(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until ``process`` has ended. If cancelled, end it first, after a grace period by SIGKILL."""
        try:
            await _wait_exit(process)
        finally:
            with trio.CancelScope(shield=True):
                await _end(process, self.name, self._tell)
            self.process = None
            self.ended = _how_it_ended(process.returncode)
            self.stays_ended = self.name != "distributor" and process.returncode == 0

    def last_words(self) -> str:
        """Return the last line of the process's log, for an error message."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(self.log.stat().st_size - _LAST_WORDS_BYTES, 0))
                lines = log.read(_LAST_WORDS_BYTES).decode(errors="replace").strip().splitlines()
        except OSError as error:
            return f"(its log cannot be read: {error.strerror})"
        return lines[-1] if lines else "(it printed nothing)"

    def shorten_log(self) -> None:
        """Begin a log anew that has become long. The process appends to it, and may go on: lines of now may be lost."""
        try:
            if self.log.stat().st_size > LONGEST_LOG_BYTES:
                shutil.copyfile(self.log, self.log.with_suffix(".log.1"))
                os.truncate(self.log, 0)
        except FileNotFoundError:
            return  # it has not been started, or somebody removed its log
        except OSError as error:
            self._tell(f"{self.log} is long and cannot be begun anew ({error.strerror})")


class Cluster:
    """A running cluster. ``distributor`` is a URL; ``brokers`` are in the order of their names."""

    def __init__(
        self,
        data: Path,
        distributor_address: str,
        places: Sequence[BrokerPlace],
        options: Sequence[str],
        tell: Callable[[str], object],
        issued: Issued | None,
        distributor_options: Sequence[str],
        program: Sequence[str],
    ) -> None:
        self.data = data
        self._issued = issued
        self.tell = tell
        self.is_ready = False
        self.distributor = f"http://{distributor_address}"
        self._places = list(places)
        self._changed = trio.Event()
        self._running = True
        store = f"sqlite:///{data.resolve() / 'store.sqlite3'}"
        arguments = ["distributor", "--http-address", distributor_address, "--store", store, *distributor_options]
        if issued is not None:
            arguments += ["--tokens", str(issued.list_file), "--scaler-token-file", str(issued.files["scaled"])]
        self._distributor = Child("distributor", arguments, data, tell, program)
        self._brokers = [
            Child(place.name, self._broker_arguments(place, options), data, tell, program) for place in places
        ]

    @property
    def brokers(self) -> list[BrokerPlace]:
        """The brokers with their addresses and process ids."""
        return [
            msgspec.structs.replace(place, pid=child.pid)
            for place, child in zip(self._places, self._brokers, strict=True)
        ]

    @property
    def distributor_pid(self) -> int | None:
        """The distributor's process id; None while it does not run."""
        return self._distributor.pid

    def client(self, timeout_s: float) -> DistributorClient:
        """Return an operator's client of the distributor. Raises BadInput."""
        return DistributorClient(
            self.distributor, token=self._issued.operator if self._issued else None, timeout_s=timeout_s
        )

    async def wait_change(self) -> None:
        """Wait until a process starts or ends."""
        await self._changed.wait()

    def children(self) -> list[Child]:
        """Return all processes: distributor, brokers."""
        return [self._distributor, *self._brokers]

    def note_change(self) -> None:
        """Write ``cluster.json`` and wake the callers of ``wait_change``."""
        try:
            write_cluster(self.data, self.file)
        except OSError as error:  # a full disk must not end what runs
            self.tell(f"{self.data / FILE_NAME} cannot be written ({error.strerror}): it is out of date")
        self._changed.set()
        self._changed = trio.Event()

    @property
    def file(self) -> ClusterFile:
        """The content of ``cluster.json``."""
        return ClusterFile(
            distributor=self.distributor,
            brokers=self.brokers,
            pid=os.getpid() if self._running else None,
            distributor_pid=self.distributor_pid,
            boot=present_boot(),
        )

    def note_end(self, child: Child) -> None:
        """Report that a process ended. Before the cluster is ready, ``_wait_ready`` reports it as a failure."""
        if self.is_ready:
            then = "stays so: it was asked to" if child.stays_ended else "is started again"
            self.tell(f"{child.name} {child.ended} and {then} (see {child.log})")
        self.note_change()

    def note_stopped(self) -> None:
        """Record that the cluster was stopped."""
        self._running = False
        self.note_change()

    def _broker_arguments(self, place: BrokerPlace, options: Sequence[str]) -> list[str]:
        return [
            "broker",
            *("--name", place.name),
            *("--tcp-address", place.tcp_address),
            *("--http-address", place.http_address),
            *("--data-path", str(_directory(self.data / place.name))),
            *("--distributor", self.distributor),
            *(("--mqtt-address", place.mqtt_address) if place.mqtt_address is not None else ()),
            *self._token_arguments(place.name),
            *options,
        ]

    def _token_arguments(self, broker: str) -> list[str]:
        if self._issued is None:
            return []
        return ["--token-file", str(self._issued.files[broker]), "--tokens", str(self._issued.list_file)]


@asynccontextmanager
async def cluster(
    *,
    brokers: int,
    mcap: float | None,
    data: Path,
    http_address: str | None = None,
    ports: range | None = None,
    broker_options: Sequence[str] = (),
    mqtt: bool = False,
    tokens: bool = False,
    distributor_options: Sequence[str] = ("--fitting", "off", "--relief", "off"),
    ready_timeout_s: float = READY_TIMEOUT_S,
    begun: Callable[[], object] = lambda: None,
    tell: Callable[[str], object] = lambda _line: None,
    program: Sequence[str] = PROGRAM,
) -> AsyncIterator[Cluster]:
    """Run a cluster; the block starts once all brokers have synced.

    ``mcap``: capacity of each broker, msg/s; None: not stated. ``http_address``: the distributor's; None: a free port,
    kept for later starts. ``ports``: of the brokers, two each, three with ``mqtt``; None: any. ``mqtt``: brokers speak
    it too, on loopback, with anybody. ``tokens``: services require tokens (``srtm.cluster.token_files``). ``begun`` is
    called once ``data`` is this cluster's. ``tell`` receives a line for people whenever a process ended. ``program``:
    what precedes a command of ``srtm``, here or in another checkout. Raises BadInput, Conflict (``data`` is in use, a
    port is taken), Unavailable (a process did not start; the message has its last log line).
    """
    _check(brokers, mcap, http_address, ports, mqtt=mqtt)
    with _locked(data):
        begun()
        issued = issue(data, _names(brokers)) if tokens else None
        ended = _ended_with_the_host(data)
        last = read_cluster(data)
        distributor, places = _places(last, brokers, http_address, ports, mqtt=mqtt)
        _tell_of_moved([] if last is None else last.brokers, places, tell)
        options = broker_options if mcap is None else ["--mcap", str(mcap), *broker_options]
        running = Cluster(data, distributor, places, options, tell, issued, distributor_options, program)
        try:
            async with background_nursery() as nursery:
                for child in running.children():
                    goes_on = partial(_goes_on, running, child)
                    await nursery.start(keep_running, child, running.note_change, goes_on)
                nursery.start_soon(keep_logs_short, running.children())
                for name, incarnation in ended.items():
                    nursery.start_soon(_tell_until_heard, running, name, incarnation)
                await _wait_ready(running, ready_timeout_s)
                running.is_ready = True
                await _tell_of_missing(running)
                yield running
        finally:
            running.note_stopped()


def _names(brokers: int) -> list[str]:
    return [f"broker-{number}" for number in range(1, brokers + 1)]


def _check(brokers: int, mcap: float | None, http_address: str | None, ports: range | None, *, mqtt: bool) -> None:
    if not 1 <= brokers <= 1024:
        raise BadInput("brokers", brokers, "must be 1 to 1024")
    if mcap is not None and not 0 < mcap < float("inf"):
        raise BadInput("mcap", mcap, "must be a rate above 0 msg/s")
    if http_address is not None and parse_peer("http-address", http_address)[1] == 0:
        raise BadInput("http-address", http_address, "must name a port: it is kept")
    each = 3 if mqtt else 2
    if ports is not None and len(ports) < each * brokers:
        taken = "one for messages, one for HTTP and one for MQTT" if mqtt else "one for messages and one for HTTP"
        rule = f"must be at least {each * brokers} ports: each broker takes {taken}"
        raise BadInput("ports", f"{ports.start}-{ports.stop - 1}", rule)


@contextmanager
def _locked(data: Path) -> Iterator[None]:
    """Lock a directory for one supervisor. The kernel releases the lock when the process ends."""
    with _opened(_directory(data) / "lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            rule = "is in use by another srtm up; stop that one or choose another directory"
            raise Conflict("data", str(data), rule) from None
        yield


def _directory(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput("data", str(path), f"must be a directory that can be written ({error.strerror})") from error
    return path


def _opened(path: Path) -> TextIO:
    try:
        path.touch(mode=0o600)
        return path.open("w")
    except OSError as error:
        raise BadInput("data", str(path), f"must be a file that can be written ({error.strerror})") from error


def _places(
    last: ClusterFile | None, brokers: int, http_address: str | None, ports: range | None, *, mqtt: bool
) -> tuple[str, list[BrokerPlace]]:
    """Return the distributor's address, and the brokers'. ``last``: what ran here before."""
    kept = {} if last is None else _kept_addresses(last, brokers, ports)
    if http_address is not None:
        kept[0] = http_address
    distributor, *free = pick_addresses(1 + (3 if mqtt else 2) * brokers, kept, ports)
    if http_address is not None and distributor != http_address:
        raise unusable("http-address", http_address)
    spoken = free[2 * brokers :] if mqtt else [None] * brokers
    return distributor, [
        BrokerPlace(name=name, tcp_address=tcp_address, http_address=admin_address, mqtt_address=mqtt_address)
        for name, tcp_address, admin_address, mqtt_address in zip(
            _names(brokers), free[: 2 * brokers : 2], free[1 : 2 * brokers : 2], spoken, strict=True
        )
    ]


def _tell_of_moved(last: Sequence[BrokerPlace], places: Sequence[BrokerPlace], tell: Callable[[str], object]) -> None:
    """Tell of brokers at other addresses than last time: clients that were given one by hand look in vain."""
    for before, now in zip(last, places, strict=False):
        for what in ("tcp_address", "http_address", "mqtt_address"):
            old, new = getattr(before, what), getattr(now, what)
            if None not in (old, new) and old != new:
                tell(f"{now.name} has {new} instead of {old}, which is taken or outside --ports")


def _kept_addresses(last: ClusterFile, brokers: int, ports: range | None) -> dict[int, str]:
    """Return the addresses of the last run by index: the distributor's, two of each broker, then those for MQTT.

    Addresses of brokers outside ``ports`` are not kept.
    """
    kept = {0: last.distributor.removeprefix("http://")}
    for number, place in enumerate(last.brokers[:brokers]):
        kept |= {1 + 2 * number: place.tcp_address, 2 + 2 * number: place.http_address}
        if place.mqtt_address is not None:
            kept[1 + 2 * brokers + number] = place.mqtt_address
    return {
        index: address
        for index, address in kept.items()
        if index == 0 or ports is None or parse_peer("data", address)[1] in ports
    }


async def keep_running(
    child: Child,
    begun: Callable[[], object],
    goes_on: Callable[[], Awaitable[bool]],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Start ``child``, and start it again whenever it ends, with a growing delay while it does not run for long.

    ``begun`` is called after each start, ``goes_on`` after each end; if that returns false, the child is not restarted.
    """
    backoff = Backoff(first_s=0.1, longest_s=5.0)
    while True:
        started_at = trio.current_time()
        try:
            process = child.start()
        except OSError as error:
            process, child.ended = None, f"cannot be started ({error.strerror})"
        begun()
        task_status.started()
        task_status = trio.TASK_STATUS_IGNORED
        if process is not None:
            await child.run(process)
        if trio.current_time() - started_at > _STEADY_S:
            backoff.reset()
        if not await goes_on():
            return
        await trio.sleep(backoff.next_s())


async def keep_logs_short(children: Sequence[Child]) -> None:
    """Begin logs anew that have become long, for as long as it runs."""
    while True:
        await trio.sleep(_LOG_CHECK_S)
        for child in children:
            child.shorten_log()


async def _goes_on(running: Cluster, child: Child) -> bool:
    running.note_end(child)
    if child.name != "distributor":
        await _report_death(running, child)
    if not (child.stays_ended and running.is_ready):
        return True
    is_broker = any(child.name == place.name for place in running.brokers)
    return is_broker and await _is_undrained(running, child.name)


async def _is_undrained(running: Cluster, name: str) -> bool:
    """Wait until the drain of a broker that has ended is taken back. False: it is not drained, or it is forgotten."""
    is_drained = False
    async with running.client(timeout_s=_DRAINED_CHECK_S) as client:
        while True:
            try:
                view = await client.broker(name)
            except NotFound:
                return False
            except SrtmError:  # no distributor answers now
                pass
            else:
                if not view["draining"]:
                    return is_drained
                is_drained = True
            await trio.sleep(_DRAINED_CHECK_S)


async def _report_death(running: Cluster, child: Child) -> None:
    """Report a broker's end to the distributor, within 1 s.

    A failure is only printed: the broker's next process, with a new incarnation, proves the same when it syncs.
    """
    incarnation = _incarnation(running.data / child.name)
    if incarnation is None:  # it ended before it had one, so the distributor does not know it
        return
    try:
        await _tell_end(running, child.name, incarnation, f"its supervisor saw it end: {child.ended}", timeout_s=1.0)
    except SrtmError as error:
        running.tell(f"the distributor was not told that {child.name} ended: {error}")


def _ended_with_the_host(data: Path) -> dict[str, str]:
    """{broker: incarnation} of the last run on ``data``, if the host was started again since.

    Their next processes cannot prove that: a lock says nothing about another kernel.
    """
    last = read_cluster(data)
    if last is None or last.boot in ("", present_boot()):
        return {}
    found = {place.name: _incarnation(data / place.name) for place in last.brokers}
    return {name: incarnation for name, incarnation in found.items() if incarnation is not None}


def _incarnation(directory: Path) -> str | None:
    """Return the one that used a broker's data directory last (``broker.runtime.data_directory`` writes it)."""
    try:
        return (directory / "srtm.incarnation").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None


async def _tell_until_heard(running: Cluster, name: str, incarnation: str) -> None:
    """Report that a broker ended with its host. The distributor starts at the same time."""
    backoff = Backoff(_FIRST_CHECK_S, _LAST_CHECK_S)
    while True:
        try:
            return await _tell_end(running, name, incarnation, "its host was started again", timeout_s=READY_TIMEOUT_S)
        except Unavailable:
            await trio.sleep(backoff.next_s())
        except (NotFound, Conflict):  # it counts with no broker of this name, or with a later process
            return None


async def _tell_end(running: Cluster, name: str, incarnation: str, reason: str, *, timeout_s: float) -> None:
    async with running.client(timeout_s) as client:
        await client.broker_is_dead(name, DeadNotice(incarnation=incarnation, reason=reason))


async def _wait_ready(running: Cluster, timeout_s: float) -> None:
    waiting, checks = [child.name for child in running.children()], Backoff(_FIRST_CHECK_S, _LAST_CHECK_S)
    with trio.move_on_after(timeout_s) as scope:
        async with running.client(timeout_s) as client:
            while waiting := await _not_ready(running, client):
                _refuse_crash(running)
                await trio.sleep(checks.next_s())
    if scope.cancelled_caught:
        raise Unavailable(f"not ready within {timeout_s:g} s: {', '.join(waiting)}; see {running.data}/*.log")


def _refuse_crash(running: Cluster) -> None:
    for child in running.children():
        if child.ended is not None:
            raise Unavailable(f"{child.name} {child.ended} at its start: {child.last_words()} (see {child.log})")


async def _tell_of_missing(running: Cluster) -> None:
    """Tell of brokers that the distributor knows and that this run does not start."""
    here = {place.name for place in running.brokers}
    async with running.client(READY_TIMEOUT_S) as client:
        try:
            known, topics = await client.brokers(), await client.topics()
        except SrtmError as error:
            running.tell(f"whether brokers of an earlier run are missing is not known: {error}")
            return
    for broker in known:
        name = broker["name"]
        if name in here or broker["alive"] or broker["dead"]:
            continue
        count = sum(place["publishers"] for topic in topics for place in topic["brokers"] if place["broker"] == name)
        running.tell(
            f"{name} is known from an earlier run and is not started; {count:,} publishers belong there. If it is gone "
            f"for good: `srtm brokers dead {name}`, then `srtm brokers forget {name}`"
        )


async def _not_ready(running: Cluster, client: DistributorClient) -> list[str]:
    """Return the names of the processes that do not answer, and of the brokers that have not synced or refuse."""
    try:
        known = {str(broker["name"]) for broker in await client.brokers() if broker["alive"]}
    except Unavailable:
        return [child.name for child in running.children()]
    missing = [broker.name for broker in running.brokers if broker.name not in known]
    return missing or [broker.name for broker in running.brokers if await _is_refusing(broker)]


async def _is_refusing(place: BrokerPlace) -> bool:
    """Whether a broker takes no messages yet: the distributor has answered it, but the answer is not in force there."""
    client = BrokerClient(place.http_address)
    try:
        return await client.is_refusing()
    except SrtmError:
        return False  # it may serve HTTP inside TLS alone
    finally:
        await client.aclose()


async def _wait_exit(process: subprocess.Popen[bytes]) -> None:
    descriptor = os.pidfd_open(process.pid)
    try:
        await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)
    process.wait()


async def _end(process: subprocess.Popen[bytes], name: str, tell: Callable[[str], object]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    with trio.move_on_after(STOP_GRACE_S):
        await _wait_exit(process)
        return
    process.kill()
    await _wait_exit(process)
    tell(f"{name} did not end within {STOP_GRACE_S:g} s and was killed")


def _how_it_ended(status: int) -> str:
    return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
