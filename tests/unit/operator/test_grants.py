"""Grants: what is asked of meta and said of them; what is deleted, or in no Secret any more, holds no longer."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samples.granting import LOCKED, Grants
from tidemill_operator import marks
from tidemill_operator.steps import Ask, Hold
from tidemill_wire.access import digest_of

SHOP = {"kind": "ServiceAccount", "name": "shop"}
LEGACY = {"kind": "Token", "name": "legacy", "secretRef": {"name": "legacy", "key": "token"}}
ONE, OTHER = "1" * 40, "2" * 40


@pytest.fixture
def world() -> Grants:
    return Grants()


def test_a_grant_is_declared_held_and_then_ready(world: Grants) -> None:
    key = world.grant("shop", SHOP, {"kind": "Certificate", "name": "till"})
    plan = world.plan(key)
    assert isinstance(plan.steps[0], Hold), "it is held before meta hears of it"

    world.settle()

    assert world.grants["shop"]["principals"] == ["serviceaccount:shop/shop", "certificate:till"]
    assert world.ready(key) == ("True", "Reconciled")
    resource = world.store.get(key)
    assert resource is not None
    assert resource["status"]["principals"] == 2
    assert resource["status"]["revision"] == str(world.grants["shop"]["version"])
    assert world.events == [("shop", "Created")]


def test_nothing_is_written_when_nothing_changed(world: Grants) -> None:
    world.secrets["legacy/token"] = (ONE,)
    world.grant("shop", SHOP, LEGACY)
    world.settle()
    writes = world.writes

    world.now_ms += 3_600_000
    world.settle(passes=1)

    assert world.writes == writes


def test_a_changed_spec_is_told_and_a_changed_meta_is_put_right(world: Grants) -> None:
    world.grant("shop", SHOP)
    world.settle()
    key = world.grant("shop", SHOP, permissions=[{"subjects": ["*"], "operations": ["Browse"]}])
    world.settle()
    assert world.grants["shop"]["permissions"] == [{"operations": ["Browse"], "subjects": ["*"]}]
    assert world.events[-1] == ("shop", "Updated")

    world.grants["shop"]["permissions"] = []
    world.settle()
    assert world.grants["shop"]["permissions"] == [{"operations": ["Browse"], "subjects": ["*"]}]
    assert world.events[-1] == ("shop", "DriftReverted")
    del world.grants["shop"]
    world.settle()
    assert world.grants["shop"]["permissions"]
    resource = world.store.get(key)
    assert resource is not None
    assert resource["status"]["drift"]["count"] == 2


def test_a_quota_is_told_and_taken_away_again(world: Grants) -> None:
    world.grant("shop", SHOP, quota={"messagesPerSecond": 100})
    world.settle()
    assert world.grants["shop"]["quota"]

    world.grant("shop", SHOP)
    world.settle()

    assert "quota" not in world.grants["shop"]


def test_one_that_is_there_already_is_taken_over(world: Grants) -> None:
    world.grants["shop"] = {"principals": ["token:x"], "permissions": [], "version": 1}
    key = world.grant("shop", SHOP)

    world.settle()

    assert world.grants["shop"]["principals"] == ["serviceaccount:shop/shop"]
    assert world.events == [("shop", "Adopted")]
    assert world.ready(key) == ("True", "Reconciled")


def test_a_token_whose_principal_is_renamed_is_another_ones_from_then_on(world: Grants) -> None:
    """Meta gives no token to two: the former one goes first."""
    world.secrets["legacy/token"] = (ONE,)
    world.grant("shop", LEGACY)
    world.settle()
    assert world.holders() == {digest_of(ONE): "token:legacy"}

    key = world.grant("shop", {**LEGACY, "name": "renamed"})
    world.settle()

    assert world.holders() == {digest_of(ONE): "token:renamed"}
    assert world.ready(key) == ("True", "Reconciled")


def test_a_deletion_takes_back_grant_and_tokens_before_the_object_goes(world: Grants) -> None:
    world.secrets["legacy/token"] = (ONE,)
    key = world.grant("shop", LEGACY)
    world.secrets["other/token"] = (OTHER,)
    world.grant("shop.b", {**LEGACY, "name": "other", "secretRef": {"name": "other", "key": "token"}})
    world.settle()
    world.tokens["made-by-a-person"] = {"who": "token:legacy", "digest": "x"}

    world.meta_is_there = False
    world.delete(key)
    world.settle()
    assert world.store.get(key) is not None, "meta has not heard of it"
    world.meta_is_there = True
    world.settle()

    assert world.store.get(key) is None
    assert list(world.grants) == ["shop.b"]
    assert sorted(row["who"] for row in world.tokens.values()) == ["token:legacy", "token:other"]
    assert "made-by-a-person" in world.tokens


def test_tokens_are_told_as_digests_and_rotated_line_by_line(world: Grants) -> None:
    world.secrets["legacy/token"] = (ONE,)
    key = world.grant("shop", LEGACY)
    world.settle()
    assert world.holders() == {digest_of(ONE): "token:legacy"}
    assert ONE not in str(world.tokens)

    world.secrets["legacy/token"] = (OTHER, ONE)
    world.settle()
    assert set(world.holders()) == {digest_of(ONE), digest_of(OTHER)}
    world.secrets["legacy/token"] = (OTHER,)
    world.settle()
    assert set(world.holders()) == {digest_of(OTHER)}
    assert world.ready(key) == ("True", "Reconciled")
    assert world.events[-1] == ("shop", "Updated")


def test_a_secret_that_is_gone_revokes_its_token_and_is_said(world: Grants) -> None:
    world.secrets["legacy/token"] = (ONE,)
    key = world.grant("shop", LEGACY, SHOP)
    world.settle()

    del world.secrets["legacy/token"]
    world.settle()

    assert world.tokens == {}
    assert world.ready(key) == ("False", "ReferenceNotFound")
    assert "legacy/token" in world.condition(key, "Ready")["message"]
    assert world.grants["shop"]["principals"] == ["token:legacy", "serviceaccount:shop/shop"]
    assert world.plan(key).again_ms, "nobody tells of Secrets"


@pytest.mark.parametrize(
    "security, principal, says",
    [
        ({}, SHOP, "asks nobody who they are"),
        ({"tls": LOCKED["tls"]}, SHOP, "asks nobody who they are"),
        ({"token": LOCKED["token"]}, SHOP, "security.serviceAccounts"),
        ({"token": LOCKED["token"]}, {"kind": "Certificate", "name": "a"}, "clientCertificates"),
    ],
)
def test_what_the_cluster_cannot_heed_is_said(security: Any, principal: Any, says: str) -> None:
    world = Grants(security)
    key = world.grant("shop", principal)

    world.settle()

    assert world.ready(key) == ("False", "Unsupported")
    assert says in world.condition(key, "Ready")["message"]
    if "token" not in security:
        assert world.grants == {}
        world.delete(key)
        world.settle()
        assert world.store.get(key) is None


def test_a_grant_that_is_not_managed_is_let_go_and_stays_at_meta(world: Grants) -> None:
    key = world.grant("shop", SHOP)
    world.settle()

    world.annotate(key, marks.MANAGED, "false")
    world.settle()
    world.delete(key)

    assert world.store.get(key) is None
    assert "shop" in world.grants


def test_no_plan_says_a_token(world: Grants) -> None:
    world.secrets["legacy/token"] = (ONE,)
    key = world.grant("shop", LEGACY)

    plan = world.plan(key)

    assert any(isinstance(one, Ask) and "digest" in (one.body or {}) for one in plan.steps)
    assert ONE not in str(plan)


@settings(max_examples=40)
@given(seed=st.integers(0, 1 << 32))
def test_whatever_happens_meta_has_in_the_end_what_the_grants_say(seed: int) -> None:
    """People, Secrets, a meta that goes and comes, and an operator that is killed after any step."""
    choice, world = random.Random(seed), Grants()
    for _ in range(30):
        name = choice.choice(("a", "a.b", "c"))
        keys = world.store.keys(("Grant",))
        match choice.randrange(7):
            case 0 | 1:
                operations = choice.sample(("Send", "Consume", "Browse"), 2)
                world.grant(
                    name,
                    choice.choice((SHOP, LEGACY)),
                    permissions=[{"subjects": ["x"], "operations": operations}],
                )
            case 2:
                world.secrets["legacy/token"] = tuple(choice.sample((ONE, OTHER), choice.randrange(3)))
            case 3 if keys:
                world.delete(choice.choice(keys))
            case 4:
                world.meta_is_there = not world.meta_is_there
            case 5 if world.grants:
                del world.grants[choice.choice(sorted(world.grants))]
            case _:
                for key in keys:
                    world.step(key, steps=choice.choice((None, 0, 1, 2)))
    world.meta_is_there = True
    world.settle(30)

    living = [one for key in world.store.keys(("Grant",)) if (one := world.store.get(key)) is not None]
    assert set(world.grants) == {one["metadata"]["name"] for one in living}
    wants = any(LEGACY in one["spec"]["principals"] for one in living)
    tokens = world.secrets.get("legacy/token", ()) if wants else ()
    assert set(world.holders()) == set(map(digest_of, tokens))
