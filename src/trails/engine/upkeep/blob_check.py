"""Which blobs the history names, and whether they are what was put.

Only the log knows for sure: a blob that no branch shows any more is still part of every snapshot
in which a record named it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO, Final

from trails.engine.graph.graph import Graph
from trails.engine.validation.blob_names import blob_fields
from trails.model.texts import count
from trails.model.upkeep import Finding, flag, passed

_BLOCK: Final = 1 << 20
_SHOWN: Final = 3
_statements = re.compile(
    rb'> <([^>]*)> "sha256:([0-9a-f]{64})\?[^"]*"\^\^<[^>]*#anyURI> \.\n'
).finditer


def named_blobs(graph: Graph, since: int = 0) -> set[str]:
    """The digests of the blobs that commits after a place in the log name."""
    found: set[str] = set()
    for commit in graph.log.commits(after=since):
        schema = graph.compiled(commit.schema).schema
        predicates = {
            graph.names.term(field.iri).encode()
            for fields in blob_fields(schema).values()
            for field in fields
        }
        if predicates:
            with graph.log.open_added(commit) as added:
                found.update(_named(added, predicates))
    return found


def _named(stream: IO[bytes], predicates: set[bytes]) -> Iterator[str]:
    begun = b""
    while block := stream.read(_BLOCK):
        whole = begun + block
        end = whole.rfind(b"\n") + 1
        if b'"sha256:' in whole:
            for match in _statements(whole, 0, end):
                if match[1] in predicates:
                    yield match[2].decode()
        begun = whole[end:]


def check_blobs(graph: Graph) -> Finding | None:
    """Compare every blob with its digest, and look for what commits name; None without blobs."""
    kept, named = set(graph.blobs.digests()), named_blobs(graph)
    if not kept and not named:
        return None
    missing = sorted(each for each in named if graph.blobs.size_of(each) is None)
    changed = [each for each in sorted(kept) if not graph.blobs.is_whole(each)]
    problems = [
        f"{count(len(each), 'blob')} {what}: {', '.join(each[:_SHOWN])}"
        f"{', …' if len(each) > _SHOWN else ''}"
        for each, what in ((missing, "missing"), (changed, "changed"))
        if each
    ]
    if problems:
        fix = "put the files back from a backup (blobs/ in its folders)"
        return flag("blobs_damaged", "; ".join(problems), fix)
    return passed("blobs", f"{count(len(kept), 'blob')}, every digest right")
