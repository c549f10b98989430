"""The text of a module, and where things are in it.

``ast`` says where: columns are bytes of UTF-8 there, and characters here. A text may have any line
ends, and a byte order mark. Neighbours: ``imports`` and ``modules`` edit.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from sys import maxsize
from typing import Final, NoReturn, Self

from trails.errors import SourceError

LINE_END: Final = re.compile(r"\r\n|\r|\n")
BLANK: Final = re.compile(r"[ \t\f]*(?:\r\n|\r|\n)")
_BLANK_END: Final = re.compile(r"(\r\n|\r|\n)[ \t\f]*(?:\r\n|\r|\n)\Z")
FRAMEWORK: Final = "trails"
Splice = tuple[int, int, str]
"""Where a text is replaced, from and to, and by what."""
Statement = ast.stmt | ast.expr
Reader = Callable[[str], str | None]
"""A path of the project → its text, None if there is no such file."""


class SourceText:
    """The text of a module as a tree; it does not change."""

    def __init__(
        self, path: str, text: str, width: int, origins: Sequence[int] | None = None
    ) -> None:
        self.path = path
        self.text = text
        self.width = width
        self._begin = 1 if text.startswith("\ufeff") else 0
        try:
            self.tree = ast.parse(text[self._begin :])
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None)
            where = path if line is None else f"{path}:{line}"
            raise SourceError(
                f"{where} can't be read as Python ({getattr(error, 'msg', error)}); correct it, "
                "then retry",
                path=path,
                lines=[] if line is None else [line],
            ) from None
        ends = (match.end() for match in LINE_END.finditer(text, self._begin))
        self._starts = [self._begin, *ends]
        self._origins = origins or range(1, len(self._starts) + 1)
        first = LINE_END.search(text)
        self.newline = first[0] if first else "\n"

    # --- positions -----------------------------------------------------------

    def offset(self, line: int, column: int) -> int:
        """The place in the text; ``ast`` counts columns in bytes of UTF-8."""
        start = self._starts[line - 1]
        return start + len(self.line(line).encode()[:column].decode())

    def line(self, line: int) -> str:
        end = self._starts[line] if line < len(self._starts) else len(self.text)
        return self.text[self._starts[line - 1] : end]

    def span(self, node: Statement) -> tuple[int, int]:
        """Where a statement or expression begins and ends."""
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return self.offset(node.lineno, node.col_offset), self.offset(end_line, end_column)

    def source(self, node: Statement) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    @cached_property
    def _comments(self) -> list[tuple[int, int]]:
        """(line, column) of each comment."""
        reader = io.StringIO(self.text[self._begin :]).readline
        tokens = tokenize.generate_tokens(reader)
        return [each.start for each in tokens if each.type == tokenize.COMMENT]

    def has_comment(self, node: Statement) -> bool:
        start, end = self.span(node)
        return any(
            start <= self._starts[line - 1] + column < end for line, column in self._comments
        )

    def whole_lines(self, node: Statement) -> tuple[int, int]:
        """From the beginning of a statement's first line to the end of its last, alone on them."""
        begin = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
        start, (_, end) = self._starts[begin - 1], self.span(node)
        last = node.end_lineno or node.lineno
        after = self._starts[last] if last < len(self._starts) else len(self.text)
        head = self.text[start : self.offset(begin, self._column(node, begin))]
        tail = self.text[end:after].strip()
        if head.strip(" \t\f@") or (tail and not tail.startswith("#")):
            self.refuse(node, "it shares a line with another statement")
        return start, after

    @staticmethod
    def _column(node: Statement, line: int) -> int:
        if node.lineno == line:
            return node.col_offset
        decorators: Iterable[ast.expr] = getattr(node, "decorator_list", ())
        return next(each.col_offset for each in decorators if each.lineno == line)

    def refuse(self, node: Statement, reason: str, wanted: str = "") -> NoReturn:
        """Name the lines that a person has to change."""
        first, last = self.origin(node.lineno), self.origin(node.end_lineno or node.lineno)
        lines = f"line {first}" if last == first else f"lines {first} to {last}"
        what = f": {wanted}" if wanted else ""
        raise SourceError(
            f"{self.path}: {lines} can't be changed automatically, because {reason}; change "
            f"{'it' if last == first else 'them'} by hand{what}",
            path=self.path,
            lines=list(range(first, last + 1)),
        )

    def spliced(self, splices: Iterable[Splice]) -> Self:
        """The module with texts replaced; they do not overlap."""
        parts: list[str] = []
        kept: list[tuple[int, int]] = []  # (where a part begins now, where it began)
        at = size = 0
        for start, end, new in sorted(splices):
            kept.append((size, at))
            parts += [self.text[at:start], new.replace("\n", self.newline)]
            size += sum(map(len, parts[-2:]))
            at = end
        kept.append((size, at))
        text = "".join((*parts, self.text[at:]))
        if text == self.text:
            return self
        return type(self)(self.path, text, self.width, self._trace(text, kept))

    def _trace(self, text: str, kept: list[tuple[int, int]]) -> list[int]:
        """The number that each line of a text had at first; a new line has a neighbour's."""
        ends = [match.end() for match in LINE_END.finditer(text, self._begin)]
        found = []
        for start in (self._begin, *ends):
            now, then = kept[max(bisect_right(kept, (start, maxsize)) - 1, 0)]
            line = bisect_right(self._starts, then + start - now)
            found.append(self._origins[min(max(line, 1), len(self._starts)) - 1])
        return found

    def origin(self, line: int) -> int:
        """The number of a line before all edits, which is the one that a person sees."""
        return self._origins[line - 1]

    # --- names ---------------------------------------------------------------

    @cached_property
    def imports(self) -> dict[str, str]:
        """Local name → name in ``trails``."""
        return {
            alias.asname or alias.name: alias.name
            for node in self.tree.body
            if isinstance(node, ast.ImportFrom) and is_framework(node.module) and not node.level
            for alias in node.names
        }

    @cached_property
    def has_future_annotations(self) -> bool:
        """Whether annotations may name what is declared later."""
        return any(
            isinstance(node, ast.ImportFrom)
            and node.module == "__future__"
            and any(alias.name == "annotations" for alias in node.names)
            for node in self.tree.body
        )

    @cached_property
    def bindings(self) -> dict[str, ast.stmt]:
        """Names of the module, each with the statement that binds it."""
        found: dict[str, ast.stmt] = {}
        for node in self.tree.body:
            for name in _bound_by(node):
                found[name] = node
        return found

    def framework_name(self, node: ast.expr) -> str:
        """Which name of ``trails`` an expression is; empty if it is none."""
        if isinstance(node, ast.Call):
            node = node.func
        if isinstance(node, ast.Name):
            return self.imports.get(node.id, "")
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            modules = {
                alias.asname or alias.name
                for each in self.tree.body
                if isinstance(each, ast.Import)
                for alias in each.names
                if alias.name == FRAMEWORK
            }
            return node.attr if node.value.id in modules else ""
        return ""

    def mentions(self, word: str) -> list[int]:
        """The lines in which a word occurs, also in comments and texts."""
        pattern = re.compile(rf"(?<![\w]){re.escape(word)}(?![\w])")
        return [
            number
            for number in range(1, len(self._starts) + 1)
            if pattern.search(self.line(number))
        ]

    def separated(self, at: int) -> str:
        return "" if self.text[:at].endswith(("\n", "\r")) else "\n"


def is_framework(module: str | None) -> bool:
    return module is not None and module.split(".")[0] == FRAMEWORK


def _bound_by(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.Import() | ast.ImportFrom():
            yield from (each.asname or each.name.split(".")[0] for each in node.names)
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            yield node.name
        case ast.Assign():
            for target in node.targets:
                yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.If() | ast.Try() | ast.With():
            for each in ast.iter_child_nodes(node):
                if isinstance(each, ast.stmt):
                    yield from _bound_by(each)


def is_head(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom) or (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def without_blank_end(text: str) -> str:
    """A text without the blank lines at its end; its last line keeps its line end."""
    while (shorter := _BLANK_END.sub(r"\1", text)) != text:
        text = shorter
    return text
