"""JSON Schemas of what operators send, made from the models that read it, so that the two always agree. Pure.

Some readers check the parts of a document one by one, to name the wrong one. Their models have no types for the parts;
the models here add them.
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
    """Publishers to add and to remove."""

    add: list[PublisherTable] = Field(default_factory=list)


class Options(OptionsTable):
    """Options to change. Missing options stay unchanged; at least one must be given."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})


class Capacity(CapacityTable):
    """What a broker carries within one promise and traffic class (msg/s), and how it was measured."""


SHAPES: tuple[type[BaseModel], ...] = (Topic, NamedTopic, Change, Options, Capacity)


def schemas(ref_template: str) -> tuple[dict[type[BaseModel], dict[str, Any]], dict[str, Any]]:
    """Return ({model: its schema}, {name: a schema that others refer to}).

    ``ref_template``: the text of a reference, with ``{model}`` for the name.
    """
    found, components = models_json_schema([(model, "validation") for model in SHAPES], ref_template=ref_template)
    return {model: found[model, "validation"] for model in SHAPES}, components.get("$defs", {})
