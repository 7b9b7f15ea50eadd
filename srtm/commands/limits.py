"""``srtm limit ...``: an operator's calls to the limit service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console

from srtm.client.distributor import DistributorClient, Json
from srtm.client.limit_service import DEFAULT_URL, LimitClient
from srtm.console.distributor_call import ask_distributor
from srtm.console.output import JsonOption, TokenOption, show, table
from srtm.console.running import run_trio
from srtm.errors import BadInput
from srtm.operations.audit_list import print_changes
from srtm.text import figure, plural
from srtm.toml_text import read_toml

if TYPE_CHECKING:
    from srtm.contracts.contract import Contract

_T = TypeVar("_T")
Contracts = LimitClient | DistributorClient  # both have the same calls for contracts
app = typer.Typer(no_args_is_help=True, help="Limits: contracts, checks, subjects.", rich_markup_mode=None)
contract_app = typer.Typer(no_args_is_help=True, help="Contracts: submit, show, set, remove.", rich_markup_mode=None)
import_app = typer.Typer(no_args_is_help=True, help="Contracts of other limiters.", rich_markup_mode=None)
app.add_typer(contract_app, name="contract")
app.add_typer(import_app, name="import")

UrlOption = Annotated[
    str | None, typer.Option("--url", metavar="URL", help=f"Limit service. Default: $SRTM_LIMIT, else {DEFAULT_URL}.")
]
BrokersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--distributor", metavar="URL", help="The contracts of brokers, at this distributor. May be repeated."
    ),
]
Namespace = Annotated[str, typer.Argument(metavar="NAMESPACE")]
Subject = Annotated[str, typer.Argument(metavar="SUBJECT")]
Pattern = Annotated[str, typer.Argument(metavar="PATTERN", help="A subject, or the beginning of subjects and a *.")]


def ask(url: str | None, token: str | None, question: Callable[[LimitClient], Awaitable[_T]]) -> _T:
    """Run ``question`` with a client of the limit service, in an event loop of its own."""

    async def work() -> _T:
        async with LimitClient(url, token=token) as client:
            return await question(client)

    return run_trio(work)


def ask_for_contracts(
    url: str | None,
    distributor: list[str] | None,
    token: str | None,
    question: Callable[[Contracts], Awaitable[_T]],
) -> _T:
    """Run ``question`` with a client of the limit service, or of the distributor if one is named. Raises BadInput."""
    if distributor is None:
        return ask(url, token, question)
    if url is not None:
        raise BadInput("distributor", distributor[0], "must not be given together with --url")
    return ask_distributor(distributor, token, question)


@app.command()
def check(
    namespace: Namespace,
    subjects: Annotated[list[str], typer.Argument(metavar="SUBJECT...")],
    cost: Annotated[int, typer.Option(help="Tokens to take.")] = 1,
    peek: Annotated[bool, typer.Option("--peek", help="Only look: take nothing.")] = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> int:
    """Ask for tokens of a subject, or of several at once: all or none. Status 1 if it is refused."""
    found = ask(url, token, lambda client: client.check(namespace, subjects, cost, peek=peek))
    show("limit check", found, json_file, partial(_show_check, found))
    return 0 if found["allowed"] else 1


@app.command("show")
def show_subject(
    namespace: Namespace,
    subject: Subject,
    url: UrlOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """Show what a subject has left. Nothing is taken."""
    found = ask(url, token, lambda client: client.subject(namespace, subject))
    show("limit show", found, json_file, lambda console: console.print(_policies(found)))


@app.command()
def ban(
    namespace: Namespace,
    subject: Subject,
    lift: Annotated[bool, typer.Option("--lift", help="Lift a ban: the subject begins anew.")] = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """Ban a subject: windows are full, and buckets owe their max_debt until time has paid it."""

    async def change(client: LimitClient) -> Json:
        if not lift:
            return await client.ban(namespace, subject)
        await client.reset(namespace, subject)
        return await client.subject(namespace, subject)

    found = ask(url, token, change)
    show("limit ban", found, json_file, lambda console: console.print(_policies(found)))


@app.command("subjects")
def list_subjects(
    namespace: Namespace,
    most: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 20,
    url: UrlOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """List the most checked subjects of a namespace (by one check in 16), the watched, and those whose bans hold."""
    found = ask(url, token, lambda client: client.heaviest(namespace, most))
    show("limit subjects", found, json_file, partial(_show_heaviest, found))


@app.command()
def audit(
    subject: Annotated[
        str | None, typer.Option(metavar="TEXT", help='Of one thing: "contract NAMESPACE PATTERN", "node NAME".')
    ] = None,
    most: Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="The latest N.")] = 20,
    url: UrlOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """List who changed which contract, banned or reset whom, removed which node; newest first."""
    entries = ask(url, token, lambda client: client.audit(most=most, subject=subject))
    show("limit audit", entries, json_file, partial(print_changes, entries))


@app.command()
def watch(
    namespace: Namespace,
    subject: Subject,
    stop: Annotated[bool, typer.Option("--stop", help="Watch it no more.")] = False,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Watch a subject: `srtm limit subjects` shows what was asked of it within the last minute."""
    ask(url, token, lambda client: client.watch(namespace, subject, stop=stop))


