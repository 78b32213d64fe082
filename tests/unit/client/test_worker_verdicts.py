"""What is told of a failure."""

from __future__ import annotations

import json
import pickle
import textwrap

from hypothesis import given
from hypothesis import strategies as st

from tidemill.worker.verdicts import FailedElsewhere, Failure, Reject, RetryAfter, describe


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

    assert (failure.kind, failure.place) == ("JSONDecodeError", "shop/billing.py:5")
    assert failure.reason == f"JSONDecodeError: {failure.text} at shop/billing.py:5 [{failure.fingerprint}]"


@given(st.integers(0, 30), st.text(max_size=20))
def test_a_fingerprint_does_not_depend_on_the_line_or_the_text(lines: int, text: str) -> None:
    failure = raised("\n" * lines + f"def fail():\n    raise ValueError({text!r})\n", "shop.py")

    assert failure.fingerprint == raised("def fail():\n    raise ValueError\n", "shop.py").fingerprint
    assert failure.place == f"shop.py:{lines + 2}"
    assert "\n" not in failure.reason


def test_a_fingerprint_depends_on_kind_file_and_function() -> None:
    program = "def fail():\n    raise ValueError\n"
    failures = [
        raised(program, "shop.py"),
        raised(program, "other.py"),
        raised(program.replace("ValueError", "KeyError"), "shop.py"),
        raised("def inner():\n    raise ValueError\n\ndef fail():\n    inner()\n", "shop.py"),
    ]

    assert len({failure.fingerprint for failure in failures}) == 4


def test_a_failure_without_a_line_of_the_user_is_placed_at_the_handler() -> None:
    def handler(message: object) -> None: ...

    failure = describe(ValueError("x"), handler)

    assert failure.place.endswith(f"test_worker_verdicts.py:{handler.__code__.co_firstlineno}")
    assert describe(ValueError("x")).place == ""


def test_verdicts_survive_the_way_between_processes() -> None:
    failure = Failure("KeyError", "'x'", "shop.py:1", "0" * 12)
    elsewhere = pickle.loads(pickle.dumps(FailedElsewhere(failure)))
    again = pickle.loads(pickle.dumps(RetryAfter(7, "later")))
    rejected = pickle.loads(pickle.dumps(Reject("never")))

    assert describe(elsewhere) == failure
    assert (again.seconds, again.reason, rejected.reason) == (7, "later", "never")
