"""The project that the tests of REST serve."""

APP = '''
from __future__ import annotations

from trails import Context, Ref, capability, node_type, predicate
from trails.errors import CapabilityError


@node_type
class Note:
    """A note."""

    key: str = predicate(key=True)
    title: str = predicate(min_length=3, max_length=40, label=True)
    status: str = predicate(one_of=["open", "done"], default="open")
    stars: int | None = predicate(min_value=1, max_value=5)


@capability("notes.finish")
def finish(ctx: Context, note: Ref[Note], stars: int | None = None) -> Note:
    """Finish a note."""
    note.status, note.stars = "done", stars
    note.save(ctx)
    return note


@capability("notes.refuse")
def refuse(ctx: Context) -> str:
    """Say no."""
    raise CapabilityError("not today", until="tomorrow")
'''

QUERIES = {
    "by_status": """\
#+ description: Notes of a status.
#+ params:
#+   status: { type: String, one_of: [open, done] }
#+   stars: { type: Int, nullable: true }
SELECT ?title WHERE {
  ?n a :Note ; :title ?title ; :status $status
  FILTER (!BOUND($stars) || EXISTS { ?n :stars $stars })
} ORDER BY ?title
""",
    "finish_all": """\
#+ description: Finish all notes that begin so.
#+ params:
#+   start: String
#+ expose: false
DELETE { ?n :status ?s } INSERT { ?n :status "done" }
WHERE { ?n a :Note ; :status ?s ; :title ?t FILTER STRSTARTS(?t, $start) }
""",
}
