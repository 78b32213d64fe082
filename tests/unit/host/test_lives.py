"""Lives of a data folder: each has a higher number than those before, whatever the clock says."""

from __future__ import annotations

import random

import pytest

from sim.disk import SimDisk
from tidemill_host.files import Files
from tidemill_host.lives import FILE, Life, LifeDamaged, next_life
from tidemill_host.machine import Replace


def folder() -> SimDisk:
    return SimDisk(random.Random(0))


def test_a_folder_keeps_its_name_and_its_lives_grow_though_the_clock_was_set_back() -> None:
    disk = folder()

    lives = [next_life(disk.mount(), at_ms, lambda: "f") for at_ms in (1_000, 5_000, 2_000, 2_000)]

    assert lives == [Life("f", 1_000), Life("f", 5_000), Life("f", 5_001), Life("f", 5_002)]


def test_a_life_that_was_told_survives_the_power() -> None:
    disk = folder()
    first = next_life(disk.mount(), 1_000, lambda: "f")
    disk.power_cut()

    assert next_life(disk.mount(), 1_000, lambda: "other") == Life("f", first.boot + 1)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"folder": "", "boot": 1}', b'{"folder": "f", "boot": "1"}']
)
def test_a_file_that_does_not_say_it_is_refused_with_what_to_do(content: bytes) -> None:
    disk = folder().mount()
    Files(disk).write(Replace(FILE, content))

    with pytest.raises(LifeDamaged, match="remove the file"):
        next_life(disk, 1_000, lambda: "f")
