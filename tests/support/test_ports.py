"""Ports that tests get: none twice, and none that another worker or the product may take."""

from __future__ import annotations

import socket

from srtm.cluster import cluster_file
from tests.support.ports import pick_addresses, port_of, ports_of_worker


def test_workers_never_get_the_same_port_nor_one_that_the_product_draws() -> None:
    given = [port for worker in range(7) for port in ports_of_worker(worker, 7)]
    assert len(given) == len(set(given)) > 7_000
    assert max(given) < cluster_file._LOWEST_PORT <= min(port_of(each) for each in cluster_file.pick_addresses(50, {}))


def test_a_port_is_not_given_again_at_once_nor_while_something_listens_there() -> None:
    first = pick_addresses(30)
    assert len(set(first)) == 30
    with socket.create_server(("127.0.0.1", port_of(first[0]))):
        whole_round = len(ports_of_worker(0, 1))
        assert first[0] not in pick_addresses(whole_round)
