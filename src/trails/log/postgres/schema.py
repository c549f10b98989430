"""The tables of the log in PostgreSQL, by version, and how they are created.

They are in the first schema of the connection's ``search_path``; every row belongs to a graph.
Texts that callers choose are ``bytea``: unlike ``text``, that holds every character and is compared
byte by byte, whatever the collation of the database is. Records are JSON.

Rows of streams can be added and never changed; triggers refuse the rest. A role that only uses the
log needs no right to create anything: statements run only where a version is missing.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from trails.errors import StorageError
from trails.log.postgres.connections import Connection

_CREATING: Final = 0x747261696C73  # "trails"
"""The advisory lock of those who create tables."""
_STREAMS: Final = ("graphs", "commits", "chunks", "schemas", "moves", "archives", "archive_chunks")
"""Tables whose rows never change."""
INDEXED: Final = 1024
"""Bytes of a text that an index holds; PostgreSQL refuses entries above some 2 700."""

_TABLES: Final = """
CREATE TABLE trails_graphs (
    id integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name bytea NOT NULL UNIQUE,
    format integer NOT NULL, base_iri bytea NOT NULL, created bytea NOT NULL
);
CREATE TABLE trails_streams (  -- who adds to a stream locks its row until COMMIT
    graph integer NOT NULL, name text NOT NULL, PRIMARY KEY (graph, name)
);
CREATE TABLE trails_commits (
    graph integer NOT NULL, seq bigint NOT NULL, id bytea NOT NULL, branch bytea NOT NULL,
    idempotency_key bytea, migrates boolean NOT NULL, renames boolean NOT NULL,
    record bytea NOT NULL,
    removed bytea, removed_chunks integer NOT NULL, removed_sha bytea NOT NULL,
    added bytea, added_chunks integer NOT NULL, added_sha bytea NOT NULL,
    PRIMARY KEY (graph, seq), UNIQUE (graph, id)
);
CREATE UNIQUE INDEX trails_commits_keys ON trails_commits (graph, branch, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX trails_commits_migrations ON trails_commits (graph, seq) WHERE migrates;
CREATE INDEX trails_commits_renames ON trails_commits (graph, seq) WHERE renames;
CREATE TABLE trails_chunks (  -- large parts of commits, compressed, in pieces
    graph integer NOT NULL, seq bigint NOT NULL, half text NOT NULL, part integer NOT NULL,
    body bytea NOT NULL, PRIMARY KEY (graph, seq, half, part)
);
ALTER TABLE trails_chunks ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE trails_heads (
    graph integer NOT NULL, branch bytea NOT NULL, id bytea NOT NULL, seq bigint NOT NULL,
    schema bytea NOT NULL, PRIMARY KEY (graph, branch)
);
CREATE TABLE trails_schemas (
    graph integer NOT NULL, digest bytea NOT NULL, body bytea NOT NULL, PRIMARY KEY (graph, digest)
);
CREATE TABLE trails_moves (
    graph integer NOT NULL, seq bigint NOT NULL, record bytea NOT NULL, PRIMARY KEY (graph, seq)
);
CREATE TABLE trails_keys (
    graph integer NOT NULL, branch bytea NOT NULL, actor bytea NOT NULL, key bytea NOT NULL,
    expires bytea NOT NULL, record bytea NOT NULL, PRIMARY KEY (graph, branch, actor, key)
);
CREATE INDEX trails_keys_expiry ON trails_keys (graph, expires);
CREATE TABLE trails_activities (
    graph integer NOT NULL, seq bigint NOT NULL, id bytea NOT NULL,
    actor bytea NOT NULL, name bytea NOT NULL, outcome bytea NOT NULL, ended bytea NOT NULL,
    record bytea NOT NULL, PRIMARY KEY (graph, seq), UNIQUE (graph, id)
);
CREATE INDEX trails_activities_actor ON trails_activities (graph, actor, seq);
CREATE INDEX trails_activities_name ON trails_activities (graph, name, seq);
CREATE INDEX trails_activities_outcome ON trails_activities (graph, outcome, seq)
    WHERE outcome <> 'ok';
CREATE INDEX trails_activities_ended ON trails_activities (graph, ended);
CREATE TABLE trails_calls (  -- calls that made a commit and have no activity yet
    graph integer NOT NULL, id bytea NOT NULL, record bytea NOT NULL,
    server integer NOT NULL DEFAULT 0, PRIMARY KEY (graph, id)
);
CREATE TABLE trails_activity_nodes (
    graph integer NOT NULL, node bytea NOT NULL, activity bigint NOT NULL,
    PRIMARY KEY (graph, node, activity)
);
CREATE TABLE trails_archives (
    graph integer NOT NULL, first bigint NOT NULL, last bigint NOT NULL, count bigint NOT NULL,
    name text NOT NULL, sha text NOT NULL, oldest bytea NOT NULL, newest bytea NOT NULL,
    chunks integer NOT NULL, PRIMARY KEY (graph, first)
);
CREATE TABLE trails_archive_chunks (
    graph integer NOT NULL, first bigint NOT NULL, part integer NOT NULL,
    body bytea NOT NULL, PRIMARY KEY (graph, first, part)
);
ALTER TABLE trails_archive_chunks ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE FUNCTION trails_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$;
CREATE FUNCTION trails_refuse_unarchived() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE archived bigint;
BEGIN
    EXECUTE format('SELECT max(last) FROM %I.trails_archives WHERE graph = $1', TG_TABLE_SCHEMA)
        INTO archived USING OLD.graph;
    IF OLD.seq > coalesce(archived, 0) THEN
        RAISE EXCEPTION '% is append-only', TG_TABLE_NAME;
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER trails_append_only BEFORE UPDATE ON trails_activities
    FOR EACH ROW EXECUTE FUNCTION trails_refuse();
CREATE TRIGGER trails_archived_first BEFORE DELETE ON trails_activities
    FOR EACH ROW EXECUTE FUNCTION trails_refuse_unarchived();
CREATE TRIGGER trails_no_truncate BEFORE TRUNCATE ON trails_activities
    FOR EACH STATEMENT EXECUTE FUNCTION trails_refuse();
"""
_APPEND_ONLY: Final = """
CREATE TRIGGER trails_append_only BEFORE UPDATE OR DELETE ON trails_{table}
    FOR EACH ROW EXECUTE FUNCTION trails_refuse();
CREATE TRIGGER trails_no_truncate BEFORE TRUNCATE ON trails_{table}
    FOR EACH STATEMENT EXECUTE FUNCTION trails_refuse();
"""
VERSIONS: Final = (_TABLES + "".join(_APPEND_ONLY.format(table=each) for each in _STREAMS),)
"""What each version adds to the one before it."""


def create_tables(connection: Connection) -> None:
    """Bring the tables to this version; StorageError for those of a later one."""
    if _version(connection) == len(VERSIONS):
        return
    # Before the transaction: only one that begins afterwards is sure to see what another server
    # has created meanwhile.
    connection.execute("SELECT pg_advisory_lock(%s)", (_CREATING,))
    try:
        _add_missing(connection)
    finally:
        if not connection.broken:
            connection.execute("SELECT pg_advisory_unlock(%s)", (_CREATING,))


def _add_missing(connection: Connection) -> None:
    with connection.transaction():
        found = _version(connection)
        if found > len(VERSIONS):
            raise StorageError(
                f"the tables of this log have version {found}, and this version of Trails knows "
                f"{len(VERSIONS)}; use the version that made them, or a later one"
            )
        if not found:
            connection.execute("CREATE TABLE trails_versions (version integer PRIMARY KEY)")
        for number in range(found + 1, len(VERSIONS) + 1):
            connection.execute(VERSIONS[number - 1])
            connection.execute("INSERT INTO trails_versions VALUES (%s)", (number,))


def _version(connection: Connection) -> int:
    (table,) = _row(connection, "SELECT to_regclass('trails_versions')::text")
    if table is None:
        return 0
    (found,) = _row(connection, "SELECT coalesce(max(version), 0) FROM trails_versions")
    return int(str(found))


def _row(connection: Connection, query: str) -> tuple[object, ...]:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None  # noqa: S101 - these questions have one answer
    return row


def raw(text: str) -> bytes:
    """A text as a column has it."""
    return text.encode()


def indexed(text: str) -> bytes:
    """A text as an index can hold it: of a long one, the beginning and a digest."""
    whole = text.encode()
    return whole if len(whole) <= INDEXED else whole[:INDEXED] + sha256(whole).digest()
