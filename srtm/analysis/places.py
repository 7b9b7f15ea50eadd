"""Finds publishers that stand close together, which often see the same and send at one moment. Pure.

Groups are clusters of the map: great-circle distances, average linkage (UPGMA), cut where the mean distance between two
clusters exceeds the limit. Places of one cluster are linked by steps of at most the limit; so each linked part of the
map is clustered by itself, and the result is that of the whole map.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from srtm.analysis.correlation import ObservedGroup
from srtm.csv_table import Shape, is_number, read_table
from srtm.errors import BadInput
from srtm.topics.publishers import Floats, Ints

EARTH_RADIUS_KM = 6371.0088  # mean radius, IUGG
_NAMES = {"id": ("id",), "latitude": ("latitude", "lat"), "longitude": ("longitude", "lon", "lng")}
_LIST = Shape(_NAMES, needed=3, numeric=("latitude", "longitude"), others=True)
_MOST_TOGETHER = 5_000  # places of one linked part: 100 MB of distances
_MOST_PAIRS = 20_000_000  # of places within the limit

Places = Mapping[str, tuple[float, float]]  # {publisher: latitude and longitude, degrees}


def read_places(text: str, field: str) -> dict[str, tuple[float, float]]:
    """Read a CSV: ``id,latitude,longitude``, or any columns in any order under a header that names these three.

    Raises BadInput, which names ``field`` and the line.
    """
    places: dict[str, tuple[float, float]] = {}
    lines: dict[str, int] = {}
    for line, (publisher, latitude, longitude) in read_table(text, field, _LIST):
        where = f"{field} line {line}"
        if publisher in lines:
            raise BadInput(where, publisher, f"is listed already, in line {lines[publisher]}")
        lines[publisher] = line
        places[publisher] = (
            _degrees(f"{where}.latitude", latitude, 90),
            _degrees(f"{where}.longitude", longitude, 180),
        )
    if not places:
        raise BadInput(field, None, "must have a line for each publisher: id,latitude,longitude")
    return places


def _degrees(field: str, text: str, most: int) -> float:
    value = float(text) if is_number(text) else np.nan
    if not -most <= value <= most:  # false for NaN too
        raise BadInput(field, text, f"must be from -{most} to {most} degrees")
    return value


def place_groups(places: Places, declared: Mapping[str, str], within_km: float) -> list[ObservedGroup]:
    """Return the groups of two or more of the ``declared`` publishers that stand close together, as if they had fired.

    ``declared``: {publisher: group}. Raises BadInput.
    """
    known = [publisher for publisher in declared if publisher in places]
    members: dict[int, list[str]] = {}
    for publisher, group in zip(known, near_groups([places[name] for name in known], within_km), strict=True):
        members.setdefault(group, []).append(publisher)
    return [
        ObservedGroup(members=tuple(names), declared=dict(Counter(declared[name] for name in names)))
        for names in members.values()
        if len(names) > 1
    ]


def near_groups(places: Sequence[tuple[float, float]], within_km: float) -> list[int]:
    """Return the group of each place, numbered from 0 in order of first appearance.

    ``places``: latitude and longitude, degrees. Publishers at one place count as one. Raises BadInput if there are more
    places close together than can be compared.
    """
    if not places:
        return []
    distinct, place_of = np.unique(np.array(places, dtype=np.float64).reshape(-1, 2), axis=0, return_inverse=True)
    labels = np.empty(len(distinct), dtype=np.int64)
    used = 0
    for part in _linked_parts(distinct, within_km):
        found = (
            fcluster(linkage(distances_km(distinct[part]), "average"), within_km, "distance") if len(part) > 1 else 1
        )
        labels[part] = found + used
        used = int(labels[part].max())
    number: dict[int, int] = {}
    return [number.setdefault(label, len(number)) for label in labels[place_of].tolist()]


def _linked_parts(places: Floats, within_km: float) -> list[Ints]:
    """Return the parts of the map that are linked by steps of at most ``within_km``: indices of their places."""
    latitude, longitude = np.radians(places.T)
    on_sphere = np.column_stack(
        [np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)]
    )
    tree = cKDTree(on_sphere)
    chord = 2 * np.sin(min(within_km / EARTH_RADIUS_KM, np.pi) / 2) * (1 + 1e-9)  # rounding must not cut a link
    if tree.count_neighbors(tree, chord) > 2 * _MOST_PAIRS:
        raise _too_many(within_km)
    first, second = tree.query_pairs(chord, output_type="ndarray").reshape(-1, 2).T
    links = coo_array((np.ones(len(first), dtype=np.int8), (first, second)), shape=(len(places), len(places)))
    _, part = connected_components(links, directed=False)
    if np.bincount(part).max(initial=0) > _MOST_TOGETHER:
        raise _too_many(within_km)
    order = np.argsort(part, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(part[order])) + 1)


def _too_many(within_km: float) -> BadInput:
    return BadInput("within-km", within_km, f"links more than {_MOST_TOGETHER:,} places with each other: take fewer km")


def distances_km(places: Floats) -> Floats:
    """Return great-circle distances of all pairs of places (haversine), in scipy's condensed order."""
    latitude, longitude = np.radians(places.T)
    i, j = np.triu_indices(len(places), 1)
    across = np.cos(latitude[i]) * np.cos(latitude[j]) * np.sin((longitude[j] - longitude[i]) / 2) ** 2
    squared = np.sin((latitude[j] - latitude[i]) / 2) ** 2 + across
    result: Floats = 2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.minimum(squared, 1.0)))
    return result
