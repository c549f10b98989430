"""Checkouts: a branch, or the graph as of one commit, with what is needed to read and write it.

All checkouts share the log and the views; each has its own node index, types and head. The errors
for branches and commits that do not exist are here as well: they are the same for those that a
caller may not use, and suggest only names that it may see (``known``).
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from trails.engine.validation.rules import RuleBook
from trails.engine.validation.validate import Validator
from trails.errors import NotFoundError, SchemaMismatchError
from trails.imports import later
from trails.model.caches import LRUCache
from trails.model.history import Head
from trails.model.iris import Names
from trails.model.types import Schema
from trails.views.nodes.file import NodeFile
from trails.views.nodes.index import NodeIndex

if TYPE_CHECKING:
    from trails.model.sparql import terms
    from trails.model.sparql.terms import Vocabulary
    from trails.views import terms as views_terms
    from trails.views.terms import Terms
else:
    terms = later("trails.model.sparql.terms")
    views_terms = later("trails.views.terms")

MAIN: Final = "main"
"""The branch that every graph has."""
SNAPSHOT: Final = "@"
"""How the names of snapshots begin; no branch's does."""


_BIRTHS: Final = count(1)


def refuse_unknown_kinds(schema: Schema) -> None:
    """Refuse types of a plugin that is not there: values can't be read without their kind."""
    unknown = schema.unknown_kinds()
    if unknown:
        kinds = ", ".join(f"{name} ({field})" for name, field in unknown.items())
        raise SchemaMismatchError(
            f"stored types use kinds that no plugin here provides: {kinds}; install the plugin and "
            "name it in [project] plugins. The data is unchanged",
            kinds=list(unknown),
        )


class CompiledSchema:
    """What a schema means for statements, values and rules; made once a schema."""

    def __init__(self, schema: Schema, names: Names) -> None:
        refuse_unknown_kinds(schema)
        self.schema = schema
        self._names = names

    # Each is made when it is first used: a process that reads one page needs none.

    @cached_property
    def terms(self) -> Terms:
        """Its nodes as statements, and back."""
        return views_terms.Terms(self.schema, self._names)

    @cached_property
    def validator(self) -> Validator:
        """What its values have to be."""
        return Validator(self.schema, self._names)

    @cached_property
    def rules(self) -> RuleBook:
        """What has to hold between its nodes."""
        return RuleBook(self.schema)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Its classes and fields, as queries name them."""
        return terms.Vocabulary(self.schema, self._names)


_compiled: Final[LRUCache[tuple[str, Names], CompiledSchema]] = LRUCache(64)


def compile_once(schema: Schema, names: Names) -> CompiledSchema:
    """What a schema means that no checkout has, such as one with parts taken out."""
    return _compiled.get((schema.digest, names), lambda: CompiledSchema(schema, names))


class Misfit(NamedTuple):
    """Types that the data of a branch did not fit."""

    schema: str
    reason: str
    until: float
    """The moment from which it is worth another try."""


class Checkout:
    """One branch or snapshot."""

    def __init__(self, file: NodeFile, name: str, folder: Path | None, head: Head) -> None:
        self.name = name
        self.fixed = name.startswith(SNAPSHOT)
        """Whether this is a snapshot, which never changes."""
        self.born = next(_BIRTHS)
        """Distinguishes it from an earlier checkout of the same name."""
        self.folder = folder
        """Where its own files are; None in memory."""
        self.nodes = NodeIndex(file, name)
        self.head = head
        """Where it is, as far as readers can see.

        It moves after the views have, so what is read later than a head is never older
        than it: a compare-and-swap against it can't miss a write.
        """
        self.compiled: CompiledSchema
        self.schema: Schema
        """Its types."""
        self.misfit: Misfit | None = None
        self.own_types: tuple[tuple[str, str], bool] | None = None
        """Its types and those of ``main`` → whether they were changed here."""

    def use(self, compiled: CompiledSchema) -> None:
        """Read and write with these types from now on."""
        self.compiled = compiled
        self.schema = compiled.schema
        self.nodes.follow(compiled.schema)

    @property
    def terms(self) -> Terms:
        """Its nodes as statements."""
        return self.compiled.terms

    @property
    def validator(self) -> Validator:
        """What values its types allow."""
        return self.compiled.validator

    @property
    def rules(self) -> RuleBook:
        """What its types say about other nodes."""
        return self.compiled.rules


PREFIX: Final = 8
"""Digits of a commit's id that suffice where they are unique."""
_SHOWN: Final = 40
"""Branches that a message offers at most."""


def unknown_branch(name: str, known: Collection[str], more: str = "") -> NotFoundError:
    """There is no such branch."""
    message = f"there is no branch {name[:100]!r}; {_hint(name, known)}{more}"
    return NotFoundError(message, branch=name[:100])


def unknown_reference(reference: str, known: Collection[str]) -> NotFoundError:
    """There is no branch or commit of that name."""
    message = f"there is no branch or commit {reference[:100]!r}; {_hint(reference, known)}"
    return NotFoundError(message, reference=reference[:100])


def unknown_commit(reference: str) -> NotFoundError:
    """There is no such commit."""
    return NotFoundError(
        f"there is no commit {reference[:100]!r}; give an id, or at least its first "
        f"{PREFIX} digits, from the list of commits",
        commit=reference[:100],
    )


def _hint(name: str, known: Collection[str]) -> str:
    if not known:
        return "there is none"
    near = get_close_matches(name, known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    more = " and more" if len(known) > _SHOWN else ""
    return f"there are {', '.join(sorted(known)[:_SHOWN])}{more}"
