"""What a master says to meta of fences: once, and again when meta may have forgotten."""

from __future__ import annotations

from tidemill_broker.surveying import ANEW_EVERY, ROWS, Survey
from tidemill_wire.fencing import Fenced, FenceRow, Passed
from tidemill_wire.limits import FENCES_MAX

ORDERS = FenceRow("orders", 3, ((0, 512),))
BILLS = FenceRow("bills", 1, ())
DONE = Fenced([("orders", 3)], [Passed("orders", "g", 3)])


def said(survey: Survey) -> list[str]:
    return [row.partition for rows in survey.rows() for row in rows]


def test_without_fences_nothing_is_put_up() -> None:
    assert said(Survey()) == []


def test_a_fence_is_put_up_until_meta_has_stored_it_and_looked_at_afterwards() -> None:
    survey = Survey()
    survey.told([ORDERS])
    assert said(survey) == ["orders"]

    assert survey.news(DONE) == {"closed": [["orders", 3]], "passed": [["orders", "g", 3]]}
    assert survey.news(DONE) is not None
    survey.noted()

    assert survey.news(DONE) is None
    assert said(survey) == ["orders"]


def test_what_is_new_goes_without_what_is_known() -> None:
    survey = Survey()
    survey.told([ORDERS])
    survey.news(DONE)
    survey.noted()

    news = survey.news(Fenced(DONE.closed, [*DONE.passed, Passed("orders", "h", 3)]))

    assert news == {"closed": [], "passed": [["orders", "h", 3]]}


def test_all_is_said_anew_when_meta_tells_it_anew_and_from_time_to_time() -> None:
    survey = Survey()
    survey.told([ORDERS])
    survey.news(DONE)
    survey.noted()

    survey.told([ORDERS])
    assert survey.news(DONE) is not None
    survey.noted()
    for _ in range(ANEW_EVERY):
        said(survey)

    assert survey.news(DONE) is not None


def test_many_take_turns_and_what_is_awaited_goes_first() -> None:
    rows = [FenceRow(f"s{number}", 1, ()) for number in range(2 * ROWS)]
    survey = Survey()
    survey.told(rows)
    assert len(said(survey)) == 2 * ROWS
    survey.news(Fenced([(row.partition, 1) for row in rows], []))
    survey.noted()
    survey.told([BILLS])

    first, second = said(survey), said(survey)

    assert (first[0], second[0]) == ("bills", "bills")
    assert sorted({*first, *second}) == sorted(["bills", *(row.partition for row in rows)])


def test_fewer_are_looked_at_when_the_answer_has_no_room_for_all_their_groups() -> None:
    rows = [FenceRow(f"s{number}", 1, ()) for number in range(ROWS)]
    survey = Survey()
    survey.told(rows)
    passed = [Passed("s1", f"g{number}", 1) for number in range(FENCES_MAX)]
    survey.news(Fenced([(row.partition, 1) for row in rows], passed))
    survey.noted()

    assert len(said(survey)) == ROWS // 2
