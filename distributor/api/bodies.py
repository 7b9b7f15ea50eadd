"""Reads JSON bodies within the distributor's bounds.

Documents are what people and their tools write. Messages are what brokers encode: of those a key that stands twice is
not looked for, which takes longer than all the rest.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
import trio
from fastapi import Request

from distributor.api.budgets import budgets
from distributor.config import DistributorConfig
from srtm.net.json_keys import refuse_repeated_keys
from srtm.web.bodies import Budget, decoded, read_content

_T = TypeVar("_T")
_Toml = Annotated[str, msgspec.Meta(max_length=4 << 20)]  # 20,000 contracts; long lists are CSV


class ContractFile(msgspec.Struct, forbid_unknown_fields=True):
    """A contract file as JSON."""

    contracts: list[object]


class ContractText(msgspec.Struct, forbid_unknown_fields=True):
    """The text of a contract file."""

    text: _Toml


class TopicFile(msgspec.Struct, forbid_unknown_fields=True):
    """The text of a topic file, and of the CSV files that it names."""

    text: _Toml
    csv: dict[str, str] = {}


async def read_document(request: Request, config: DistributorConfig, kind: type[_T]) -> _T:
    """Decode the JSON body as ``kind``. Raises BadInput, Unavailable."""
    content = await _content(request, config, budgets(request).documents)
    document = decoded(content, kind)
    await trio.to_thread.run_sync(refuse_repeated_keys, content)
    return document


async def read_message(request: Request, config: DistributorConfig, kind: type[_T]) -> _T:
    """Decode the JSON body of a broker as ``kind``. Raises BadInput, Unavailable."""
    return decoded(await _content(request, config, budgets(request).messages), kind)


async def _content(request: Request, config: DistributorConfig, budget: Budget) -> bytes:
    return await read_content(request, budget, config.max_body_bytes, config.body_timeout_s)
