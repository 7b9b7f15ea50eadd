"""TOML from anybody is read, or refused with a rule: no text takes the parser's time, its stack, or its digits."""

from __future__ import annotations

import tomllib

import pytest

from srtm.errors import BadInput
from srtm.toml_text import read_toml

PARTS = "a key of more than 8 parts"
DEEP = "more than 32 levels deep"
LONG = "whole numbers of more than 64 bits"
CHAIN = ".".join("a" * 9)
TWO, QUOTES = '"' * 2, '"' * 3
HOSTILE = {
    "a key of many parts": (".".join("a" * 16_000) + " = 1", PARTS),
    "one part too many": (f"{CHAIN} = 1", PARTS),
    "a table's name": (f"[{CHAIN}]", PARTS),
    "spaces between": (f"{CHAIN.replace('.', ' . ')} = 1", PARTS),
    "quoted parts": ("\"a\".'b'." * 5 + "c = 1", PARTS),
    "quoted dots": ('"a.b".' * 8 + "c = 1", PARTS),
    "within a table": (f"x = {{ {CHAIN} = 1 }}", PARTS),
    "behind a string": (f'x = {{ y = "\\"", {CHAIN} = 1 }}', PARTS),
    "behind five quotes": (f"x = {{ y = {QUOTES}a{QUOTES}{TWO}, {CHAIN} = 1 }}", PARTS),
    "behind four quotes of the other kind": (f"x = {{ y = '''a'''', {CHAIN} = 1 }}", PARTS),
    "behind an empty string": (f"x = {{ y = {QUOTES}{QUOTES}, {CHAIN} = 1 }}", PARTS),
    "behind a quote in a comment": (f"# it's\n{CHAIN} = 1", PARTS),
    "lists that do not end": ("a = " + "[" * 5_000, DEEP),
    "lists that end": ("a = " + "[" * 40 + "]" * 40, DEEP),
    "tables": ("a = " + "{ a.b = " * 20 + "1" + "}" * 20, DEEP),
    "digits": ("a = " + "9" * 5_000, LONG),
    "hexadecimal digits": ("a = 0x" + "f" * 5_000, LONG),
    "one bit too many, within a list": (f"a = [[{2**63}]]", LONG),
    "quotes that do not end": ('a = "' + '\\"' * 100_000, "must be TOML: "),
    "many quotes that do not end": (f"{QUOTES}\\" * 50_000, "must be TOML: "),
    "nothing but dots": ("." * 100_000, "must be TOML: "),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_the_parser_cannot_bear_is_refused_by_a_rule(case: str) -> None:
    text, rule = HOSTILE[case]
    with pytest.raises(BadInput, match=r"^file: 'x\.toml': must ") as refused:
        read_toml("file", "x.toml", text)
    assert rule in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.b.c.d.e.f.g.h = 1",
        f"a = '{CHAIN}' # {CHAIN}",
        f'a = "\\"{CHAIN}"',
        f"a = {QUOTES}\n{CHAIN} = 1\n\\{QUOTES}{CHAIN}{QUOTES}{TWO}",
        f"a = '''\n''{CHAIN} = 1\n'''''\nb = 1",
        f"a = [1.5, -{2**63}, {2**63 - 1}, 2024-01-01, true, inf]",
        "a = " + "[" * 31 + "]" * 31,
    ],
)
def test_what_looks_like_it_within_strings_and_comments_is_read(text: str) -> None:
    assert read_toml("file", "x.toml", text) == tomllib.loads(text)
