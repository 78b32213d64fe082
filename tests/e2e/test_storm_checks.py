"""The checks of a storm have teeth: diaries with one thing wrong, and what is said of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.storms import Consumed, Handled, Produced, gaps

pytestmark = pytest.mark.e2e

RIGHT = "began 1 7 0\nended 1 7 0\nacked 1 7 0\nbegan 1 7 1\nended 1 7 1\n"


def handled(folder: Path, text: str) -> Handled:
    path = folder / "handled"
    path.write_text(text.replace("\n", " 0.5\n"))
    found = Handled(path)
    found.read()
    return found


def test_what_is_right_is_passed_over(tmp_path: Path) -> None:
    """Also a step back to the first that was not acked."""
    found = handled(tmp_path, RIGHT + "began 2 7 1\nended 2 7 1\nacked 2 7 1\nbegan 2 7 2\n")

    assert not found.wrong + found.again
    assert found.repeated == 1


@pytest.mark.parametrize(
    "more, wrong",
    [
        ("began 1 7 3\n", "k-7 3 was begun before 2 was handled"),
        ("began 1 7 2\nbegan 2 7 2\n", "k-7 2 was begun beside another one in {'1'}"),
    ],
)
def test_a_key_out_of_order_is_found(tmp_path: Path, more: str, wrong: str) -> None:
    assert handled(tmp_path, RIGHT + more).wrong == [wrong]


def test_what_begins_again_after_its_ack_is_found(tmp_path: Path) -> None:
    assert handled(tmp_path, RIGHT + "began 1 7 0\n").again == [(7, 0)]
    path = tmp_path / "consumed"
    path.write_text("given 1,2,3\nacked 1,2\ngiven 2,3\n")
    consumed = Consumed(path)
    consumed.read()
    assert (consumed.again, consumed.repeated) == ([2], 1)


def test_a_torn_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "consumed"
    path.write_text("given 1,2\ngiven 3")
    consumed = Consumed(path)
    consumed.read()
    assert consumed.given == {1, 2}
    path.write_text("given 1,2\ngiven 34\n")
    consumed.read()
    assert consumed.given == {1, 2, 34}


def test_times_are_those_of_answers(tmp_path: Path) -> None:
    path = tmp_path / "produced"
    path.write_text(
        "shared 1.0 1.5 0 3\nordered 1.0 4.0 7 0\nprobe 1.0 2.0 g0 1\nprobe 2.0 9.0 g0 2\nprobe 3.0 8.0 g0 3\n"
        "probe 2.5 3.0 g1 3\nfailed 1.0 9.0 shared 3 4 why\n"
    )
    produced = Produced(path)

    assert (produced.shared, produced.ordered) == ({0, 1, 2}, {(7, 0)})
    assert produced.failed == ["shared 3 4 why"]
    assert produced.writes_again("g0", 1.5) == 6.5
    assert produced.longest_gap("g0", 0.0, 10.0) == 6.0
    assert gaps([one.answered for one in produced.of("shared", "ordered")]) == [(2.5, 1.5)]
