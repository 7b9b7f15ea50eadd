"""What a broker says that it alone can hold."""

import shutil

from broker.runtime.claims import claims_of

BOUND = "127.0.0.1:4150"


def test_a_broker_that_is_started_again_holds_what_the_one_before_held(tmp_path):
    *first, began = claims_of(tmp_path, BOUND)
    *second, began_again = claims_of(tmp_path, BOUND)
    assert len(first) == 2
    assert first == second
    assert int(began.split(" since ")[1]) < int(began_again.split(" since ")[1])


def test_a_copy_of_a_data_directory_is_another_lock(tmp_path):
    first, copy = tmp_path / "b0", tmp_path / "b0copy"
    first.mkdir()
    shutil.copytree(first, copy)
    assert not {*claims_of(first, BOUND)} & {*claims_of(copy, "127.0.0.1:4151")}
    assert {*claims_of(first, BOUND)} & {*claims_of(copy, BOUND)}  # the port can be held by one of them only


def test_a_renamed_data_directory_is_the_same_lock(tmp_path):
    first = tmp_path / "b0"
    first.mkdir()
    before = claims_of(first, BOUND)[:2]
    assert before == claims_of(first.rename(tmp_path / "b1"), BOUND)[:2]


def test_after_the_next_start_of_the_host_nothing_is_as_before(tmp_path):
    boots = tmp_path / "boot_1", tmp_path / "boot_2"
    for number, boot in enumerate(boots):
        boot.write_text(f"{number}\n")
    first, second = (claims_of(tmp_path, BOUND, boot_id=boot) for boot in boots)
    assert not {*first} & {*second}


def test_where_the_kernel_does_not_say_which_one_it_is_nothing_is_claimed(tmp_path):
    assert claims_of(tmp_path, BOUND, boot_id=tmp_path / "missing") == []
