"""Add and remove imports of a module, in the sections and the order that isort and ruff use."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Self

from trails.projections.python.layout import import_lines
from trails.projections.python.source import (
    BLANK,
    FRAMEWORK,
    SourceText,
    is_framework,
    is_head,
    joined,
    without_blank_end,
)


class ImportingModule(SourceText):
    """A module whose imports can be changed."""

    def ensure_imports(self, names: Mapping[str, Iterable[str]]) -> Self:
        """Import names that the module does not have yet."""
        module = self
        for home in sorted(names):
            missing = []
            for name in sorted(names[home]):
                bound = module.bindings.get(name)
                if bound is None:
                    missing.append(name)
                elif not _imports_from(bound, home):
                    module.refuse(
                        bound, f"it gives {name} another meaning than {home}.{name}", "rename it"
                    )
            if missing:
                module = module.add_names(home, missing)
        return module

    def ensure_modules(self, statements: Iterable[str]) -> Self:
        """Add ``import …`` statements that the module does not have yet."""
        module = self
        for statement in sorted(statements):
            (alias,) = ast.parse(statement).body[0].names  # type: ignore[attr-defined]
            if (alias.asname or alias.name) not in module.bindings:
                module = module.add_statement(alias.name, [statement], is_from=False)
        return module

    def add_names(self, home: str, names: list[str]) -> Self:
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and node.module == home and not node.level:
                if self.has_comment(node) or any(alias.name == "*" for alias in node.names):
                    continue
                self.whole_lines(node)
                return self.spliced([(*self.span(node), self.write_import(node, names))])
        return self.add_statement(home, import_lines(home, names, self.width), is_from=True)

    def write_import(
        self, node: ast.ImportFrom, more: Iterable[str] = (), without: str | None = None
    ) -> str:
        """The text of an import with more names, or without one; its form stays."""
        given = [
            each.name + (f" as {each.asname}" if each.asname else "")
            for each in node.names
            if each.name != without
        ]
        is_split = node.end_lineno != node.lineno and re.search(r",\s*\)\Z", self.source(node))
        width = 0 if is_split else self.width
        return "\n".join(import_lines(node.module or "", [*given, *more], width))

    def add_statement(self, home: str, lines: list[str], *, is_from: bool) -> Self:
        """Insert an import in its section, in order."""
        head = self._head_statements()
        nodes = [each for each in head if isinstance(each, ast.Import | ast.ImportFrom)]
        key = (_section(home), is_from, home.lower())
        earlier = [each for each in nodes if _import_order(each) <= key]
        later = [each for each in nodes if _import_order(each) > key]
        code = joined(lines)
        is_first = not earlier or _import_order(earlier[-1])[0] != key[0]
        if is_first and later and _import_order(later[0])[0] == key[0]:
            at = self.whole_lines(later[0])[0]
            return self.spliced([(at, at, code)])
        if earlier:
            at = self.whole_lines(earlier[-1])[1]
            return self.spliced([(at, at, self.separated(at) + "\n" * is_first + code)])
        if later:
            at = self.whole_lines(later[0])[0]
            return self.spliced([(at, at, f"{code}\n")])
        if head:
            at = self.whole_lines(head[-1])[1]
            return self.spliced([(at, at, self.separated(at) + "\n" + code)])
        following = self.text[self._begin :]
        end = "\n\n" if following.strip() else ""
        return self.spliced([(self._begin, self._begin, code + end)])

    def _head_statements(self) -> list[ast.stmt]:
        """The docstring and the imports at the beginning of the module."""
        found = []
        for each in self.tree.body:
            if not is_head(each):
                break
            found.append(each)
        return found

    def used_imports(self) -> list[str]:
        """The names that are imported and used."""
        return [
            name
            for name, node in self.bindings.items()
            if isinstance(node, ast.ImportFrom) and self.is_used(name, node)
        ]

    def is_used(self, name: str, node: ast.stmt) -> bool:
        first, last = node.lineno, node.end_lineno or node.lineno
        return any(not first <= line <= last for line in self.mentions(name))

    def drop_unused(self, names: Iterable[str]) -> Self:
        """Remove imports of names that nothing uses any more."""
        module = self
        for name in names:
            node = module.bindings.get(name)
            if not isinstance(node, ast.ImportFrom) or module.has_comment(node):
                continue
            if module.is_used(name, node):
                continue
            if len(node.names) > 1:
                text = module.write_import(node, without=name)
                module = module.spliced([(*module.span(node), text)])
            else:
                start, end = module.whole_lines(node)
                rest = module.text[end:]
                if not rest or BLANK.match(rest):  # the blank lines before it have no use then
                    start = len(without_blank_end(module.text[:start]))
                module = module.spliced([(start, end, "")])
        return module


def _imports_from(node: ast.stmt, home: str) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == home or (is_framework(node.module) and home == FRAMEWORK)
    return False


def _section(module: str) -> int:
    root = module.split(".", maxsplit=1)[0]
    return 0 if root == "__future__" else 1 if root in sys.stdlib_module_names else 2


def _import_order(node: ast.Import | ast.ImportFrom) -> tuple[int, bool, str]:
    if isinstance(node, ast.Import):
        name = node.names[0].name
        return _section(name), False, name.lower()
    name = node.module or ""
    return (3 if node.level else _section(name)), True, name.lower()
