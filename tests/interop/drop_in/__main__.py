"""``python -m tests.interop.drop_in [SESSION]...``: plays the sessions against both, prints what differs. Exit status 1
where something differs that docs/protocol.md does not explain, or no longer differs."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import trio

from srtm.console.running import run_trio
from srtm.errors import Unavailable
from tests.interop.drop_in.auth_server import auth_server
from tests.interop.drop_in.comparison import Verdict, differences, judge
from tests.interop.drop_in.kept import KEPT
from tests.interop.drop_in.node import programs_are_here, running
from tests.interop.drop_in.session import Play, Session
from tests.interop.drop_in.sessions import SESSIONS
from tests.interop.drop_in.sessions.files import full_file
from tests.interop.drop_in.transcript import Transcript

Transcripts = dict[str, Transcript]
_AT_ONCE = 4  # brokers, of each kind


def groups(sessions: Iterable[Session]) -> list[list[Session]]:
    """Those that can share a broker: of the same flags, and not alone."""
    shared: dict[tuple[str, ...], list[Session]] = {}
    alone = []
    for session in sessions:
        if session.alone:
            alone.append([session])
        else:
            shared.setdefault(session.flags, []).append(session)
    return [*shared.values(), *alone]


async def play_all(system: str, sessions: Sequence[Session], folder: Path) -> Transcripts:
    transcripts: Transcripts = {}
    limiter = trio.CapacityLimiter(_AT_ONCE)

    async def play_group(group: Sequence[Session], place: Path) -> None:
        async with limiter:
            await _play_group(system, group, place, transcripts)

    async with trio.open_nursery() as nursery:
        for number, group in enumerate(groups(sessions)):
            nursery.start_soon(play_group, group, folder / f"{system}-{number}")
    return transcripts


async def _play_group(system: str, group: Sequence[Session], place: Path, transcripts: Transcripts) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with auth_server() as auth:
        stand_ins = {"AUTH": lambda: auth.address, "FILE": lambda: str(full_file(place.parent))}
        flags = [_filled(flag, stand_ins) for flag in group[0].flags]
        async with running(system, place, flags) as node, trio.open_nursery() as nursery:
            for session in group:
                transcript = transcripts[session.name] = Transcript()
                nursery.start_soon(_play, session, Play(node, transcript, auth))


async def _play(session: Session, play: Play) -> None:
    """What a session could not go on after is its outcome."""
    try:
        await session.play(play)
    except Exception as error:  # noqa: BLE001
        play.transcript.broke_off = f"{type(error).__name__}: {error}"


def _filled(flag: str, stand_ins: Mapping[str, Callable[[], str]]) -> str:
    name, _, word = flag.partition("=")
    made = stand_ins.get(word)
    return f"{name}={made()}" if made is not None else flag


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.interop.drop_in", description="Our answers and nsqd's.")
    parser.add_argument("session", nargs="*", help="names, also as shell patterns (default: all)")
    parser.add_argument("--list", action="store_true", help="the names of all sessions")
    given = parser.parse_args(arguments)
    if given.list:
        print("\n".join(session.name for session in SESSIONS))
        return 0
    wanted = given.session or ["*"]
    chosen = [session for session in SESSIONS if any(fnmatchcase(session.name, name) for name in wanted)]
    if not chosen:
        parser.error(f"no such session: {', '.join(wanted)}")
    try:
        programs_are_here()
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="srtm-drop-in-") as folder:
        theirs, ours = run_trio(partial(_both, chosen, Path(folder)))
    found = [
        difference
        for session in chosen
        for difference in differences(session.name, theirs[session.name].lines, ours[session.name].lines)
    ]
    verdict = judge(found, KEPT, {session.name for session in chosen}, [session.name for session in SESSIONS])
    exchanges = sum(transcript.exchanges for transcript in theirs.values())
    print(report(verdict, len(chosen), exchanges))
    broken = [
        f"{name} against {system} broke off: {transcript.broke_off}"
        for system, transcripts in (("nsqd", theirs), ("srtm", ours))
        for name, transcript in transcripts.items()
        if transcript.broke_off
    ]
    print("\n".join(broken))
    return 0 if verdict.passes and not broken else 1


async def _both(chosen: Sequence[Session], folder: Path) -> tuple[Transcripts, Transcripts]:
    played: dict[str, Transcripts] = {}

    async def play_one(system: str) -> None:
        played[system] = await play_all(system, chosen, folder)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(play_one, "nsqd")
        nursery.start_soon(play_one, "srtm")
    return played["nsqd"], played["srtm"]


def report(verdict: Verdict, sessions: int, exchanges: int) -> str:
    lines = [str(difference) for difference in verdict.unexplained]
    lines += [f"no longer differs: {place}" for place in verdict.stale]
    lines += ["", "| difference that is meant | answers |", "|---|---|"]
    lines += [f"| {name} | {count} |" for name, count in verdict.kept.items() if count]
    kept = sum(verdict.kept.values())
    lines += [
        "",
        f"{sessions} sessions of {exchanges} connections and requests: {len(verdict.unexplained)} answers differ"
        f" without a reason, {kept} as docs/protocol.md says, {len(verdict.stale)} of these no longer do",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
