"""What operators send, as JSON Schema: made from the models that read it, so that the two cannot part. Pure.

Where a reader takes the parts of a document one by one, to name the one that is wrong, its model has no type for them;
the shapes here have.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

from srtm.topics.capacity import CapacityTable
from srtm.topics.options import OptionsTable
from srtm.topics.publisher_blocks import ChangeTable, ColumnsBlock, ListBlock, ModelBlock, PublisherTable
from srtm.topics.spec import TopicTable

Block = Annotated[ListBlock | ColumnsBlock | ModelBlock, Field(description="publishers: a list, columns, or a model")]


class Topic(TopicTable):
    """The shape of a topic file. Rates in msg/s, bursts in messages."""

    publishers: list[Block] = Field(default_factory=list)


class NamedTopic(Topic):
    """A topic whose name the path says; it may be left out here."""

    name: str = ""


class Change(ChangeTable):
    """Publishers that come and go."""

    add: list[PublisherTable] = Field(default_factory=list)


class Options(OptionsTable):
    """What is missing stays as it is; one at least must be there."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})


class Capacity(CapacityTable):
    """What a broker carries of one promise and traffic class (msg/s); how it was measured, if it was."""


SHAPES: tuple[type[BaseModel], ...] = (Topic, NamedTopic, Change, Options, Capacity)


def schemas(ref_template: str) -> tuple[dict[type[BaseModel], dict[str, Any]], dict[str, Any]]:
    """({shape: its schema}, {name: what the schemas refer to}). ``ref_template`` with ``{model}`` for the name."""
    found, components = models_json_schema([(one, "validation") for one in SHAPES], ref_template=ref_template)
    return {one: found[one, "validation"] for one in SHAPES}, components.get("$defs", {})
