"""A turn on PostgreSQL, in few round trips: while one replica has its turn the others wait, for each of them.

The row of the revision is locked, and what others wrote is read, by one call of a function: in it each statement sees
what was committed when it began, so the second one sees what the first one waited for, as it would from outside. What
is decided is written by one statement, which raises the revision, too.

Which life of the database this is says when its server was started, and in which file the revision lies: another one
when a standby took over, the server was started again, or a copy was put back. Whoever has the first turn of a life
notes it, and leaves a gap.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import text

from tidemill_meta.storing import Entry

FUNCTION = """
CREATE FUNCTION meta_turn(after bigint) RETURNS TABLE (
    head bigint, horizon bigint, floor bigint, kind text, name text, version bigint, body text
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    SELECT h.revision INTO STRICT head FROM meta_head h FOR UPDATE;
    SELECT f.horizon, f.floor INTO STRICT horizon, floor FROM meta_forgotten f;
    IF after < horizon THEN
        after := 0;
    END IF;
    RETURN QUERY
        SELECT head, horizon, floor, e.kind, e.name, e.version, e.body
        FROM (SELECT 1) AS always LEFT JOIN meta_entries e ON e.revision > after ORDER BY e.revision;
END $$
"""

LIFE = """
CREATE FUNCTION meta_life() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT concat_ws('/', pg_postmaster_start_time(), pg_relation_filenode('meta_head'))
$$
"""
FUNCTION_WITH_LIFE = """
CREATE FUNCTION meta_turn(after bigint) RETURNS TABLE (
    head bigint, horizon bigint, floor bigint, kind text, name text, version bigint, body text, gaps text,
    began bigint, noted boolean
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    SELECT h.revision INTO STRICT head FROM meta_head h FOR UPDATE;
    SELECT f.horizon, f.floor, l.gaps, l.began, l.life = meta_life()
        INTO STRICT horizon, floor, gaps, began, noted
        FROM meta_forgotten f, meta_lives l;
    IF after < horizon THEN
        after := 0;
    END IF;
    RETURN QUERY
        SELECT head, horizon, floor, e.kind, e.name, e.version, e.body, gaps, began, noted
        FROM (SELECT 1) AS always LEFT JOIN meta_entries e ON e.revision > after ORDER BY e.revision;
END $$
"""

BEGIN = text("SELECT * FROM meta_turn(:after)")
"""One row at least; without a kind when there is nothing new."""

WRITE = text("""
WITH step AS (UPDATE meta_head SET revision = :revision WHERE revision = :former RETURNING 1)
INSERT INTO meta_entries (kind, name, version, revision, body)
SELECT one.kind, one.name, one.version, :revision, one.body
FROM step, unnest(
    CAST(:kinds AS text[]), CAST(:names AS text[]), CAST(:versions AS bigint[]), CAST(:bodies AS text[])
) AS one (kind, name, version, body)
ON CONFLICT (kind, name) DO UPDATE
SET version = excluded.version, revision = excluded.revision, body = excluded.body
""")
"""As many rows as there are entries, or none when somebody else has written."""


def written(entries: Sequence[Entry], former: int, revision: int) -> dict[str, Any]:
    """What ``WRITE`` is told."""
    return {
        "former": former,
        "revision": revision,
        "kinds": [one.kind for one in entries],
        "names": [one.name for one in entries],
        "versions": [one.version for one in entries],
        "bodies": [body_of(one) for one in entries],
    }


def body_of(entry: Entry) -> str | None:
    """As it is stored."""
    return json.dumps(entry.body, separators=(",", ":")) if entry.body is not None else None
