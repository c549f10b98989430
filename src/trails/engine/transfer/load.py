"""Load a file into a graph: one commit, or an error with every bad line and its number.

A file is *staged* first: decompressed, parsed, and checked without the graph. Finding and
putting its nodes is done in a write.

What a mode means for a node that the file gives:

``merge``      the node gets the given fields and keeps the others (null clears one);
               a node that is not there is created
``append``     the node must not exist
``overwrite``  the node becomes exactly what the file says, and nodes of the file's types
               that the file does not give are deleted

An edge line about a reference field sets that field, or adds to it where it
holds several, on a node of the file or (merge, append) of the graph; append
changes nothing that is there. Memory does not grow with the file: what must be
known about all of it is in a temporary database.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import IO, Final, Literal

import msgspec

from trails.engine.transfer.items import OPEN, LoadItem
from trails.engine.transfer.ndjson import NdjsonFile
from trails.engine.transfer.source import LoadSource, Progress, no_progress
from trails.engine.transfer.staging import Reference, Staged
from trails.engine.validation.rules import RuleError
from trails.engine.validation.validate import References, reference_coercer
from trails.engine.write.edits import MAX_ERRORS, put_all, remove_all
from trails.engine.write.pending import CHUNK, DraftWrite
from trails.engine.write.puts import Put
from trails.engine.write.write import Write
from trails.errors import ValidationError
from trails.model.iris import Names, id_problem, normal_id, uuid7
from trails.model.kinds import KindError
from trails.model.nodes import NodeState, derive_id, make_handle, split_handle
from trails.model.types import Schema, TypeDescriptor
from trails.model.writes import Mode
from trails.views.nodes.index import Stored

_SUGGESTED: Final = 10
"""Missing nodes that get suggestions; each costs some searches."""


class LoadOutcome(msgspec.Struct, frozen=True):
    """What a load did."""

    nodes: int
    """The number of nodes in the file, including edges."""
    deleted: int = 0


def stage_lines(staged: Staged, source: LoadSource) -> None:
    """Read NDJSON."""
    lines = NdjsonFile(staged.schema, staged.names, staged.ends, staged.problems)
    lines.note_references(source, staged.spool)
    staged.fill(lines.items(source))


def load_lines(
    write: Write,
    schema: Schema,
    names: Names,
    given: Path | IO[bytes] | Iterable[bytes],
    *,
    mode: Mode = "merge",
    progress: Progress = no_progress,
) -> LoadOutcome:
    """Load NDJSON into an open write; raises the problems of the file."""
    with closing(LoadSource(given, progress)) as source, Staged(schema, names) as staged:
        stage_lines(staged, source)
        return put_staged(write, staged, mode)


def put_staged(write: Write | DraftWrite, staged: Staged, mode: Mode) -> LoadOutcome:
    """Put the nodes of a file into an open write; raises their problems."""
    loading = _Loading(write, staged, mode)
    for chunk in staged.chunks():
        if loading.problems.full:
            break
        loading.take(chunk)
    return loading.finish()


class _Loading:
    """A load in progress, for any format: items in, puts out."""

    def __init__(self, write: Write | DraftWrite, staged: Staged, mode: Mode) -> None:
        schema = staged.schema
        self._nodes = write.nodes
        self._schema = schema
        self._mode = mode
        self._place = staged.place
        self._statements = staged.statements
        self._refer = reference_coercer(References(schema, staged.names))
        self._touched: set[str] = set()
        self._count = 0
        self._defaults = {
            each.name: [
                (name, default) for name, default, _ in each.defaults if default is not None
            ]
            for each in schema.types
        }
        self.ends = staged.ends
        self.spool = staged.spool
        self.problems = staged.problems

    # --- taking nodes ----------------------------------------------------------------------

    def take(self, chunk: list[LoadItem]) -> None:
        """Put some nodes."""
        for item in chunk:
            self._touched.add(item.type)
            made_of_ends = self._schema.by_name[item.type].edge is not None
            if item.handle is None and not (item.open and made_of_ends):
                item.handle = self._identify(item)
        chunk = self._once(chunk)
        if self.spool.has_references:
            self._complete(chunk)
        self._put_or_wait(chunk)

    def _put_or_wait(self, items: list[LoadItem]) -> None:
        for item in items:
            if item.open:
                self.spool.wait(item)
        self._put([item for item in items if not item.open])

    def _put(self, items: list[LoadItem]) -> None:
        there: Mapping[str, Stored] = {}
        if self._mode == "merge" or any(item.partial for item in items):
            there = self._nodes.found([each.handle for each in items if each.handle is not None])
        puts = []
        for item in items:
            stored = None if item.handle is None else there.get(item.handle)
            puts.append(self._change(item, None if stored is None else stored.state.values))
        put_all(self._nodes, puts, _ignore, self.problems.found)
        self._count += len(puts)

    def _once(self, items: list[LoadItem]) -> list[LoadItem]:
        """The nodes that the file has not given before."""
        known = [(item.handle, item.number) for item in items if item.handle is not None]
        repeated = {(handle, now): then for handle, now, then in self.spool.see(known)}
        if not repeated:
            return items
        left = []
        for item in items:
            first = None if item.handle is None else repeated.get((item.handle, item.number))
            if first is None:
                left.append(item)
            else:
                where = f"on {self._place} {first} already" if first > 0 else "twice"
                label = f"{self._place} {item.number}: " if first > 0 else ""
                message = f"{item.handle} is given {where}; give each node once"
                self.problems.add(label, message, "unique", item.handle)
        return left

    def _identify(self, item: LoadItem) -> str | None:
        """The id of a node; None if its values are invalid, which putting it reports."""
        descriptor = self._schema.by_name[item.type]
        identifier: str | None
        try:
            if item.id is not None and self._is_partial(descriptor, item.values):
                identifier = normal_id(item.id)
            elif descriptor.key is None and descriptor.edge is None:
                identifier = item.id = item.id or uuid7()
            else:
                identifier = derive_id(descriptor, self._identity(descriptor, item.values))
        except KindError:
            return None
        if identifier is None or id_problem(identifier) is not None:
            return None
        if item.id not in {None, identifier}:
            what = "ends give" if descriptor.edge else "key gives"
            if descriptor.edge and descriptor.key:
                what = "ends and key give"
            message = f"its id is {item.id!r}, but its {what} {identifier!r}"
            self.problems.add(item.whole, message, "immutable_key", item.id)
        return make_handle(item.type, identifier)

    def _identity(
        self, descriptor: TypeDescriptor, values: Mapping[str, object]
    ) -> dict[str, object]:
        """The checked values that the id of a node is derived from."""
        ends = ("source", "target") if descriptor.edge is not None else ()
        found = {end: self._refer(values.get(end)) for end in ends}
        key = descriptor.key
        if key is not None and key.type.row is not None and values.get(key.name) is not None:
            found[key.name] = key.type.row.coerce(values[key.name])
        return found

    def _is_partial(self, descriptor: TypeDescriptor, values: Mapping[str, object]) -> bool:
        """Whether a node is known by id alone, which is enough to merge into a stored one."""
        if self._mode != "merge":
            return False
        if descriptor.edge is not None:
            return values.get("source") is None and values.get("target") is None
        return descriptor.key is not None and values.get(descriptor.key.name) is None

    def _change(self, item: LoadItem, before: Mapping[str, object] | None) -> Put:
        values, handle = item.values, item.handle if item.checked else None
        if before is not None and (self._mode == "merge" or item.partial):
            values, handle = {**before, **values}, None
            if self._statements:
                self._unite(item, before, values)
        elif not self._statements and (defaults := self._defaults[item.type]):
            values = {**dict(defaults), **values}
        if item.added:
            values, handle = {**values, **self._with_edges(item, values)}, None
        mode: Literal["create", "upsert"] = "upsert"
        if self._mode == "append" and not item.partial:
            mode = "create"
        return Put(item.type, values, item.id, mode, None, item.label, handle)

    def _unite(
        self, item: LoadItem, before: Mapping[str, object], values: dict[str, object]
    ) -> None:
        """Statements add to a set, and languages to a text; a field of one value is replaced."""
        fields = self._schema.by_name[item.type].by_name
        for name, given in item.values.items():
            field = fields.get(name)
            if field is not None and field.is_set and isinstance(given, list):
                values[name] = [*before.get(name, ()), *given]  # type: ignore[misc]
            elif field is not None and field.tagged and isinstance(given, dict):
                values[name] = {**before.get(name, {}), **given}  # type: ignore[dict-item]

    # --- edge lines about reference fields ---------------------------------------------------

    def _complete(self, chunk: list[LoadItem]) -> None:
        """Give nodes what edge lines say about them."""
        spelled: dict[str, LoadItem] = {}
        for item in chunk:
            if item.handle is not None:
                spelled |= dict.fromkeys(self.ends.owners(item.handle), item)
        for reference in self.spool.references(list(spelled)):
            self._add(spelled[reference.owner], reference)

    def _add(self, item: LoadItem, reference: Reference) -> None:
        field = self._schema.by_name[item.type].by_name[reference.field]
        targets = item.added.get(field.name, [])
        if not field.many:
            given = targets[0] if targets else item.values.get(field.name)
            if given is not None and (self.ends.exact(given) or given) != reference.target:
                is_open = isinstance(given, str) and given.startswith(OPEN)
                shown = _spell(str(given)) if is_open else repr(given)
                message = (
                    f"{field.name} of {item.handle} is given as {shown} already (see "
                    f"{item.whole.removesuffix(': ')}); it holds one value"
                )
                self.problems.add(f"line {reference.number}: ", message, "max_count")
                return
        item.added.setdefault(field.name, []).append(reference.target)
        item.open = item.open or reference.target.startswith(OPEN)

    def _with_edges(self, item: LoadItem, values: Mapping[str, object]) -> dict[str, object]:
        fields = self._schema.by_name[item.type].by_name
        out: dict[str, object] = {}
        for name, targets in item.added.items():
            current = values.get(name)
            if not fields[name].many:
                out[name] = targets[0]
                taken = item.partial and current not in {None, targets[0]}
                if taken and self._mode == "append":
                    message = (
                        f"{name} of {item.handle} is {current} already, and append changes nothing"
                    )
                    self.problems.add(item.whole, message, "unique", targets[0])
            elif isinstance(current, list | tuple | None):
                out[name] = [*(current or ()), *targets]
        return out

    def _start_in_graph(self) -> Iterator[LoadItem]:
        """The starts of edge lines that the file does not give."""
        for owners in self.spool.owners():
            candidates = {owner: self.ends.candidates(owner) for owner in owners}
            handles = [handle for each in candidates.values() for handle in each]
            given = self.spool.seen(handles)
            there = self._nodes.found(handles)
            for owner, each in candidates.items():
                if any(handle in given for handle in each):
                    continue
                found = [handle for handle in each if handle in there]
                lines = list(self.spool.references([owner]))
                if len(found) == 1 and self._mode != "overwrite":
                    item = self._start(found[0], lines[0].number)
                    for reference in lines:
                        self._add(item, reference)
                    yield item
                    continue
                where = "in the file" if self._mode == "overwrite" else "in the file or the graph"
                for reference in lines:
                    message = f'"from" is {_spell(owner)}, of which there must be one {where}'
                    self.problems.add(f"line {reference.number}: ", message, "reference", owner)

    @staticmethod
    def _start(handle: str, number: int) -> LoadItem:
        type_name, identifier = split_handle(handle)
        item = LoadItem(number, f"line {number}: ", type_name, {}, identifier, handle)
        item.partial = True
        return item

    # --- nodes whose references were open ------------------------------------------------------

    def _settled(self, items: list[LoadItem]) -> list[LoadItem]:
        """Items with open references, resolved now that all nodes of the file are known."""
        wanted = {
            reference: self.ends.candidates(reference)
            for item in items
            for reference in self._open_references(item)
        }
        handles = [handle for each in wanted.values() for handle in each]
        given, there = self.spool.seen(handles), self._nodes.found(handles)
        answers = {
            reference: [handle for handle in each if handle in given or self._stays(handle, there)]
            for reference, each in wanted.items()
        }
        nameless = [item for item in items if item.handle is None]
        for item in items:
            unclear = [each for each in self._open_references(item) if len(answers[each]) != 1]
            if unclear:
                found = answers[unclear[0]]
                if found:
                    why = f"may be {' or '.join(found)}; write it as 'Type/id' or as an IRI"
                else:
                    why = f"is in neither file nor graph{self._suggest(unclear[0])}"
                message = f"{_spell(unclear[0])} {why}"
                self.problems.add(item.whole, message, "reference", unclear[0][1:])
                continue
            chosen = {each: answers[each][0] for each in self._open_references(item)}
            item.values = {name: _close(value, chosen) for name, value in item.values.items()}
            item.added = {
                name: [chosen.get(each, each) for each in targets]
                for name, targets in item.added.items()
            }
            item.open = False
        closed = [item for item in items if not item.open]
        for item in nameless:
            item.handle = None if item.open else self._identify(item)
        again = set(map(id, nameless)) - set(map(id, self._once(nameless)))
        return [item for item in closed if id(item) not in again]

    def _suggest(self, reference: str) -> str:
        """Suggestions for the first few missing nodes."""
        if len(self.problems.found) >= _SUGGESTED:
            return ""
        type_name, _, identifier = reference[1:].partition("/")
        return self._nodes.rules.suggest(type_name, identifier)

    def _open_references(self, item: LoadItem) -> Iterator[str]:
        for field in self._schema.by_name[item.type].fields:
            if field.target is not None:
                given = item.values.get(field.name)
                several = given if isinstance(given, list) else [given]
                for each in (*several, *item.added.get(field.name, ())):
                    if isinstance(each, str) and each.startswith(OPEN):
                        yield each

    def _stays(self, handle: str, there: Mapping[str, Stored]) -> bool:
        gone = self._mode == "overwrite" and handle.partition("/")[0] in self._touched
        return handle in there and not gone

    # --- the end ---------------------------------------------------------------------------------

    def finish(self) -> LoadOutcome:
        """Put waiting nodes, delete what overwriting leaves out, raise the problems."""
        if not self.problems.full:
            if self.spool.has_references:
                starts = iter(self._start_in_graph())
                while some := list(islice(starts, CHUNK)):
                    self._put_or_wait(self._once(some))
            for items in self.spool.waiting():
                self._put(self._settled(items))
        deleted = 0
        if self._mode == "overwrite" and not self.problems.unread:
            deleted = remove_all(self._nodes, self._left_out())
        self._raise_problems()
        return LoadOutcome(self._count, deleted)

    def _left_out(self) -> Iterator[str]:
        """The nodes of the file's types that the file does not give."""
        for type_name in sorted(self._touched):
            states = self._nodes.states(type_name)
            while some := [state.handle for state in islice(states, CHUNK)]:
                given = self.spool.seen(some)
                yield from (handle for handle in some if handle not in given)

    def _raise_problems(self) -> None:
        problems = self.problems
        if not problems.full:  # else the rest of the file, which was not read, may complete it
            self._nodes.rules.settle(problems.found)
        if not problems.found:
            return
        concerned = {
            handle
            for each in problems.found
            if isinstance(each, RuleError)
            for handle in each.nodes
        }
        lines = {
            handle: f"{self._place} {number}: "
            for handle, number in self.spool.seen(sorted(concerned)).items()
            if number > 0
        }
        errors = problems.listed(lines)
        raise ValidationError(errors[:MAX_ERRORS], more=max(0, len(errors) - MAX_ERRORS))


def _close(value: object, chosen: Mapping[str, str]) -> object:
    if isinstance(value, list):
        return [_close(each, chosen) for each in value]
    return chosen.get(value, value) if isinstance(value, str) else value


def _spell(reference: str) -> str:
    if not reference.startswith(OPEN):
        return reference
    type_name, _, identifier = reference[1:].partition("/")
    return f"{type_name} {identifier!r}"


def _ignore(change: Put, state: NodeState) -> None:
    del change, state
