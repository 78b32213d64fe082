"""Grant: an object in Kubernetes, a grant at meta of its name, and the tokens that its Secrets hold.

Like a Subject it is declared at meta, and the object is the only truth; what is otherwise is that a deletion always
takes back what was granted, so the finalizer is held from before the first word to meta on, and that of a token no more
than its digest goes anywhere.

    it is deleted            take back the grant and its tokens, then let go
    paused, not managed, no cluster    as with a Subject
    the cluster asks nobody  say so
    meta was not heard       say so, and wait
    the grant is missing, or another one    tell meta
    a token is missing, or not in its Secret any more    tell meta
    all is well              say so; of Secrets that are not there, that they are not

A Secret may hold several tokens, a line each, which all hold: so they are rotated as the cluster's own is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

from tidemill_operator import declared, marks
from tidemill_operator.conditions import RECONCILING, SYNCED, ready, stalled, synced
from tidemill_operator.desired.locks import OPEN, Locks, SecretKey, parse_locks
from tidemill_operator.names import digest
from tidemill_operator.steps import Ask, Condition, Event, Hold, Manifest, Plan, Seen, Step
from tidemill_wire.fields import NAME
from tidemill_wire.grant_specs import GrantSpec
from tidemill_wire.granted import declared_grant
from tidemill_wire.resources import parse_resource
from tidemill_wire.schema import ManifestError

GRANTS, TOKENS = "/v1/access/grants", "/v1/access/tokens"
ROWS_OWN = frozenset({"grant", "version"})
"""What meta says of a grant beside what it was told."""
SECRETS_MS = 30_000
"""How often Secrets are looked at, which nobody watches."""


class Wish(NamedTuple):
    """What one Grant wants meta to have."""

    name: str
    granted: Mapping[str, Any]
    principals: int
    tokens: Mapping[str, Mapping[str, Any]]
    """What is said of each token, by its id; of this Grant are those whose id begins as these do."""
    missing: tuple[str, ...]
    """Secrets without a token."""
    unknown: str
    """A sentence, of principals that the cluster would not know."""


def plan(seen: Seen, now_ms: int) -> Plan:
    """The next steps for a Grant."""
    resource = seen.resource
    if marks.goes(resource):
        return _deletion(seen)
    held_up = declared.held_up(seen)
    if held_up is not None:
        return held_up
    assert seen.cluster is not None
    try:
        wish = wish_of(seen, parse_locks(seen.cluster))
    except ManifestError as error:
        return Plan(conditions=stalled("InvalidSpec", str(error)), status=declared.kept(seen))
    if parse_locks(seen.cluster).token is None:
        sentence = "the cluster asks nobody who they are: everybody may do everything, until it has a token"
        return Plan(conditions=stalled("Unsupported", sentence), status=declared.kept(seen))
    if seen.meta is None:
        return declared.silent(seen)
    return _settled(seen, wish, now_ms)


def asks(_resource: Manifest, _objects: tuple[Manifest, ...] = ()) -> tuple[str, ...]:
    """The paths at meta that a plan wants to see."""
    return GRANTS, TOKENS


def secrets(resource: Manifest) -> tuple[SecretKey, ...]:
    """Those with tokens."""
    found = (marks.part(one, "secretRef") for one in marks.rows(resource, "spec", "principals"))
    return tuple(SecretKey(str(one["name"]), str(one["key"])) for one in found if one)


def name_of(resource: Manifest) -> str:
    """As meta knows it; of one object of a namespace, as the cluster is."""
    name = str(marks.metadata(resource)["name"])
    if not NAME.fullmatch(name):
        raise ManifestError("metadata.name", f"is {name[:60]!r}: write at most 100 characters")
    return name


def wish_of(seen: Seen, locks: Locks) -> Wish:
    """``ManifestError`` when this version of the operator cannot read it."""
    resource = seen.resource
    parsed = parse_resource(declared.bare(resource, marks.spec(resource)))
    spec = parsed.spec
    assert isinstance(spec, GrantSpec)
    name, tokens, missing = name_of(resource), dict[str, Mapping[str, Any]](), list[str]()
    for one in spec.principals:
        if one.secret_ref is None:
            continue
        where = str(SecretKey(one.secret_ref.name, one.secret_ref.key))
        digests = seen.secrets.get(where, ())
        missing += [] if digests else [where]
        for each in digests:
            said = {"who": f"token:{one.name}", "digest": each}
            tokens[f"{prefix_of(name)}{digest(said, 16)}"] = said
    granted = declared_grant(parsed).to_map()
    unknown = _unknown(spec, locks)
    return Wish(name, granted, len(spec.principals), tokens, tuple(missing), unknown)


def prefix_of(name: str) -> str:
    """Of the ids of a Grant's tokens. It has the name's digest, for of two names one may begin as the other does."""
    return f"grant.{digest(name, 16)}."


def _unknown(spec: GrantSpec, locks: Locks) -> str:
    kinds = {one.kind for one in spec.principals}
    if "ServiceAccount" in kinds and not locks.audience:
        return "the cluster knows no ServiceAccounts: say so in its security.serviceAccounts"
    if "Certificate" in kinds and not locks.certificates:
        return (
            "the cluster knows nobody by a certificate: write Accepted in its security.tls.clientCertificates"
        )
    return ""


def _settled(seen: Seen, wish: Wish, now_ms: int) -> Plan:
    """The pass of one that nothing stands against."""
    row, there = _row(seen, wish.name), _tokens(seen, wish.name)
    wrong = () if row is None else _differing(wish.granted, row)
    steps: list[Step] = [] if marks.is_held(seen.resource) else [Hold(True)]
    asked: list[Step] = []
    if row is None or wrong:
        asked.append(Ask("PUT", f"{GRANTS}/{wish.name}", wish.granted))
    # What is taken back goes first: a token that meta refuses must not keep it, and may be refused for its sake.
    asked += [Ask("DELETE", f"{TOKENS}/{name}") for name in there if name not in wish.tokens]
    asked += [Ask("PUT", f"{TOKENS}/{name}", said) for name, said in wish.tokens.items() if name not in there]
    status = {**declared.kept(seen), "principals": wish.principals}
    if not asked:
        status |= {"revision": str(row["version"])} if row is not None else {}
        again_ms = SECRETS_MS if wish.tokens or wish.missing else None
        return Plan(tuple(steps), (_ready(wish), synced("InSync", "as the spec says")), status, (), again_ms)
    event, fields = _event(seen, wish, row, wrong)
    made = Plan((*steps, *asked), events=(event,), again_ms=0)
    if event.reason != "DriftReverted":
        return made
    drift = declared.drift_of(seen.resource, fields, now_ms)
    said = (_ready(wish), synced("DriftReverted", f"changed past this object: {', '.join(fields)}"))
    return replace(made, conditions=said, status={**status, "drift": drift})


def _differing(wanted: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[str, ...]:
    """Fields in which meta's is another one; what is not said is not there, either."""
    names = {*wanted, *row} - ROWS_OWN
    return tuple(sorted(name for name in names if row.get(name) != wanted.get(name)))


