"""URLs of stores: which are some, and that no password is shown."""

import pytest

from distributor.config import DistributorConfig
from distributor.storage.database import Database, without_password
from srtm.errors import BadInput

NONE = [
    "store.sqlite3",
    "",
    "sqlite:/x",
    "mysql://h/d",
    "postgresql://",
    "postgresql://host:5432",
    "postgresql://host:port/d",
    "postgresql+asyncpg://host/d",
]


@pytest.mark.parametrize("url", NONE)
def test_what_is_no_store_is_refused_with_what_would_be_one(url):
    with pytest.raises(BadInput, match=r"store: .*: must be sqlite:///PATH or postgresql://USER@HOST:PORT/DATABASE"):
        Database.parse(url)


def test_an_option_that_the_server_does_not_know_is_refused_by_name():
    with pytest.raises(BadInput, match='invalid connection option "colour"'):
        Database.parse("postgresql://h/d?colour=blue")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:se:cret@h/d?colour=blue",
        "postgresql://me:secret@h:port/d",
        "postgresql://me:sec@ret@h/d?colour=blue",
        "mysql://me:secret@h",
        "postgresql://h/d?password=secret&colour=x",
        "postgresql://me:sec/ret@h/",
    ],
)
def test_a_refusal_shows_no_password(url):
    with pytest.raises(BadInput) as refused:
        Database.parse(url)
    for part in ("secret", "cret", "ret@"):
        assert part not in str(refused.value)


def test_passwords_are_hidden_and_nothing_else_is():
    assert without_password("postgresql://me:x@h:5432/d") == "postgresql://me:***@h:5432/d"
    assert without_password("postgresql://h/d?password=x&host=y") == "postgresql://h/d?password=***&host=y"
    assert without_password("postgresql://me@h:5432/d") == "postgresql://me@h:5432/d"
    assert without_password("sqlite:////var/lib/s.sqlite3") == "sqlite:////var/lib/s.sqlite3"


def test_the_settings_of_a_distributor_show_no_store():
    assert "secret" not in repr(DistributorConfig(store="postgresql://me:secret@h/d"))


def test_a_shared_store_is_postgresql_by_whichever_of_its_names():
    assert Database.parse("postgresql://me@h:5432/d").is_shared
    assert Database.parse("postgresql+psycopg:///d?host=/run/postgresql").is_shared
    assert not Database.parse("sqlite:///s.sqlite3").is_shared
