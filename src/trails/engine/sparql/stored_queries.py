"""Read a folder of stored queries, and check each one without data.

A file is a header (``registry.query_headers``) and a SPARQL text. Checked are its parameters, its
form, the classes and fields that it names, and its syntax by the real parser with a sample value
for each parameter. Files are checked independently, so all mistakes of all files are reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec
import pyoxigraph as ox

from trails.engine.sparql.queries import bind_query
from trails.engine.validation.validate import References
from trails.errors import DeclarationError, QueryError
from trails.model.capabilities import StoredQuery
from trails.model.iris import Names
from trails.model.kinds import KINDS, Iri
from trails.model.sparql.terms import Piece, TermScan, Vocabulary, pieces_of
from trails.model.sparql.tokens import MAX_TEXT, Token, query_form, tokenize, update_form
from trails.model.types import REF, PredicateDescriptor, Schema, ValueType
from trails.registry.query_headers import (
    MARK,
    MAX_HEADER,
    HeaderEntry,
    Problem,
    ProblemsError,
    read_header,
    read_keys,
    split_source,
)

_READS: Final = frozenset({"SELECT", "ASK", "CONSTRUCT", "DESCRIBE"})
_CHANGES: Final = frozenset({"INSERT", "DELETE"})
_MANAGES: Final = frozenset({"LOAD", "CLEAR", "DROP", "CREATE", "ADD", "MOVE", "COPY"})


_COMMENT: Final = re.compile(r"#[^\n]*")


def late_header(tokens: list[Token]) -> Iterator[Problem]:
    """Problems by header lines after the header."""
    line = 1
    for token in tokens:
        for comment in _COMMENT.finditer(token.text) if token.kind == "space" else ():
            if comment.group().startswith(MARK):
                yield Problem(
                    "header lines must be together at the top of the file; move it up",
                    line + token.text.count("\n", 0, comment.start()),
                )
        line += token.text.count("\n")


def read_form(pieces: list[Piece], first: int, problems: list[Problem]) -> bool:
    """Whether the text changes data; a text that is neither query nor update is a problem."""
    depth = 0
    found: dict[str, int] = {}
    for piece in pieces:
        depth += (piece.kind == "open") - (piece.kind == "close")
        word = piece.word
        if word == "SERVICE":
            problems.append(
                Problem("SERVICE reaches other servers and is not available", piece.line)
            )
        elif not depth and word in _READS | _CHANGES | _MANAGES:
            found.setdefault(word, piece.line)
    problems += [
        Problem(f"{word} works on whole graphs and is not available; use INSERT and DELETE", line)
        for word, line in found.items()
        if word in _MANAGES
    ]
    reads, changes = found.keys() & _READS, found.keys() & _CHANGES
    if reads and changes:
        message = f"{min(reads)} and {min(changes)} are mixed; a query reads or changes, make two"
        problems.append(Problem(message, max(found.values())))
    elif len(reads) > 1:
        message = f"it has {' and '.join(sorted(reads))}; one file is one query"
        problems.append(Problem(message, max(found.values())))
    elif not found:
        message = "there is no query: use SELECT, ASK, CONSTRUCT or DESCRIBE, or INSERT or DELETE"
        problems.append(Problem(message, first))
    return bool(changes)


def unmatched_params(
    pieces: list[Piece], params: tuple[PredicateDescriptor, ...], header: Mapping[str, HeaderEntry]
) -> Iterator[Problem]:
    """Problems by parameters that only the header or only the text has."""
    declared = {param.name for param in params}
    used: set[str] = set()
    for piece in pieces:
        if piece.kind == "variable" and piece.text.startswith("$"):
            name = piece.text[1:]
            if name not in declared and name not in used:
                message = (
                    f"${name} is not declared; add '{name}: <type>' to params, "
                    f"or write ?{name} if it is a variable"
                )
                yield Problem(message, piece.line)
            used.add(name)
    entries = header["params"].mapping if "params" in header else None
    for name in sorted(declared - used):
        line = entries[name].line if entries else 1
        message = f"is not in the query; write it there as ${name}, or remove it"
        yield Problem(message, line, f"params.{name}")


def uncounted_params(
    pieces: list[Piece], params: tuple[PredicateDescriptor, ...]
) -> Iterator[Problem]:
    """Problems by parameters after LIMIT and OFFSET that are not counts."""
    by_name = {param.name: param for param in params}
    before = ""
    for piece in pieces:
        param = by_name.get(piece.text[1:]) if piece.kind == "variable" else None
        if param is not None and before in {"LIMIT", "OFFSET"}:
            low = param.min_value
            if param.type.kind != "Int" or not isinstance(low, int) or low < 0:
                message = f"is used after {before}; declare it as '{{ type: Int, min_value: 0 }}'"
                yield Problem(message, piece.line, f"params.{param.name}")
        before = piece.word


def columns(pieces: list[Piece]) -> tuple[str, ...]:
    """The variables of the outermost SELECT; of CONSTRUCT and DESCRIBE, the parts of a triple."""
    depth = 0
    selecting = False
    names: list[str] = []
    last = ""
    for piece in pieces:
        if not depth and piece.word in {"CONSTRUCT", "DESCRIBE"} and not selecting:
            return ("subject", "predicate", "object")
        if not depth and piece.word == "SELECT":
            selecting = True
        elif selecting:
            if piece.text == "{" or (not depth and piece.word in {"WHERE", "FROM"}):
                break
            if piece.kind == "variable":
                last = piece.text[1:]
                if not depth:
                    names.append(last)
            elif piece.text == ")" and depth == 1:
                names.append(last)  # (expression AS ?name)
            elif piece.text == "*" and not depth:
                return ()
        depth += (piece.kind == "open") - (piece.kind == "close")
    return tuple(names)


MAX_QUERIES: Final = 1000
SUFFIX: Final = ".rq"


class Check(Protocol):
    """Parses a text and returns the error, if any."""

    def __call__(self, text: str, names: Names, *, update: bool) -> str | None:
        """The parser's error, or None."""


