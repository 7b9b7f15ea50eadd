"""The highest load that keeps p99 within 1 ms and loses nothing: QoS 0, QoS 1, and QoS 1 to a session that is kept."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench.comparisons.mqtt.started import FLOOR, MOSQUITTO, OURS, THEIRS, plan, started
from bench.comparisons.rows.load import FIGURES, NOTE, begin
from bench.harness.load.run import RunResult, run_plan
from bench.harness.results.comparison import AnyOf, Ratio, Row, Target, Turn

LABEL = "highest load with p99 <= 1 ms"
OF_FLOOR = 0.9


async def _run(qos: int, durable: bool, name: str, publishers: int, turn: Turn, folder: Path) -> RunResult:
    async with started(name, turn, folder, durable=durable) as system:
        asked = plan(system.tcp_address, turn, publishers, qos=qos, durable=durable)
        return await run_plan(asked, name=f"mqtt load {name} {publishers}")


def _target(claim: str, at_least: float) -> Target:
    label = f"{LABEL}, {claim}"
    return AnyOf(
        label, (Ratio("load", label, THEIRS, at_least=at_least), Ratio("load", label, FLOOR, at_least=OF_FLOOR))
    )


def _row(name: str, claim: str, qos: int, at_least: float, *, durable: bool = False) -> Row:
    return Row(
        name=name,
        claim=f"The highest load (publishers x 10 msg/s, Poisson, 100 B, one subscriber) with p99 <= 1 ms: {claim}.",
        systems=(OURS, THEIRS, FLOOR),
        figures=FIGURES,
        targets=(_target(claim, at_least),),
        begin=begin(partial(_run, qos, durable)),
        note=f"{NOTE} The floor is a bare loop that speaks as much MQTT as this takes, without sessions. {MOSQUITTO}",
    )


QOS_0 = _row("load-qos0", "QoS 0 on both sides", 0, 1.1)
QOS_1 = _row("load-qos1", "QoS 1 on both sides, a clean session", 1, 1.5)
DURABLE = _row("load-durable", "QoS 1 on both sides, a session that is kept", 1, 1.5, durable=True)
