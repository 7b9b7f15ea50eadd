"""Groups by place: distances on the globe, clusters as on the whole map, and lists as people have them."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage

from srtm.analysis.places import distances_km, near_groups, place_groups, read_places
from srtm.errors import BadInput


def test_a_degree_of_latitude_is_111_km_and_one_of_longitude_shrinks_with_the_cosine() -> None:
    to_north, to_east, _ = distances_km(np.array([(34.0, -118.0), (35.0, -118.0), (34.0, -117.0)]))
    assert math.isclose(to_north, 111.195, rel_tol=1e-4)
    assert math.isclose(to_east, 111.195 * math.cos(math.radians(34.0)), rel_tol=1e-3)


@pytest.mark.parametrize("within_km", [0.5, 2.0, 20.0])
def test_clusters_of_linked_parts_are_those_of_the_whole_map(within_km: float) -> None:
    places = np.random.default_rng(3).uniform((33.9, -118.2), (34.1, -118.0), (300, 2))
    whole = fcluster(linkage(distances_km(places), "average"), within_km, "distance")
    found = near_groups(places.tolist(), within_km)
    assert len(set(zip(whole.tolist(), found, strict=True))) == len(set(whole.tolist())) == len(set(found))


def test_a_group_may_lie_across_the_date_line_and_at_a_pole() -> None:
    assert near_groups([(10.0, 179.999), (10.0, -179.999), (10.0, 179.0)], 2.0) == [0, 0, 1]
    assert near_groups([(90.0, 0.0), (90.0, 120.0), (89.999, 45.0)], 2.0) == [0, 0, 0]


def test_publishers_at_one_place_are_a_group_however_many_there_are() -> None:
    assert near_groups([(1.0, 2.0)] * 20_000 + [(3.0, 4.0)], 0.001) == [0] * 20_000 + [1]


def test_more_places_close_together_than_can_be_compared_are_refused() -> None:
    places = [(0.0, step / 1e5) for step in range(5_001)]
    with pytest.raises(BadInput, match=r"within-km: 1\.0: links more than 5,000 places with each other: take fewer"):
        near_groups(places, 1.0)


def test_groups_have_two_members_or_more_and_only_publishers_of_the_topic() -> None:
    places = {"a": (1.0, 1.0), "b": (1.0, 1.0), "c": (2.0, 2.0), "strange": (2.0, 2.0)}
    [group] = place_groups(places, {"a": "x", "b": "", "c": "", "d": ""}, 1.0)
    assert (group.members, group.declared) == (("a", "b"), {"x": 1, "": 1})
    assert place_groups({}, {"a": ""}, 1.0) == []


@pytest.mark.parametrize(
    "text",
    [
        "id,latitude,longitude\ns1,34.5,-118\ns2,35,0\n",
        "s1,34.5,-118\r\ns2,35,0\r\n",
        "\ufeffindex,ID,Lon,Lat\n0,s1,-118,34.5\n\n1, s2 ,0,35\n",
        'lat,lng,note,id\n34.5,-118,"a, b",s1\n35,0,,s2\n',
    ],
)
def test_lists_are_read_with_and_without_a_header(text: str) -> None:
    assert read_places(text, "by-place") == {"s1": (34.5, -118.0), "s2": (35.0, 0.0)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "by-place line 1: '': must be id,latitude,longitude, or a header"),
        ("id,latitude,longitude\n", "by-place: must have a line for each publisher"),
        ("id,rate\na,1\n", "by-place line 1: 'id,rate': must be id,latitude,longitude, or a header"),
        ("a,1,2,3\n", "by-place line 1: 'a,1,2,3': must be id,latitude,longitude, or a header"),
        ("a,1,2\nb,1\n", "by-place line 2: 'b,1': must have 3 fields, as the first line"),
        ("a,1,2\nb,x,2\n", "by-place line 2.latitude: 'x': must be from -90 to 90 degrees"),
        ("a,1,2\nb,1,181\n", "by-place line 2.longitude: '181': must be from -180 to 180 degrees"),
        ("a,1,nan\n", "by-place line 1.longitude: 'nan': must be from -180 to 180 degrees"),
        ("a,1,2\n\na,1,2\n", "by-place line 3: 'a': is listed already, in line 1"),
        ('a,1,"2\n', "by-place line 1: is not CSV"),
    ],
)
def test_what_is_no_list_of_places_is_refused_by_its_line(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=re.escape(said)):
        read_places(text, "by-place")
