"""The demo's deployment: groups on the map, and the committed topic file."""

from __future__ import annotations

from collections import Counter

import numpy as np
from scipy.spatial.distance import squareform

from bench.data.sensors import (
    CUT_KM,
    PUBLISHERS_CSV,
    TOPIC_TOML,
    correlation_groups,
    publishers_csv,
    read_detectors,
    topic_toml,
)
from srtm.analysis.places import distances_km


def test_the_deployment_has_207_detectors_each_named_once() -> None:
    names = [d.sensor_id for d in read_detectors()]
    assert len(names) == len(set(names)) == 207


def test_average_linkage_cut_at_two_kilometres_gives_33_groups() -> None:
    groups = correlation_groups(read_detectors())
    assert sorted(set(groups)) == list(range(33))
    assert max(Counter(groups).values()) == 15


def test_mean_distances_inside_every_group_are_under_the_cut_and_between_any_two_over_it() -> None:
    detectors = read_detectors()
    apart, groups = (
        squareform(distances_km(np.array([(d.latitude, d.longitude) for d in detectors]))),
        np.array(correlation_groups(detectors)),
    )
    members = [np.flatnonzero(groups == g) for g in range(33)]
    for i, one in enumerate(members):
        inside = apart[np.ix_(one, one)]
        assert len(one) == 1 or inside.sum() / (len(one) * (len(one) - 1)) <= CUT_KM
        assert all(apart[np.ix_(one, other)].mean() > CUT_KM for other in members[i + 1 :])


def test_groups_do_not_depend_on_the_order_of_the_file() -> None:
    detectors = read_detectors()
    groups = {d.sensor_id: g for d, g in zip(detectors, correlation_groups(detectors), strict=True)}
    backwards = detectors[::-1]
    again = {d.sensor_id: g for d, g in zip(backwards, correlation_groups(backwards), strict=True)}
    pairs = {(groups[name], again[name]) for name in groups}
    assert len(pairs) == 33  # the same groups under other numbers


def test_the_committed_topic_file_is_what_the_generator_makes() -> None:
    detectors = read_detectors()
    assert PUBLISHERS_CSV.read_text() == publishers_csv(detectors)
    assert TOPIC_TOML.read_text() == topic_toml(detectors)
