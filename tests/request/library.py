"""A small application: books, their authors, and what can be done with them."""

import asyncio
import threading
from datetime import date
from decimal import Decimal

from trails import (
    Context,
    Node,
    Ref,
    Shape,
    capability,
    meta_capability,
    node_type,
    predicate,
    shape,
)
from trails.errors import BudgetError, CapabilityError, DeniedError, StorageError

__all__ = [
    "Author",
    "Book",
    "Window",
    "add_book",
    "rate",
    "rename_book",
    "shelve",
]


@node_type
class Author(Node):
    """Somebody who writes."""

    slug: str = predicate(key=True, pattern=r"^[a-z]+(-[a-z]+)*$")
    name: str = predicate(min_length=2, max_length=40, label=True)


@node_type(unique=[("title", "year")])
class Book(Node):
    """Something to read."""

    isbn: str = predicate(key=True, pattern=r"^[0-9]{4}$", description="Four digits.")
    title: str = predicate(min_length=3, max_length=40)
    year: int | None = predicate(min_value=1450, max_value=2100)
    status: str = predicate(one_of=["ordered", "shelved", "lost"], default="ordered")
    author: Ref[Author] | None = predicate()
    tags: list[str] = predicate(max_count=3)


@shape
class Window(Shape):
    """A stretch of time."""

    start: date = predicate()
    days: int = predicate(min_value=1, max_value=30, default=7)


@capability("books.add")
def add_book(ctx: Context, book: Book) -> Book:
    """Add a book."""
    book.save(ctx)
    return book


@capability("books.rename", idempotent=True)
async def rename_book(ctx: Context, book: Ref[Book], title: str) -> Book:
    """Give a book another title."""
    book.title = title
    book.save(ctx)
    return book


RATING = predicate(min_value=1, max_value=5)
MOOD = predicate(one_of=["happy", "neutral", "unhappy"], default="neutral")
CODE = predicate(pattern="^[a-z]{3}$", required=False)


@capability("books.rate")
async def rate(
    ctx: Context,
    stars: int = RATING,
    mood: str = MOOD,
    code: str | None = CODE,
    window: Window | None = None,
    tags: list[str] = (),
) -> dict[str, object]:
    """Say how good a book is."""
    return {"stars": stars, "mood": mood, "code": code, "days": window and window.days}


@capability("books.shelve")
def shelve(ctx: Context, count: int) -> int:
    """Count shelves, in a thread."""
    assert threading.current_thread() is not threading.main_thread()
    return count


@capability("returns.nothing")
def nothing(ctx: Context) -> None:
    """Return nothing."""


@capability("returns.many")
def many(ctx: Context) -> list[Book]:
    """Return all books."""
    return list(Book.objects(ctx))


@capability("returns.maybe")
def maybe(ctx: Context, isbn: str) -> Book | None:
    """Return a book, if it is there."""
    return Book.objects(ctx).where(isbn=isbn).first()


@capability("returns.text")
def text(ctx: Context, size: int) -> str:
    """Return a long text."""
    return "x" * size


@capability("returns.day")
def day(ctx: Context) -> date:
    """Return a date."""
    return date(2026, 3, 1)


@capability("returns.price")
def price(ctx: Context) -> Decimal:
    """Return a price."""
    return Decimal("12.50")


@capability("returns.stretch")
def stretch(ctx: Context) -> Window:
    """Return a shape."""
    return Window(start=date(2026, 3, 1))


@capability("returns.nonsense")
def nonsense(ctx: Context) -> dict[str, object]:
    """Return what has no JSON form."""
    return {"thread": threading.current_thread()}


@capability("fails.capability")
def fail_on_purpose(ctx: Context) -> None:
    """Say no."""
    raise CapabilityError("the library is closed; come back tomorrow", opens="09:00")


@capability("fails.denied")
def fail_denied(ctx: Context) -> None:
    """Deny."""
    raise DeniedError("not on Sundays")


@capability("fails.budget")
def fail_budget(ctx: Context) -> None:
    """Be out of budget."""
    raise BudgetError("no calls are left today")


@capability("fails.bug")
def fail_bug(ctx: Context) -> None:
    """Be broken."""
    raise RuntimeError("password=hunter2")


@capability("fails.disk")
async def fail_disk(ctx: Context) -> None:
    """Have no disk."""
    raise StorageError("/secret/path is gone")


@capability("waits.long")
async def wait_long(ctx: Context) -> None:
    """Wait until cancelled."""
    await asyncio.sleep(60)


@meta_capability("trails.meta.shop.close", scope="builder", idempotent=True)
def close_shop(ctx: Context) -> None:
    """Close the shop."""


@meta_capability("trails.meta.shop.burn", scope="dev")
def burn_shop(ctx: Context) -> None:
    """Burn it down."""


DECLARED = (
    Author,
    Book,
    Window,
    add_book,
    rename_book,
    rate,
    shelve,
    nothing,
    many,
    maybe,
    text,
    day,
    price,
    stretch,
    nonsense,
    fail_on_purpose,
    fail_denied,
    fail_budget,
    fail_bug,
    fail_disk,
    wait_long,
    close_shop,
    burn_shop,
)

QUERIES = {
    "by_status": """#+ description: Books that have a status.
#+ params:
#+   status: {type: String, one_of: [ordered, shelved, lost]}
#+   year: {type: Int, nullable: true}
SELECT ?book ?title WHERE { ?book a :Book ; :title ?title ; :status $status .
  OPTIONAL { ?book :year ?y } FILTER (!BOUND($year) || ?y = $year) } ORDER BY ?title
""",
    "lose_all": """#+ description: Mark every book as lost.
DELETE { ?b :status ?s } INSERT { ?b :status "lost" } WHERE { ?b a :Book ; :status ?s }
""",
    "hidden": """#+ description: Nobody sees this.
#+ expose: false
SELECT ?b WHERE { ?b a :Book }
""",
}
