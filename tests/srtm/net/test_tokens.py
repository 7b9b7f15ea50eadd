"""Tokens: what a file of them may say, who is who, and that none is ever shown."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.cluster.token_files import issue
from srtm.errors import BadInput, Forbidden, Unauthorized
from srtm.net.tokens import SCOPES, Holder, Tokens, digest, listed, read_token, token_of_file

FILE = """
# the fleet
operator ann  s3cret-of-ann
broker   b1   s3cret-of-b1
client   cars s3cret-of-cars
client   cars s3cret-of-cars-2
"""


def test_renewed_tokens_are_those_of_the_file_and_a_bad_file_leaves_the_old(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("operator ann old\n")
    tokens = Tokens.read("tokens", str(file))
    joined = tokens.joined(Tokens.of_one("own"))
    file.write_text("operator ann new\n")
    assert tokens.knows("old")
    tokens.renew()
    for each in (tokens, joined):
        assert (each.knows("old"), each.knows("new")) == (False, True)
    assert joined.knows("own")
    file.write_text("operator ann\n")
    with pytest.raises(BadInput, match="tokens line 1: '2 words': must be SCOPE NAME TOKEN"):
        tokens.renew()
    for each in (tokens, joined):
        assert each.knows("new")
    assert not Tokens.of_one("own").is_of_file


class _Unwalked(dict[bytes, Holder]):
    def __iter__(self) -> Iterator[bytes]:
        raise AssertionError("each token is looked at")

    items = keys = values = __iter__  # type: ignore[assignment]


@pytest.mark.parametrize("is_joined", [False, True])
def test_a_token_is_found_without_a_look_at_each_other(is_joined: bool) -> None:
    tokens = Tokens(lambda: _Unwalked({digest("ann's"): Holder("operator", "ann")}))
    if is_joined:
        tokens = Tokens(lambda: _Unwalked()).joined(tokens)
    holder = tokens.holder("ann's")
    assert holder is not None
    assert holder.name == "ann"
    assert tokens.holder("bob's") is None
    with pytest.raises(Unauthorized):
        tokens.check("Bearer bob's", [])


def test_a_token_of_a_file_is_known_as_it_was_last_read_well(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old\n")
    own = token_of_file("token_file", str(path))
    listed_too = Tokens.parsed("tokens", "broker b1 listed").joined(Tokens.of_one(own))
    path.write_text("new\n")
    assert listed_too.knows("old")
    own.renew()
    path.write_text("two words\n")
    with pytest.raises(BadInput, match="must be a file with one token and nothing else, not 2 words"):
        own.renew()
    path.unlink()
    with pytest.raises(BadInput, match="must be a file that can be read"):
        own.renew()
    assert [listed_too.knows(each) for each in ("old", "new", "listed")] == [False, True, True]


@pytest.mark.parametrize(
    ("token", "scopes", "refusal"),
    [
        ("s3cret-of-ann", (), None),
        ("s3cret-of-ann", ("client",), None),
        ("s3cret-of-b1", ("broker", "client"), None),
        ("s3cret-of-cars", ("client",), None),
        ("s3cret-of-cars-2", ("client",), None),
        ("s3cret-of-b1", (), Forbidden),
        ("s3cret-of-b1", ("client",), Forbidden),
        ("s3cret-of-cars", ("broker",), Forbidden),
        ("s3cret", ("client",), Unauthorized),
        ("S3CRET-OF-ANN", (), Unauthorized),
        ("", ("client",), Unauthorized),
    ],
)
@pytest.mark.parametrize("hashed", [False, True])
def test_an_operator_may_do_everything_and_others_what_their_scope_says(token, scopes, refusal, hashed) -> None:
    text = FILE
    if hashed:
        lines = [line.split() for line in FILE.splitlines() if line and not line.startswith("#")]
        text = listed((scope, name, word) for scope, name, word in lines)  # type: ignore[misc]
        assert "s3cret" not in text
    tokens = Tokens.parsed("tokens", text)
    if refusal is None:
        tokens.check(f"Bearer {token}", scopes)
        tokens.check(f"bearer {token}", scopes)
    else:
        with pytest.raises(refusal) as refused:
            tokens.check(f"Bearer {token}", scopes)
        assert not token or token not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "broker", "is_its_own"),
    [
        ("b1", "b1", True),
        ("b1", "b2", False),
        ("b1", "b10", False),
        ("b1", "", False),
        ("scaled-*", "scaled-1", True),
        ("scaled-*", "scale", False),
        ("*", "b2", True),
        ("b*1", "b21", False),
    ],
)
def test_a_brokers_token_speaks_for_its_own_name_alone(name: str, broker: str, is_its_own: bool) -> None:
    tokens = Tokens.parsed("tokens", f"broker {name} s3cret\noperator ann o\nclient b2 c\n")
    tokens.check("Bearer o", ("broker",), broker)
    with pytest.raises(Forbidden):
        tokens.check("Bearer c", ("broker", "client"), "b2")
    if is_its_own:
        tokens.check("Bearer s3cret", ("broker",), broker)
    else:
        with pytest.raises(Forbidden, match=re.escape(f"the token of {name!r} does not speak for broker {broker!r}")):
            tokens.check("Bearer s3cret", ("broker",), broker)


@pytest.mark.parametrize("header", [None, "", "Basic s3cret-of-ann", "s3cret-of-ann", "Bearer", "Bearer \udc80"])
def test_what_is_no_bearer_is_nobody(header: str | None) -> None:
    with pytest.raises(Unauthorized):
        Tokens.parsed("tokens", FILE).check(header, SCOPES)


def test_a_refusal_names_the_holder_the_scope_and_what_is_needed() -> None:
    with pytest.raises(Forbidden, match="the token of 'b1' has the scope broker; this needs operator"):
        Tokens.parsed("tokens", FILE).check("Bearer s3cret-of-b1", ())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "tokens: 'no line': must have at least one token: SCOPE NAME TOKEN"),
        ("# nobody", "tokens: 'no line': must have at least one"),
        ("operator s3cret", "tokens line 1: '2 words': must be SCOPE NAME TOKEN"),
        ("operator a b s3cret", "tokens line 1: '4 words': must be SCOPE NAME TOKEN"),
        ("root a s3cret", "tokens line 1: 'root': the scope must be one of operator, broker, client"),
        ("client a s3cr\x01et", "tokens line 1: '(not shown)': must be ASCII letters"),
        ("client a sha256:12", "tokens line 1: '(not shown)': must be sha256: and 64 hexadecimal digits"),
        ("client a s3cret\nbroker b s3cret", "tokens line 2: '(not shown)': the token of 'a' is listed before"),
    ],
)
def test_a_line_that_makes_no_sense_is_refused_by_its_number_and_never_shown(line: str, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        Tokens.parsed("tokens", line)
    assert message in str(refused.value)
    assert "s3cr" not in str(refused.value)


@given(st.text())
def test_any_text_is_a_list_of_tokens_or_bad_input(text: str) -> None:
    with suppress(BadInput):
        assert isinstance(Tokens.parsed("tokens", text), Tokens)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must be a file with one token and nothing else, not 0 words"),
        (b"operator ann s3cret", "must be a file with one token and nothing else, not 3 words"),
        ("s3cret\u00e9".encode(), "must be ASCII text"),
        (b"x" * (1 << 20) + b"x", "must be at most 1048576 bytes long"),
    ],
)
def test_a_file_without_one_token_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(BadInput) as refused:
        read_token("token_file", str(tmp_path / "t"))
    assert message in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_issued_tokens_are_kept_are_their_owners_alone_and_fit_the_list(tmp_path: Path) -> None:
    first, again = issue(tmp_path, ["b1"]), issue(tmp_path, ["b1"])
    assert first.operator == again.operator
    tokens = Tokens.read("tokens", str(again.list_file))
    scopes = {"operator": (), "client": ("client",), "scaled": ("broker",), "b1": ("broker",)}
    assert again.files.keys() == scopes.keys()
    for whose, path in again.files.items():
        token = read_token("token_file", str(path))
        tokens.check(f"Bearer {token}", scopes[whose], {"scaled": "scaled-7", "b1": "b1"}.get(whose))
        assert token not in again.list_file.read_text()
    for path in (again.list_file, *again.files.values()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_token_whose_file_was_taken_away_is_replaced_in_the_list_and_other_lines_stay(tmp_path: Path) -> None:
    first = issue(tmp_path, ["b1"])
    old = read_token("data", str(first.files["b1"]))
    first.list_file.write_text(first.list_file.read_text() + "broker b7 of-another\n")
    first.files["b1"].unlink()
    again = issue(tmp_path, ["b1"])
    new, tokens = read_token("data", str(again.files["b1"])), Tokens.read("tokens", str(again.list_file))
    assert new != old
    assert [tokens.knows(token) for token in (new, old, "of-another", first.operator)] == [True, False, True, True]
    assert stat.S_IMODE(again.list_file.stat().st_mode) == 0o600
