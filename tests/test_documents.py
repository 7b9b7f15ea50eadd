"""What the documents name is there (links, anchors, commands, files, dependencies), and they stay readable: short
lines, pages of a bounded length. Lines of Rust are held here too, for rustfmt leaves comments and long texts alone."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import typer

from bench.commands.main import app as bench_app
from srtm.commands.app import app
from tests.support import reference_tables
from tests.support.shown_commands import refusal, shown_commands, unknown_flags

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*.md")),
    *sorted((ROOT / "wheels").glob("*/README.md")),
]
PAGES = [path for path in DOCUMENTS if path.name == "README.md" or ROOT / "docs" in path.parents]
LONGEST_LINE = 120  # bytes, as most tools count
LONGEST = {"README.md": 150, "docs/architecture.md": 250}  # lines
FILE = re.compile(r"`([\w./-]+\.(?:py|pyi|rs|pml|sh))`")
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)")
COMMAND = re.compile(r"(?:^    (?:\.venv/bin/)?|`)srtm ((?:[a-z][a-z0-9-]* ?)+)", re.MULTILINE)
COMMANDS = {"srtm": typer.main.get_command(app), "srtm bench": typer.main.get_command(bench_app)}
# Pages that may name files of the source: elsewhere a package says enough, and does not age.
NAMES_FILES = {"CONTRIBUTING.md", "docs/architecture.md", "docs/reference.md", "docs/model/README.md"}
# Of other projects, which the specification of NSQ's protocol cites.
FOREIGN = {"docs/nsq-protocol.md": {"test.sh"}}


def identity(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def is_dated(path: Path) -> bool:
    """Notes and results tell what was: a file or a command that they name may be gone."""
    return identity(path).startswith(("docs/notes/", "docs/results/"))


LIVING = [path for path in DOCUMENTS if not is_dated(path)]


def anchors(path: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.fixture(scope="module")
def files() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout: which files belong to the project is not known")
    return listed.stdout.split()


@pytest.mark.parametrize("document", LIVING, ids=identity)
def test_files_are_named_where_they_may_be_and_exist(document: Path, files: list[str]) -> None:
    name = identity(document)
    named = set(FILE.findall(document.read_text())) - FOREIGN.get(name, set())
    if name not in NAMES_FILES and document.parent != ROOT / "examples":
        assert sorted(named) == []
    ends = {f"/{file}" for file in files}
    assert [one for one in sorted(named) if not any(end.endswith(f"/{one}") for end in ends)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=identity)
def test_links_lead_somewhere(document: Path) -> None:
    dead = []
    for target, anchor in LINK.findall(document.read_text()):
        path = document.parent / target if target else document
        if not path.exists() or (anchor and anchor not in anchors(path)):
            dead.append(f"{target}#{anchor}")
    assert dead == []


@pytest.mark.parametrize("document", PAGES, ids=identity)
def test_lines_outside_tables_are_short(document: Path) -> None:
    lines = enumerate(document.read_text().split("\n"), 1)
    assert [n for n, line in lines if len(line.encode()) > LONGEST_LINE and not line.lstrip().startswith("|")] == []


def test_lines_of_rust_are_short(files: list[str]) -> None:
    """Of what is delivered: tests and benches hold texts of protocols, which are clearer in one piece."""
    held = [Path(file) for file in files if file.endswith(".rs") and not {"bench", "tests"} & set(Path(file).parts)]
    assert held
    long = [
        f"{file}:{number}"
        for file in held
        for number, line in enumerate((ROOT / file).read_text().split("\n"), 1)
        if len(line.encode()) > LONGEST_LINE
    ]
    assert long == []


@pytest.mark.parametrize("name", LONGEST)
def test_pages_that_everybody_reads_are_short(name: str) -> None:
    assert len((ROOT / name).read_text().split("\n")) <= LONGEST[name] + 1  # the last line ends


def known(words: list[str]) -> bool:
    """Whether the leading words that are no arguments name a command."""
    here, words = (COMMANDS["srtm bench"], words[1:]) if words[:1] == ["bench"] else (COMMANDS["srtm"], words)
    for word in words:
        commands = getattr(here, "commands", None)  # a group's
        if commands is None:
            return True
        if word not in commands:
            return False
        here = commands[word]
    return True


def test_a_word_that_is_no_command_is_told() -> None:
    assert known(["topic", "plan", "sensors"])
    assert not known(["topic", "plant"])
    assert not known(["bench", "plan"])


@pytest.mark.parametrize("document", LIVING, ids=identity)
def test_commands_that_a_document_shows_exist(document: Path) -> None:
    shown = {match.strip() for match in COMMAND.findall(document.read_text())}
    assert [words for words in sorted(shown) if not known(words.split())] == []


def test_command_lines_are_found_as_a_shell_reads_them() -> None:
    lines = [
        "    srtm up > log 2>&1 &",
        "    printf 'a' | srtm publish t --id 'x#1'  # why",
        "srtm no",
        "    srtm a \\",
        "     --b",
    ]
    text = "\n".join(lines)
    assert shown_commands(text) == [["up"], ["publish", "t", "--id", "x#1"], ["a", "--b"]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["topic", "set", "roads", "--rates", "5"], "No such option: --rates"),
        (["topic", "set", "roads", "--rate", "fast"], "--rate: 'fast': must be a valid number"),
        (["topic", "show"], "Missing argument 'NAME'"),
        (["broker", "--tcp-address", "x"], "the following arguments are required: --name"),
        (["broker", "...", "--tls", "x"], "unrecognized arguments: --tls"),
        (["nsqd", "--nothing"], "nothing"),
        (["bench", "run"], "Missing argument 'FILE.toml'"),
    ],
)
def test_a_command_line_that_is_wrong_is_told(words: list[str], said: str) -> None:
    assert said in str(refusal(words))


@pytest.mark.parametrize("document", LIVING, ids=identity)
def test_command_lines_that_a_document_shows_are_taken(document: Path) -> None:
    shown = shown_commands(document.read_text())
    assert {" ".join(words): refusal(words) for words in shown if refusal(words) is not None} == {}


@pytest.mark.parametrize("document", LIVING, ids=identity)
def test_options_of_commands_within_sentences_exist(document: Path) -> None:
    within = re.findall(r"`srtm ([^`]+)`", document.read_text().replace("\n", " "))
    assert {text: unknown for text in within if (unknown := unknown_flags(text.split()))} == {}


def test_an_option_that_does_not_exist_is_told_within_a_sentence() -> None:
    assert unknown_flags(["topic", "set", "NAME", "--rates=5"]) == ["--rates"]
    assert unknown_flags(["broker", "--tls-cert", "--tls"]) == ["--tls"]
    assert unknown_flags(["topic", "show", "NAME", "--json", "-"]) == []


def test_documents_show_many_command_lines() -> None:
    assert sum(len(shown_commands(document.read_text())) for document in LIVING) > 60


@pytest.mark.parametrize("name", reference_tables.TABLES)
def test_the_reference_has_what_the_code_says(name: str) -> None:
    written = reference_tables.block(name).findall(reference_tables.PAGE.read_text())
    assert written == [reference_tables.TABLES[name]()], "python -m tests.support.reference_tables writes it"


def direct_python() -> set[str]:
    files = ("requirements-server.in", "requirements.in", "requirements-dev.in")
    lines = [line for name in files for line in (ROOT / name).read_text().split("\n")]
    return {line for line in lines if line and not line.startswith(("#", "-r"))}


def direct_crates() -> set[str]:
    found: set[str] = set()
    for manifest in ROOT.glob("**/Cargo.toml"):
        if not {"target", ".venv", ".interop", "interop"} & set(manifest.relative_to(ROOT).parts):
            content = tomllib.loads(manifest.read_text())
            found |= {*content.get("dependencies", {}), *content.get("dev-dependencies", {})}
    return {name for name in found if not name.startswith("srtm-")}


def dependencies_with_reasons() -> set[str]:
    """First cells of the tables of packages and crates: the other tables are about programs and libraries not used."""
    sections = re.split(r"^## ", (ROOT / "docs/dependencies.md").read_text(), flags=re.MULTILINE)
    tables = [section for section in sections if section.startswith(("Python packages", "Crates"))]
    cells = re.findall(r"^\| ([^|]+) \|", "\n".join(tables), re.MULTILINE)
    return {re.sub(r"\([^)]*\)", "", cell).strip() for cell in cells} - {"package", "crate"}


def test_each_direct_dependency_has_its_reason_and_none_that_is_gone_has_one() -> None:
    assert dependencies_with_reasons() == direct_python() | direct_crates()
