"""One set of parameters for the simulator, made of recorded runs, and held against others. Pure, but for the file that
keeps them.

What a message takes of a server is fitted to how busy the broker's process was: so much a second whatever
comes, a message, a firing (which wakes a connection), and a connection that is there. What it takes besides, wake-up
and write, is what the recorded processing exceeds that of the servers by, and nothing where it does not (nearly half
of the messages that come alone and without the laboratory's server: some of what a firing costs is spent when its
message has left): its distribution as it was seen, of messages that came alone and of those in batches, of those that
waited for tokens and of the others, each apart. Runs of groups, whose brokers do not go before the generator, are among
those of batches: the fit is of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
from scipy.optimize import nnls

from bench.harness.results.results import replace_file
from bench.harness.results.verdict import Check
from bench.simulation.brokers import NO_PATHS, Bools, Delays, Ints, Machine, PathDelay, Paths, Tail
from bench.simulation.recorded import Layout, Recorded
from bench.simulation.traffic import SECOND_NS
from srtm.errors import BadInput

CALIBRATED = Path(__file__).parent.parent / "data" / "calibrated.json"
CLOSE = 0.15
QUANTILES = 500
_LEAST_RUNS = 4  # as many as there are terms
_LEAST_SEEN = 1_000  # messages of a kind: of fewer a run knows no p99
_SAME_NS = 1_000  # delays that are as good as none


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """``machine``: without a laboratory's server. ``awake_ns``: processor time a second of a broker that has work,
    whatever comes: wake-ups are shared the more the more comes. ``lab_paths``: where that server is: a message leaves
    it by a timer, not by what a socket says."""

    machine: Machine
    awake_ns: float
    lab_paths: Paths = NO_PATHS

    def of(self, layout: Layout) -> Machine:
        return self.laboratory(layout.lab_us) if layout.lab_us else self.machine

    def laboratory(self, lab_us: float) -> Machine:
        """The broker with the laboratory's server behind it."""
        return replace(self.machine, lab_ns=lab_us * 1_000, paths=self.lab_paths)


