"""What is told of a failure."""

from __future__ import annotations

import json
import pickle
import textwrap

from hypothesis import given
from hypothesis import strategies as st

from tidemill.why import FailedElsewhere, Why, why_of
from tidemill.worker.verdicts import Reject, RetryAfter
from tidemill_broker.failures import fingerprint_of


def raised(source: str, filename: str) -> Why:
    """The failure of a program that calls ``fail``."""
    names: dict[str, object] = {"json": json}
    exec(compile(textwrap.dedent(source), filename, "exec"), names)
    try:
        names["fail"]()  # type: ignore[operator]
    except Exception as error:
        return why_of(error)
    raise AssertionError


def fingerprint(why: Why) -> str:
    """As the broker makes it."""
    return fingerprint_of(why.reason, why.error, why.place)


def test_the_place_is_the_last_line_of_the_users_own_code() -> None:
    why = raised("def fail():\n    return inner()\n\ndef inner():\n    json.loads('{')\n", "shop/billing.py")

    assert (why.error, why.place) == ("json.decoder.JSONDecodeError", "shop/billing.py:5 in inner")
    assert why.line.startswith("JSONDecodeError: Expecting")
    assert why.line.endswith(" at shop/billing.py:5 in inner")


@given(st.integers(0, 30), st.text(max_size=20))
def test_a_fingerprint_does_not_depend_on_the_line_or_the_text(lines: int, text: str) -> None:
    why = raised("\n" * lines + f"def fail():\n    raise ValueError({text!r})\n", "shop.py")

    assert fingerprint(why) == fingerprint(raised("def fail():\n    raise ValueError\n", "shop.py"))
    assert why.place == f"shop.py:{lines + 2} in fail"
    assert "\n" not in why.reason


def test_a_fingerprint_depends_on_kind_file_and_function() -> None:
    program = "def fail():\n    raise ValueError\n"
    failures = [
        raised(program, "shop.py"),
        raised(program, "other.py"),
        raised(program.replace("ValueError", "KeyError"), "shop.py"),
        raised("def inner():\n    raise ValueError\n\ndef fail():\n    inner()\n", "shop.py"),
    ]

    assert len(set(map(fingerprint, failures))) == 4


def test_a_failure_without_a_line_of_the_user_is_placed_at_the_handler() -> None:
    def handler(message: object) -> None: ...

    why = why_of(ValueError("x"), handler)

    assert why.place.endswith(f"test_worker_verdicts.py:{handler.__code__.co_firstlineno} in handler")
    assert why_of(ValueError("x")).place == ""


def test_verdicts_survive_the_way_between_processes() -> None:
    why = Why("KeyError: 'x'", "KeyError", "shop.py:1 in fail")
    elsewhere = pickle.loads(pickle.dumps(FailedElsewhere(why)))
    again = pickle.loads(pickle.dumps(RetryAfter(7, "later")))
    rejected = pickle.loads(pickle.dumps(Reject("never")))

    assert why_of(elsewhere) == why
    assert (again.seconds, again.reason, rejected.reason) == (7, "later", "never")


def test_an_error_that_cannot_say_what_it_is_has_a_reason_all_the_same() -> None:
    class Mute(LookupError):
        def __str__(self) -> str:
            raise ValueError("nothing to say")

    assert why_of(Mute()).reason.startswith("Mute: ")