@app.command()
def bench(
    namespace: Namespace,
    rate: Annotated[float, typer.Option(min=1, max=100_000, help="Checks a second, at random instants.")] = 500.0,
    seconds: Annotated[float, typer.Option(min=0.1, max=3_600, help="How long.")] = 10.0,
    connections: Annotated[int, typer.Option(min=1, max=1_000, help="Each has one check under way.")] = 16,
    subjects: Annotated[int, typer.Option(min=1, help="So many, bench-0 and on, in random order.")] = 1_000,
    resp: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Ask by CL.THROTTLE here, not by HTTP; without contract. In TLS: rediss://."
        ),
    ] = None,
    url: UrlOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> int:
    """Measure a running service: decisions a second, and latencies since each check was due.

    Status 1 if a check got no decision.
    """
    from srtm.operations.limit_load import Plan, bench_service

    plan = Plan(rate=rate, seconds=seconds, connections=connections, subjects=subjects)
    found = run_trio(partial(bench_service, url, resp, namespace, token, plan))
    show("limit bench", found, json_file, partial(_show_bench, found))
    return 1 if found["errors"] else 0


@contract_app.command()
def submit(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml")],
    url: UrlOption = None,
    distributor: BrokersOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """Put the contracts of a file in force, all or none. Others stay."""
    from srtm.contracts.contract_file import read_contract_file

    contracts = [contract.to_json() for contract in read_contract_file(file)]
    found = ask_for_contracts(url, distributor, token, lambda client: client.submit(contracts))
    show("limit contract submit", found, json_file, partial(_show_contracts, found))


@contract_app.command("show")
def show_contracts(
    namespace: Annotated[str | None, typer.Argument(metavar="NAMESPACE")] = None,
    url: UrlOption = None,
    distributor: BrokersOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """Show all contracts, or those of a namespace, with what was asked of their policies."""
    everything = ask_for_contracts(url, distributor, token, lambda client: client.contracts())
    found = [each for each in everything if namespace is None or each["namespace"] == namespace]
    show("limit contract show", found, json_file, partial(_show_contracts, found))


@contract_app.command("set")
def set_values(
    namespace: Namespace,
    pattern: Pattern,
    changes: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="shadow=true, or POLICY.rate=50.")],
    url: UrlOption = None,
    distributor: BrokersOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """Change values of a contract while it is in force. What subjects have used stays."""

    async def change(client: Contracts) -> Json:
        before = await client.contract(namespace, pattern)
        version = before.pop("version")
        before.pop("counts")
        return await client.put(changed(before, changes), version=version)

    found = ask_for_contracts(url, distributor, token, change)
    show("limit contract set", found, json_file, partial(_show_contracts, [found]))


@contract_app.command()
def remove(
    namespace: Namespace,
    pattern: Pattern,
    url: UrlOption = None,
    distributor: BrokersOption = None,
    token: TokenOption = None,
) -> None:
    """Remove a contract and its subjects."""
    ask_for_contracts(url, distributor, token, lambda client: client.remove(namespace, pattern))


@import_app.command("envoy")
def import_envoy(
    files: Annotated[list[Path], typer.Argument(metavar="FILE.yaml...")],
    slices: Annotated[
        int,
        typer.Option(min=1, max=60, help="1: windows are fixed, as Envoy counts; more: they roll in so many slices."),
    ] = 1,
    output: Annotated[Path | None, typer.Option(metavar="FILE.toml", help="Write the contracts here.")] = None,
) -> None:
    """Turn configurations of envoyproxy/ratelimit into a contract file. What cannot be mapped is refused."""
    from srtm.contracts.contract import read_contracts
    from srtm.contracts.contract_text import contract_file_text

    found = [contract for file in files for contract in _envoy_contracts(file, slices)]
    read_contracts([contract.to_json() for contract in found])  # two files may limit the same
    text = contract_file_text(found)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput("output", str(output), f"must be a file that can be written ({error.strerror})") from None


def _envoy_contracts(file: Path, slices: int) -> list[Contract]:
    from srtm.contracts.envoy_config import read_envoy_config

    try:
        return read_envoy_config(file.read_text(encoding="utf-8"), slices)
    except OSError as error:
        raise BadInput("file", str(file), f"must be a file that can be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise BadInput("file", str(file), "must be UTF-8") from None
    except BadInput as error:
        raise BadInput(f"{file}: {error.field}", error.value, error.rule) from None


def changed(document: Json, changes: list[str]) -> Json:
    """Return a contract's document with ``KEY=VALUE`` changes. Raises BadInput."""
    policies = {policy["name"]: dict(policy) for policy in document["policies"]}
    top = dict(document)
    for change in changes:
        key, sign, text = change.partition("=")
        policy, dot, field = key.rpartition(".")
        if not sign or not key:
            raise BadInput("change", change, "must be KEY=VALUE, such as shadow=true or burst.rate=50")
        if dot and policy not in policies:
            raise BadInput("change", change, f"must name a policy of the contract: {', '.join(policies)}")
        (policies[policy] if dot else top)[field if dot else key] = _value(text)
    return {**top, "policies": list(policies.values())}


def _value(text: str) -> Any:
    try:
        return read_toml("change", text, f"value = {text}")["value"]
    except BadInput:
        return text  # such as 90s, without quotes


def _show_check(found: Json, console: Console) -> None:
    if found["allowed"]:
        console.print("allowed" + (f", after {figure(found['wait_s'], 6)} s" if found["wait_s"] else ""))
    else:
        later = "never" if found["wait_s"] is None else f"in {figure(found['wait_s'], 6)} s"
        console.print(f"refused by {', '.join(found['violated'])}; may pass {later}")
    for subject in found["subjects"]:
        console.print(_policies(subject))


def _show_bench(found: Json, console: Console) -> None:
    rows = [[name.replace("_", " "), value] for name, value in found.items()]
    console.print(table("", ["what", "figure"], rows, left=1))
    if found["errors"]:
        console.print("errors are answers other than 200 and 429: `srtm limit check NAMESPACE bench-0` says why")


def _policies(subject: Json) -> Any:
    rows = [
        [said["name"], "allows" if said["allowed"] else "refuses", said["remaining"], said["wait_s"], said["reset_s"]]
        for said in subject["policies"]
    ]
    title = f"{subject['subject']} under {subject['contract']}"
    return table(title, ["policy", "says", "remaining", "wait s", "all back s"], rows, left=2)


def _show_heaviest(found: Json, console: Console) -> None:
    rows = [[each["subject"], each["checks"], each["error"]] for each in found["heaviest"]]
    title = f"{found['in_memory']:,} {plural(found['in_memory'], 'subject')} of {found['namespace']} in memory"
    console.print(table(title, ["subject", "checks", "at most too many"], rows))
    if not rows:
        console.print("one check in 16 is looked at: none yet")
    if found["watched"]:
        watched = [[each["subject"], each["allowed"], each["refused"], each["cost"]] for each in found["watched"]]
        console.print(table("watched, the last minute", ["subject", "allowed", "refused", "tokens"], watched))
    if found["banned"]:
        banned = [[each["subject"], _when(each["banned_at"]), each["wait_s"]] for each in found["banned"]]
        console.print(table("banned", ["subject", "since", "may pass in s"], banned, left=2))


def _when(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(sep=" ").removesuffix("+00:00") + " UTC"


def _show_contracts(found: list[Json], console: Console) -> None:
    if not found:
        console.print("there is no such contract: `srtm limit contract submit` puts some in force")
        return
    rows = [
        [
            each["namespace"],
            each["subject"],
            policy["name"],
            policy["kind"],
            _rule(policy),
            "shadow" if each["shadow"] else each["mode"],
            counts["allowed"],
            counts["refused"],
        ]
        for each in found
        for policy, counts in zip(each["policies"], each["counts"], strict=True)
    ]
    columns = ["namespace", "subject", "policy", "kind", "rule", "mode", "allowed", "refused"]
    console.print(table("", columns, rows, left=6))


def _rule(policy: Json) -> str:
    if "rate" in policy:
        return f"{figure(policy['rate'], 6)}/s, burst {figure(policy['burst'], 6)}"
    if "window" in policy:
        return f"{policy['quota']:,} in {policy['window']}"
    return f"{policy['quota']:,} at once"