def calibrated(path: Path = CALIBRATED) -> Fitted:
    """What the last documented calibration found. Raises BadInput for a file that holds something else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Fitted)
    except (OSError, msgspec.MsgspecError) as error:
        raise BadInput("calibration", str(path), f"must be what srtm bench calibrate writes ({error})") from error


def keep(fitted: Fitted, path: Path = CALIBRATED) -> None:
    """For every simulated figure. Raises OSError."""
    replace_file(path, msgspec.json.encode(fitted) + b"\n")


Run = tuple[Layout, Recorded]


def fit(runs: Sequence[Run]) -> Fitted:
    """Raises BadInput for too few runs without the laboratory's server, of one broker each, and where of some kind
    of message there are none with it or none without."""
    bare = [run for run in runs if not run[0].lab_us]
    laboratory = [run for run in runs if run[0].lab_us]
    machine, awake_ns = _costs(bare)
    fitted = Fitted(machine=machine, awake_ns=awake_ns)
    with_paths = replace(machine, paths=_paths(fitted, bare, "without the laboratory's server"))
    return replace(fitted, machine=with_paths, lab_paths=_paths(fitted, laboratory, "in the laboratory"))


def _paths(fitted: Fitted, runs: Sequence[Run], where: str) -> Paths:
    single = [run for run in runs if run[0].fleet.batch == 1]
    batched = [run for run in runs if run[0].fleet.batch > 1]
    return Paths(
        single=_path(fitted, single, f"{where}, with batches of 1"),
        batched=_path(fitted, batched, f"{where}, with larger batches"),
    )


def _path(fitted: Fitted, runs: Sequence[Run], which: str) -> PathDelay:
    besides = [_besides(fitted.of(layout), recorded) for layout, recorded in runs]
    at_once = [besides_ns[~waited] for besides_ns, waited in besides]
    waited = [besides_ns[waited] for besides_ns, waited in besides]
    return PathDelay(
        at_once=_usual(at_once, f"{which}, with messages that did not wait for tokens"),
        waited=_usual(waited, f"{which}, with messages that waited for tokens"),
    )


def _usual(of_runs: Sequence[Ints], which: str) -> tuple[int, ...]:
    """Median by quantile: a run in which the machine stopped for long says little of the others."""
    seen = [_quantiles(values, QUANTILES) for values in of_runs if len(values) >= _LEAST_SEEN]
    if not seen:
        raise BadInput("runs", 0, f"must be at least 1 {which} ({_LEAST_SEEN:,} or more)")
    return tuple(int(one) for one in np.median(seen, axis=0))


def _costs(runs: Sequence[Run]) -> tuple[Machine, float]:
    if len(runs) < _LEAST_RUNS:
        raise BadInput("runs", len(runs), f"must be at least {_LEAST_RUNS} without the laboratory's server")
    terms = [[1.0, 1.0 / layout.fleet.batch, float(layout.fleet.count), 1.0 / layout.fleet.load] for layout, _ in runs]
    took_ns = np.array([1_000 * recorded.cpu_us for _, recorded in runs])
    load = np.array([layout.fleet.load for layout, _ in runs])  # how busy a server is decides how long its queue gets
    (message, firing, connection, awake), _ = nnls(np.array(terms) * load[:, None], took_ns * load)
    machine = Machine(message_ns=float(message), firing_ns=float(firing), connection_ns=float(connection))
    return machine, float(awake)


def _besides(machine: Machine, recorded: Recorded) -> tuple[Ints, Bools]:
    """Of every message what it took besides the servers, ns, and whether it waited for tokens."""
    measured, served = (
        Delays.joined(part.measured for part in recorded.parts),
        Delays.joined(recorded.replayed(machine, 0)),
    )
    return np.maximum(measured.processing_ns - served.processing_ns, 0), measured.access_ns > 0


def _quantiles(values: Ints, count: int) -> Ints:
    """In the middle of ``count`` parts, each as likely as the others."""
    return np.percentile(values, 100 * (np.arange(count) + 0.5) / count, method="inverted_cdf").astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One run beside the simulation of the arrivals that it recorded."""

    name: str
    measured: Tail
    simulated: Tail

    @property
    def access_off(self) -> float:
        return apart(self.simulated.access_p99_ns, self.measured.access_p99_ns)

    @property
    def processing_off(self) -> float:
        return apart(self.simulated.processing_p99_ns, self.measured.processing_p99_ns)

    @property
    def close(self) -> bool:
        return max(self.access_off, self.processing_off) <= CLOSE

    def check(self) -> Check:
        found = f"access {100 * self.access_off:.1f} %, processing {100 * self.processing_off:.1f} % off"
        return Check(f"{self.name}: simulated p99", found, f"each within {100 * CLOSE:g} %", self.close)


def compared(name: str, recorded: Recorded, machine: Machine, seed: int) -> Compared:
    return Compared(name=name, measured=recorded.measured, simulated=recorded.simulated(machine, seed))


def apart(simulated_ns: int, measured_ns: int) -> float:
    """As part of what was measured."""
    off = abs(simulated_ns - measured_ns)
    return 0.0 if off <= _SAME_NS else off / max(measured_ns, _SAME_NS)


def text(fitted: Fitted) -> str:
    machine = fitted.machine
    return (
        f"{machine.message_ns / 1e3:.3g} us a message, {machine.firing_ns / 1e3:.3g} us a firing, "
        f"{machine.connection_ns:.3g} ns of each message for every publisher connected, "
        f"{fitted.awake_ns / SECOND_NS * 1e3:.3g} ms of processor time a second whatever comes; besides, wake-up and "
        f"write (p50, p99): {_told(machine.paths)}; in the laboratory: {_told(fitted.lab_paths)}"
    )


def _told(paths: Paths) -> str:
    kinds = {
        "alone": paths.single.at_once,
        "alone after tokens": paths.single.waited,
        "in batches": paths.batched.at_once,
        "in batches after tokens": paths.batched.waited,
    }
    return ", ".join(
        "{} {:.3g} and {:.3g} us".format(kind, *np.percentile(values, [50, 99], method="inverted_cdf") / 1e3)
        for kind, values in kinds.items()
    )
