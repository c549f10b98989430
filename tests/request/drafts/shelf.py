"""A shelf of books, with capabilities that write once, twice, and outside the graph; its log."""

from hashlib import sha256

from trails import Context, Node, Ref, capability, node_type, predicate

SENT = []
"""What was mailed."""


@node_type
class Author(Node):
    """Somebody who writes."""

    slug: str = predicate(key=True, pattern=r"^[a-z]+$")
    books: int = predicate(default=0, min_value=0)


@node_type
class Book(Node):
    """Something to read."""

    isbn: str = predicate(key=True, pattern=r"^[0-9]{2}$")
    title: str = predicate(min_length=3)
    author: Ref[Author] | None = predicate()
    tags: list[str] = predicate(max_count=3)


@capability("books.write", side_effects=["creates a Book"])
def write(ctx: Context, isbn: str, title: str, author: str) -> dict[str, object]:
    """Add a book, then count the books of its author, in two commits."""
    found = Author(slug=author)
    found.save(ctx, upsert=True)
    Book(isbn=isbn, title=title, author=found).save(ctx)
    mine = Book.objects(ctx).where(author=found).count()
    found.books = mine
    found.save(ctx)
    seen = ctx.kg.sparql("SELECT (COUNT(?book) AS ?n) WHERE { ?book a :Book }").rows[0]["n"]
    return {"books": mine, "all": seen, "branch": ctx.branch}


@capability("books.retitle", side_effects=["changes a Book"], idempotent=True)
async def retitle(ctx: Context, book: Ref[Book], title: str) -> Book:
    """Give a book another title."""
    book.title = title
    book.save(ctx)
    return book


@capability("books.announce", side_effects=["sends mail about a Book"])
def announce(ctx: Context, isbn: str, title: str) -> int:
    """Add a book, and mail it."""
    Book(isbn=isbn, title=title).save(ctx)
    SENT.append(isbn)
    return len(SENT)


DECLARED = (Author, Book, write, retitle, announce)
_TABLES = ("commits", "heads", "moves", "schemas", "idempotency_keys")


def log_of(graph):
    """A digest of everything in a log but its activities, and of the files beside it."""
    found = sha256()
    for table in _TABLES:
        rows = graph.log._db.execute(f"SELECT * FROM {table}")
        found.update("\n".join(sorted(map(repr, rows))).encode())
    folder = graph.folder
    if folder is not None:
        for name in ("segments", "branches", "snapshots", "blobs", "tmp"):
            found.update(repr(sorted(map(str, (folder / name).rglob("*.nq.zst")))).encode())
        found.update(repr(sorted(each.name for each in (folder / "tmp").glob("draft-*"))).encode())
    return found.hexdigest()
