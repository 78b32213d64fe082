"""Errors over HTTP: every row of the table has a status that says whether to try again."""

from __future__ import annotations

import json

import pytest

from tidemill_host.bodies import Bodies
from tidemill_host.refusals import STATUS_BY_NAME, HttpRefused, status_of, wire_response
from tidemill_wire.errors import ERROR_KINDS, KIND_BY_NAME, ErrorKind, wire_error


@pytest.mark.parametrize("kind", ERROR_KINDS, ids=lambda kind: kind.name)
def test_row_of_the_table_is_answered_with_its_status(kind: ErrorKind) -> None:
    response = wire_response(wire_error(kind.number, "so it is"))
    assert isinstance(response.body, bytes)
    error = json.loads(response.body)["error"]

    assert error == {
        "code": kind.name,
        "detail": "so it is",
        "advice": kind.advice,
        "retryable": kind.retryable,
    }
    assert (response.status in {408, 429, 500, 503}) is kind.retryable
    assert ("Retry-After" in response.headers) is (response.status in {429, 503})


def test_table_of_statuses_names_rows_there_are() -> None:
    assert STATUS_BY_NAME.keys() <= KIND_BY_NAME.keys()
    assert status_of(wire_error(KIND_BY_NAME["lease_lost"].number, "")) == 409


def test_bodies_that_hold_too_much_together_refuse_the_next_request() -> None:
    bodies = Bodies(held_max=100)
    with bodies.room() as room:
        room.add(101)
        with pytest.raises(HttpRefused) as refused:
            bodies.room()
        assert (refused.value.status, refused.value.retryable) == (503, True)
    assert bodies.held == 0
    bodies.room()