class LoadedQueries(msgspec.Struct, frozen=True):
    """The valid queries of a folder, and the problems of the others."""

    queries: tuple[StoredQuery, ...]
    problems: tuple[Problem, ...]


def check_in_process(text: str, names: Names, *, update: bool) -> str | None:
    """Parse by running on an empty store in memory."""
    store = ox.Store()
    try:
        if update:
            store.update(text, base_iri=names.nodes, prefixes=names.prefixes)
        else:
            store.query(text, base_iri=names.nodes, prefixes=names.prefixes)
    except (SyntaxError, ValueError, RuntimeError, OSError) as error:
        return str(error)
    return None


def load_queries(
    folder: Path,
    schema: Schema,
    names: Names,
    check: Check = check_in_process,
    *,
    changed: Mapping[str, str] | None = None,
) -> tuple[StoredQuery, ...]:
    """All stored queries of a folder, or one error with every problem.

    ``changed``: name of a file → the text that it will have.
    """
    loaded = read_queries(folder, schema, names, check, changed=changed)
    if loaded.problems:
        spelled = [str(problem) for problem in loaded.problems]
        shown = "; ".join(spelled[:20])
        more = f"; and {len(spelled) - 20} more" if len(spelled) > 20 else ""
        first = loaded.problems[0]
        where = f"{first.file}:{first.line}"
        raise DeclarationError(shown + more, problems=spelled, where=where)
    return loaded.queries


def read_queries(
    folder: Path,
    schema: Schema,
    names: Names,
    check: Check = check_in_process,
    *,
    changed: Mapping[str, str] | None = None,
) -> LoadedQueries:
    """The valid stored queries of a folder, and the problems of the others."""
    queries: list[StoredQuery] = []
    problems: list[Problem] = []
    reader = _Reader(schema, names, check)
    try:
        paths = sorted(folder.glob("*" + SUFFIX)) if folder.is_dir() else []
    except OSError as error:
        message = f"the folder can't be read: {error.strerror or error}"
        return LoadedQueries((), (Problem(message, file=folder.name),))
    if len(paths) > MAX_QUERIES:
        message = f"it has more than {MAX_QUERIES} queries; split them over several graphs"
        return LoadedQueries((), (Problem(message, file=folder.name),))
    for path in paths:
        file = f"{folder.name}/{path.name}"
        try:
            text = (changed or {}).get(path.name)
            text = _read_text(path, folder) if text is None else text
            queries.append(reader.read(text, path.stem, file))
        except ProblemsError as error:
            problems.extend(
                msgspec.structs.replace(each, file=_printable(file)) for each in error.problems
            )
    return LoadedQueries(tuple(queries), tuple(problems))


def check_text(
    text: str, name: str, file: str, schema: Schema, names: Names, check: Check
) -> LoadedQueries:
    """The query that a file with this text would be, or its problems."""
    try:
        return LoadedQueries((_Reader(schema, names, check).read(text, name, file),), ())
    except ProblemsError as error:
        found = (msgspec.structs.replace(each, file=_printable(file)) for each in error.problems)
        return LoadedQueries((), tuple(found))


def _printable(file: str) -> str:
    return file if file.isprintable() else ascii(file)


