"""What somebody is told of itself, at every port."""

from __future__ import annotations

from tidemill_host.permits import COMMON, Need
from tidemill_host.rights import OWN_RIGHTS, rights_of, rights_paths
from tidemill_wire.access import ANYBODY, Identity, Operation, Permission


def test_somebody_is_told_what_was_granted_as_it_was_granted() -> None:
    sending = Permission(frozenset({Operation.SEND}), ("order.*", "a"))
    consuming = Permission(frozenset({Operation.CONSUME, Operation.BROWSE}), ("order.*",), ("billing",))

    assert rights_of(Identity("token:shop", (sending, consuming))) == {
        "who": "token:shop",
        "everything": False,
        "permissions": [
            {"operations": ["Send"], "subjects": ["order.*", "a"]},
            {"operations": ["Browse", "Consume"], "subjects": ["order.*"], "groups": ["billing"]},
        ],
    }


def test_where_nothing_is_locked_anybody_may_do_everything() -> None:
    assert rights_of(ANYBODY) == {"who": "nobody", "everything": True, "permissions": []}


def test_it_is_described_and_takes_a_name_and_no_right() -> None:
    assert set(rights_paths()) == {OWN_RIGHTS}
    assert COMMON["GET", OWN_RIGHTS].need is Need.A_NAME
