"""What is told of a failure."""

from __future__ import annotations

import json
import pickle
import textwrap

from hypothesis import given
from hypothesis import strategies as st

from tidemill.worker.verdicts import FailedElsewhere, Failure, Reject, RetryAfter, describe
from tidemill_broker.failures import fingerprint_of


def raised(source: str, filename: str) -> Failure:
    """The failure of a program that calls ``fail``."""
    names: dict[str, object] = {"json": json}
    exec(compile(textwrap.dedent(source), filename, "exec"), names)
    try:
        names["fail"]()  # type: ignore[operator]
    except Exception as error:
        return describe(error)
    raise AssertionError


def test_the_place_is_the_last_line_of_the_users_own_code() -> None:
    failure = raised(
        "def fail():\n    return inner()\n\ndef inner():\n    json.loads('{')\n", "shop/billing.py"
    )

    assert (failure.error, failure.place) == ("json.decoder.JSONDecodeError", "shop/billing.py:5 in inner")
    assert (
        failure.reason
        == f"JSONDecodeError: {failure.text} at shop/billing.py:5 in inner [{failure.fingerprint}]"
    )


@given(st.text(max_size=20), st.text(max_size=20))
def test_the_fingerprint_is_the_brokers_and_does_not_depend_on_the_text(text: str, other: str) -> None:
    failure, again = (
        raised(f"def fail():\n    raise ValueError({one!r})\n", "shop.py") for one in (text, other)
    )

    assert failure.fingerprint == again.fingerprint
    why = failure.why(-1)
    assert failure.fingerprint == fingerprint_of(why.reason, why.error, why.place)
    assert "\n" not in failure.reason


def test_a_failure_without_a_line_of_the_user_is_placed_at_the_handler() -> None:
    def handler(message: object) -> None: ...

    failure = describe(ValueError("x"), handler)

    assert failure.place.endswith(f"test_worker_verdicts.py:{handler.__code__.co_firstlineno} in handler")
    assert describe(ValueError("x")).place == ""


def test_verdicts_survive_the_way_between_processes() -> None:
    failure = Failure("KeyError", "'x'", "shop.py:1 in f")
    elsewhere = pickle.loads(pickle.dumps(FailedElsewhere(failure)))
    again = pickle.loads(pickle.dumps(RetryAfter(7, "later")))
    rejected = pickle.loads(pickle.dumps(Reject("never")))

    assert describe(elsewhere) == failure
    assert (again.seconds, again.reason, rejected.reason) == (7, "later", "never")
