"""How the publishers of a topic changed, for the audit log. Pure: a million publishers take a second or two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from srtm.topics.publishers import ALONE, Ints, Publishers
from srtm.web.audit_entry import PublisherChange, PublisherChanges

MOST_SHOWN = 10  # of each kind: an entry has at most some 5 kB of them


def publisher_changes(before: Publishers, after: Publishers) -> PublisherChanges | None:
    """Return what differs; None: nothing but, perhaps, the order. The first are in the order of the topic file."""
    removed = [index for index, publisher in enumerate(before.ids) if publisher not in after.positions]
    added = [index for index, publisher in enumerate(after.ids) if publisher not in before.positions]
    kept = [publisher for publisher in after.ids if publisher in before.positions]
    old = np.array([before.positions[publisher] for publisher in kept], dtype=np.int64)
    new = np.array([after.positions[publisher] for publisher in kept], dtype=np.int64)
    changed = np.flatnonzero(_differ(before, old, after, new))
    if not removed and not added and not len(changed):
        return None
    first = [
        *(PublisherChange(before.ids[index], publisher_json(before, index), None) for index in _first(removed)),
        *(PublisherChange(after.ids[index], None, publisher_json(after, index)) for index in _first(added)),
        *(
            PublisherChange(
                kept[place], publisher_json(before, int(old[place])), publisher_json(after, int(new[place]))
            )
            for place in _first(changed.tolist())
        ),
    ]
    return PublisherChanges(added=len(added), removed=len(removed), changed=len(changed), first=first)


def publisher_json(publishers: Publishers, index: int) -> dict[str, Any]:
    """Return a publisher without its id, with the keys of ``PATCH /v1/topics/NAME/publishers``; none that is empty."""
    publisher = publishers[index]
    found: dict[str, Any] = {"rate": publisher.rate}
    if publisher.correlation_group:
        found["correlation_group"] = publisher.correlation_group
    if publisher.process != "poisson":
        found["process"] = publisher.process
    if publisher.batch != 1:
        found["batch"] = publisher.batch
    if publisher.contract:
        found["contract"] = publisher.contract
    points = publishers.points_of([index])
    if points is not None and points[0] is not None:
        found["latitude"], found["longitude"] = points[0]
    return found


def _first(found: Sequence[int]) -> Iterator[int]:
    return islice(found, MOST_SHOWN)


def _differ(before: Publishers, old: Ints, after: Publishers, new: Ints) -> npt.NDArray[np.bool_]:
    """Which of the publishers at ``old`` are others than those at ``new``."""
    differ = before.rates[old] != after.rates[new]
    differ |= before.periodic[old] != after.periodic[new]
    differ |= before.batches[old] != after.batches[new]
    differ |= _named(before.groups[old], before.group_names) != _named(after.groups[new], after.group_names)
    differ |= _contracts(before, old) != _contracts(after, new)
    there, here = _points(before, old), _points(after, new)
    same_point = (there == here) | (np.isnan(there) & np.isnan(here))
    return np.asarray(differ | ~same_point.all(axis=1), dtype=np.bool_)


def _named(numbers: Ints, names: Sequence[str]) -> npt.NDArray[np.object_]:
    return np.array([*names, ""], dtype=np.object_)[numbers]  # ALONE is the last


def _contracts(publishers: Publishers, indices: Ints) -> npt.NDArray[np.object_]:
    numbers = np.full(len(indices), ALONE) if publishers.contracts is None else publishers.contracts[indices]
    return _named(numbers, publishers.contract_names)


def _points(publishers: Publishers, indices: Ints) -> npt.NDArray[np.float64]:
    return np.full((len(indices), 2), np.nan) if publishers.points is None else publishers.points[indices]
