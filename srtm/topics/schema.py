"""Strict pydantic models for what operators send; their errors become one ``BadInput`` with field, value and rule."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from srtm.errors import BadInput

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


class Schema(BaseModel):
    """A strict, frozen model: no unknown keys, no text for a number, no number that is not finite."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


Model = TypeVar("Model", bound=Schema)


def parsed(model: type[Model], value: object, place: str = "") -> Model:
    """Parse ``value``, found at ``place`` of the document ("": the top), as a ``model``.

    Raises BadInput for the first unknown key, else for the first broken rule. Unknown keys come first, because a
    missing key may have been mistyped.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False)
        unknown = [detail for detail in found if detail["type"] == "extra_forbidden"]
        raise _refusal(model, (unknown or found)[0], place) from None


def _refusal(model: type[Schema], error: ErrorDetails, place: str) -> BadInput:
    field = (place + _dotted(error["loc"])).removeprefix(".") or "document"
    if error["type"] == "missing":
        return BadInput(field, None, "is required")
    if error["type"] == "extra_forbidden":
        known = _keys(model, error["loc"][:-1])
        inside = [key for key in known if isinstance(error["input"], dict) and key in error["input"]]
        if inside:
            return BadInput(field, None, f"no such table; write {', '.join(inside)} without the line [{field}]")
        return BadInput(field, error["input"], _nearest(str(error["loc"][-1]), known))
    return BadInput(field, error["input"], _rule(error["msg"]))


def _dotted(location: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)


def _rule(message: str) -> str:
    """Turn pydantic's message into a rule: "Input should be greater than 0" -> "must be greater than 0"."""
    for prefix in ("Input should", "List should", "String should"):
        if message.startswith(prefix):
            return "must" + message.removeprefix(prefix)
    return message.removeprefix("Value error, ")


def _keys(model: type[Schema], location: tuple[int | str, ...]) -> list[str]:
    """Return the valid keys at ``location`` inside ``model``."""
    for part in location:
        inner = model.model_fields[str(part)].annotation
        if isinstance(inner, type) and issubclass(inner, Schema):
            model = inner
    return list(model.model_fields)


def _nearest(key: str, known: list[str]) -> str:
    close = get_close_matches(key, known, n=1)
    return f"no such key; did you mean {close[0]!r}?" if close else f"no such key; there are {', '.join(known)}"