def _read_text(path: Path, folder: Path) -> str:
    """The text of a file; anything but a plain file inside the folder is refused."""
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ProblemsError(
                Problem("is a link that leads out of the folder; put the file itself here")
            )
        if not path.is_file():
            raise ProblemsError(Problem("is not a file; remove it or rename it"))
        limit = MAX_TEXT + MAX_HEADER
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "its links form a cycle"
        raise ProblemsError(Problem(f"can't be read: {reason}")) from None
    if len(content) > limit:
        raise ProblemsError(
            Problem(f"is longer than {limit // 1024} KiB; shorten it, or split it in two")
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ProblemsError(Problem("is not UTF-8; save it in that encoding", line)) from None


class _Reader:
    """Turns the text of a file into a StoredQuery."""

    def __init__(self, schema: Schema, names: Names, check: Check) -> None:
        self._types = tuple(schema.by_name)
        self._references = References(schema, names)
        self._vocabulary = Vocabulary(schema, names)
        self._names = names
        self._check = check

    def read(self, text: str, stem: str, file: str) -> StoredQuery:
        """The query, or ProblemsError with all its problems."""
        source = split_source(text)
        header = read_header(source.header)
        problems: list[Problem] = []
        query = read_keys(header, stem, self._types, problems)
        problems += self._wrong_defaults(query, header)
        try:
            tokens = tokenize(source.body)
        except QueryError as error:
            place = _LINE.search(error.message)
            line = int(place[1]) if place else source.lines + 1
            raise ProblemsError(*problems, Problem(error.message, line)) from None
        pieces = pieces_of(tokens)
        first = source.lines + 1
        problems += late_header(tokens)
        mutation = read_form(pieces, first, problems)
        if not any(problem.key.startswith("params") for problem in problems):
            problems += unmatched_params(pieces, query.params, header)
            problems += uncounted_params(pieces, query.params)
        for named, message in self._vocabulary.unknown(TermScan(pieces, self._names).named):
            problems.append(Problem(message, named.line))
        if not problems:
            try:
                _ = update_form(tokens) if mutation else query_form(tokens)
            except QueryError as error:
                problems.append(Problem(error.message, first))
        if not problems:
            whole = msgspec.structs.replace(query, text=source.body)
            problems += self._parse(whole, first, update=mutation)
        if problems:
            raise ProblemsError(*sorted(problems, key=lambda problem: problem.line))
        return msgspec.structs.replace(
            query,
            text=source.body.lstrip("\n"),
            mutation=mutation,
            columns=columns(pieces),
            source=file,
        )

    def _wrong_defaults(
        self, query: StoredQuery, header: Mapping[str, HeaderEntry]
    ) -> Iterator[Problem]:
        """Problems by defaults that can't name a node of the type; data is not looked at."""
        entries = header["params"].mapping if "params" in header else None
        for param in query.params:
            if param.target is None or param.default is None:
                continue
            line = entries[param.name].line if entries else 1
            given = param.default if isinstance(param.default, tuple) else (param.default,)
            for value in given:
                problem = self._references.problem(value, param.target)
                if problem is not None:
                    yield Problem(f"default={value!r}: {problem}", line, f"params.{param.name}")

    def _parse(self, query: StoredQuery, first: int, *, update: bool) -> Iterator[Problem]:
        """Errors of the real parser, with values for all parameters and then with nulls."""
        values = {param.name: self._sample(param) for param in query.params}
        nothing = {
            param.name: value if param.required else None
            for param, value in zip(query.params, values.values(), strict=True)
            if param.default is None
        }
        trials = [(values, "")]
        if any(value is None for value in nothing.values()):
            trials.append((values | nothing, " when its nullable parameters are null"))
        for given, when in trials:
            try:
                text = bind_query(query, given)
            except QueryError as error:
                yield Problem(error.message, first)
                return
            message = self._check(text, self._names, update=update)
            if message is not None:
                yield _parser_problem(message, when, first)
                return

    def _sample(self, param: PredicateDescriptor) -> object:
        one = self._sample_scalar(param.type.scalar)
        return (one, one) if param.many else one

    def _sample_scalar(self, value_type: ValueType) -> object:
        if value_type.kind == REF:
            return Iri(f"{self._names.nodes}{value_type.target}/sample")
        if value_type.kind == "Vector":
            return (0.0,) * (value_type.dimension or 1)
        return KINDS[value_type.kind].example


_LINE: Final = re.compile(r"\bline (\d+)")
_PLACE: Final = re.compile(r"error at (\d+):(\d+): (.*)", re.DOTALL)


def _parser_problem(message: str, when: str, first: int) -> Problem:
    match = _PLACE.search(message)
    if match is None:
        return Problem(f"the query can't be parsed{when}: {message}", first)
    line, column, rest = match.groups()
    return Problem(f"the query can't be parsed{when}: {rest} (column {column})", int(line))
