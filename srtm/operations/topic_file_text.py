"""Writes a topic's document as the text of a topic file, which reads back as the same topic. Pure."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from srtm.topics.publisher_blocks import HEADER, PLACES

_QUOTES = "'''"
_MISSING = {"latitudes": math.nan, "longitudes": math.nan}  # what stands for null in a list; else an empty text
_OF_A_LIST = ("process", "batch", "contract")  # one value for all publishers of a list


def topic_file_text(document: Mapping[str, Any]) -> str:
    """The TOML of ``document``, as ``GET /v1/topics/NAME/document`` gives it."""
    plain = {key: value for key, value in document.items() if not isinstance(value, dict | list)}
    tables = {key: value for key, value in document.items() if isinstance(value, dict)}
    parts = [_lines(plain)]
    parts += [f"[{key}]\n{_lines(table)}" for key, table in tables.items()]
    parts += [f"[[publishers]]\n{_publishers(block)}" for block in document.get("publishers", [])]
    return "\n".join(parts)


def _publishers(block: Mapping[str, Any]) -> str:
    """A line for each publisher, where a list in CSV can say all that is known of them."""
    is_uniform = not any(isinstance(block.get(key), list) for key in _OF_A_LIST)
    text = _csv(block) if is_uniform else ""
    if not text or _QUOTES in text:
        return _lines(block)
    rest = {key: block[key] for key in _OF_A_LIST if key in block}
    return f"{_lines(rest)}csv_text = {_QUOTES}\n{text}{_QUOTES}\n"


def _csv(block: Mapping[str, Any]) -> str:
    ids: Sequence[str] = block["ids"]
    groups: Iterable[str | None] = block.get("groups") or [""] * len(ids)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    places = [block[key] for key in ("latitudes", "longitudes") if block.get(key)]
    writer.writerow((*HEADER, *(PLACES if places else ())))
    for one, rate, group, *place in zip(ids, block["rates"], groups, *places, strict=True):
        writer.writerow(
            (one, repr(rate), group or "", *("" if degrees is None else repr(degrees) for degrees in place))
        )
    return out.getvalue()


def _lines(table: Mapping[str, Any]) -> str:
    return "".join(
        f"{key} = {_value(value, _MISSING.get(key, ''))}\n" for key, value in table.items() if value is not None
    )


def _value(value: Any, missing: object = "") -> str:
    """A value in TOML: of texts, numbers, truths and lists it is as in JSON."""
    if isinstance(value, list):
        return "[" + ", ".join(_value(missing if part is None else part) for part in value) + "]"
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return json.dumps(value, ensure_ascii=False)