def _event(
    seen: Seen, wish: Wish, row: Mapping[str, Any] | None, wrong: Sequence[str]
) -> tuple[Event, tuple[str, ...]]:
    """What happens to meta's, and in which fields it differed."""
    settled = declared.was_settled(seen.resource)
    title = f"grant {wish.name}"
    if settled and (row is None or wrong):
        fields = tuple(wrong) or ("*",)
        sentence = f"{title} was changed past this object, and changed back: {', '.join(fields)}"
        return Event("DriftReverted", sentence, warning=True), fields
    if row is None:
        return Event("Created", f"{title} is declared at meta"), ()
    if wrong and not marks.condition_of(seen.resource, SYNCED):
        return Event("Adopted", f"{title} was there already, and is as the spec says from now on"), ()
    what = ", ".join(wrong) if wrong else "tokens are as its Secrets say"
    return Event("Updated", f"{title}: {what}"), ()


def _ready(wish: Wish) -> Condition:
    if wish.missing:
        listed = ", ".join(wish.missing)
        return ready(
            "ReferenceNotFound", f"no token of 32 characters or more is in {listed}: write one there"
        )
    if wish.unknown:
        return ready("Unsupported", wish.unknown)
    return ready("Reconciled", "as the spec says")


def _deletion(seen: Seen) -> Plan:
    resource = seen.resource
    if not marks.is_held(resource):
        return Plan()
    locks = OPEN if seen.cluster is None else parse_locks(seen.cluster)
    if declared.is_abandoned(seen) or locks.token is None:
        return Plan(steps=(Hold(False),))
    if marks.is_paused(resource):
        return declared.paused(seen)
    try:
        name = name_of(resource)
    except ManifestError:
        return Plan(steps=(Hold(False),))  # it was never declared
    if seen.meta is None:
        waits = ready("Deleting", f"waits for meta, which must take grant {name} back")
        under_way = Condition(RECONCILING, "True", "Deleting", "what was granted is taken back")
        return Plan(conditions=(waits, under_way), status=declared.kept(seen), again_ms=declared.SILENT_MS)
    asked: list[Step] = [Ask("DELETE", f"{TOKENS}/{one}") for one in _tokens(seen, name)]
    asked += [Ask("DELETE", f"{GRANTS}/{name}")] if _row(seen, name) is not None else []
    if not asked:
        return Plan(steps=(Hold(False),))
    event = Event("Deleted", f"meta is told to take grant {name} back, and its tokens")
    return Plan(steps=tuple(asked), events=(event,), again_ms=0)


def _row(seen: Seen, name: str) -> Mapping[str, Any] | None:
    return next((one for one in _listed(seen, GRANTS) if one["grant"] == name), None)


def _tokens(seen: Seen, name: str) -> list[str]:
    """Ids of those that meta has of this Grant."""
    prefix = prefix_of(name)
    return [str(one["token"]) for one in _listed(seen, TOKENS) if str(one["token"]).startswith(prefix)]


def _listed(seen: Seen, path: str) -> Sequence[Mapping[str, Any]]:
    assert seen.meta is not None
    return cast("Sequence[Mapping[str, Any]]", seen.meta.get(path) or ())
