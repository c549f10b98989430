"""Edit a module that a person wrote, and keep everything else in it byte for byte.

Texts are spliced where ``ast`` says: comments, order, line ends and formatting stay. Each edit
gives a new module. What can't be edited safely (a class made by a function, several statements on a
line, comments inside of what would be replaced) raises SourceError, which names the lines to
change by hand.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Self

from trails.errors import SourceError
from trails.projections.python.imports import ImportingModule
from trails.projections.python.layout import Code, call, docstring, lay_out
from trails.projections.python.source import (
    BLANK,
    LINE_END,
    Splice,
    Statement,
    is_head,
    joined,
    without_blank_end,
)

_TYPES: Final = frozenset({"node_type", "edge_type", "shape"})
_FUNCTIONS: Final = frozenset({"capability", "meta_capability", "policy_rule"})


class SourceModule(ImportingModule):
    """A module whose declarations can be changed."""

    def decorator(self, node: ast.ClassDef | ast.FunctionDef) -> ast.expr | None:
        """The decorator that declares a class or function."""
        known = _TYPES if isinstance(node, ast.ClassDef) else _FUNCTIONS
        found = (each for each in node.decorator_list if self.framework_name(each) in known)
        return next(found, None)

    def find_class(self, name: str) -> ast.ClassDef | None:
        """The class statement of a type; None if the module has none."""
        nodes = [each for each in self.tree.body if isinstance(each, ast.ClassDef)]
        found = [each for each in nodes if each.name == name]
        if len(found) > 1:
            self.refuse(found[1], f"{name} is declared twice")
        if found and self.decorator(found[0]) is None:
            self.refuse(found[0], f"{name} is not declared with a decorator of trails")
        if not found and isinstance(bound := self.bindings.get(name), ast.Assign | ast.AnnAssign):
            self.refuse(bound, f"{name} is not a class statement")
        return found[0] if found else None

    def is_defined_before(self, name: str, node: ast.stmt | None) -> bool:
        """Whether a class statement can name a class without quotes."""
        bound = self.bindings.get(name)
        return bound is not None and (node is None or bound.lineno < node.lineno)

    def _class(self, name: str) -> ast.ClassDef:
        found = self.find_class(name)
        if found is None:
            raise SourceError(
                f"{self.path} has no class {name}; declare it there, or change it where it is "
                "declared",
                path=self.path,
                lines=[],
            )
        return found

    def add_class(self, lines: Sequence[str]) -> Self:
        """Add a class after the last declared type."""
        return self._add(lines, self._last(ast.ClassDef))

    def add_function(self, lines: Sequence[str]) -> Self:
        """Add a function after the last capability, or after the types."""
        return self._add(lines, self._last(ast.FunctionDef) or self._last(ast.ClassDef))

    def _last(self, kind: type[ast.ClassDef | ast.FunctionDef]) -> ast.stmt | None:
        nodes = [each for each in self.tree.body if isinstance(each, kind)]
        return next((each for each in reversed(nodes) if self.decorator(each) is not None), None)

    def _add(self, lines: Sequence[str], anchor: ast.stmt | None) -> Self:
        if anchor is None:
            head = [each for each in self.tree.body if is_head(each)]
            anchor = head[-1] if head else None
        at = len(self.text) if anchor is None else self.whole_lines(anchor)[1]
        if anchor is None and self.tree.body:
            at = self._starts[self.tree.body[0].lineno - 1]
        before, after = self.text[:at], self.text[at:]
        start = "" if before in {"", "\ufeff"} else "\n\n"
        if start and not before.endswith(("\n", "\r")):
            start = "\n\n\n"
        blank = 0
        while match := BLANK.match(after):
            after = after[match.end() :]
            blank += 1
        end = "\n" * max(0, 2 - blank) if after else ""
        return self.spliced([(at, at, f"{start}{joined(lines)}{end}")])

    def remove_class(self, name: str) -> Self:
        """Remove a class; ``refuse_uses`` checks that nothing else names it."""
        node = self._class(name)
        start, end = self.whole_lines(node)
        start = len(without_blank_end(self.text[:start]))
        rest = self.text[end:]
        gap = "" if not rest or BLANK.match(rest) else "\n\n"
        return self.spliced([(start, end, gap)])

    def refuse_uses(self, name: str) -> None:
        """Refuse that a class is removed while the module uses it elsewhere."""
        used = [self.origin(line) for line in self.uses(name)]
        if used:
            raise SourceError(
                f"{self.path} uses {name} on {_spell_lines(used)}; remove these uses by hand, then "
                f"remove {name}",
                path=self.path,
                lines=used,
            )

    def uses(self, name: str) -> list[int]:
        """The lines that use a name of the module, in code or in a quoted annotation."""
        return sorted({line for line, _, _ in self._references(name)})

    def rename_class(self, name: str, to: str) -> Self:
        """Rename a class, and each use of it in this module."""
        if to in self.bindings:
            self.refuse(self.bindings[to], f"{to} is used here already")
        splices: list[Splice] = []
        for line, start, end in self._references(name):
            if self.text[start:end] != name:
                raise SourceError(
                    f"{self.path}: line {self.origin(line)} uses {name} in a way that can't be "
                    f"renamed automatically; write {to} there by hand",
                    path=self.path,
                    lines=[self.origin(line)],
                )
            splices.append((start, end, to))
        return self.spliced(splices)

    def _references(self, name: str) -> Iterator[tuple[int, int, int]]:
        """(line, from, to) of each use of a name: its class, names, quoted types, imports."""
        for node in ast.walk(self.tree):
            match node:
                case ast.ClassDef() if node.name == name:
                    yield self._named(node, name)
                case ast.Name(id=found) if found == name:
                    start, end = self.span(node)
                    yield node.lineno, start, end
                case ast.ImportFrom():
                    yield from self._imported(node, name)
        for text in self._type_texts():
            for match in re.finditer(rf"\b{re.escape(name)}\b", self.source(text)):
                start = self.span(text)[0]
                yield text.lineno, start + match.start(), start + match.end()

    def _named(self, node: ast.ClassDef, name: str) -> tuple[int, int, int]:
        start, end = self.span(node)
        match = re.compile(r"class\s+").match(self.text, start, end)
        at = match.end() if match else start
        return node.lineno, at, at + len(name)

    def _imported(self, node: ast.ImportFrom, name: str) -> Iterator[tuple[int, int, int]]:
        for alias in node.names:
            if alias.name == name:
                start = self.offset(alias.lineno, alias.col_offset)
                yield alias.lineno, start, start + len(name)

    def _type_texts(self) -> Iterator[ast.Constant]:
        """String literals that name types: in annotations, in decorators, and in ``__all__``."""
        places: list[ast.AST] = []
        for node in ast.walk(self.tree):
            match node:
                case ast.AnnAssign(annotation=annotation) | ast.arg(annotation=annotation):
                    places += [annotation] if annotation is not None else []
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    places += [node.returns] if node.returns is not None else []
                case ast.ClassDef():
                    places += [
                        keyword.value
                        for each in node.decorator_list
                        if isinstance(each, ast.Call)
                        for keyword in each.keywords
                        if keyword.arg in {"source", "target", "extends"}
                    ]
                case ast.Assign(targets=[ast.Name(id="__all__")]):
                    places.append(node.value)
        for place in places:
            for each in ast.walk(place):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield each

    # --- parts of a class ----------------------------------------------------

    def fields(self, name: str) -> dict[str, ast.AnnAssign]:
        """The fields that a class declares itself, in order."""
        return {
            each.target.id: each
            for each in self._class(name).body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }

    def _field(self, name: str, field: str) -> ast.AnnAssign:
        found = self.fields(name).get(field)
        if found is None:
            node = self._class(name)
            self.refuse(node, f"{name}.{field} is not declared in this class itself")
        return found

    def indent(self, name: str) -> str:
        """The white space before each statement of a class."""
        node = self._class(name)
        first = node.body[0]
        line = self.line(first.lineno)
        indent = line[: len(line) - len(line.lstrip(" \t"))]
        if first.lineno == node.lineno or not indent:
            self.refuse(node, "its body is on the line of the class")
        return indent

    def add_field(self, name: str, lines: Sequence[str], after: str | None) -> Self:
        """Add a field after another one of the class, or before all others."""
        fields = self.fields(name)
        code = joined(lines)
        if after is not None and after in fields:
            at = self.whole_lines(fields[after])[1]
            return self.spliced([(at, at, self.separated(at) + code)])
        if fields:
            at = self.whole_lines(next(iter(fields.values())))[0]
            return self.spliced([(at, at, code)])
        return self._add_first(name, code)

    def _add_first(self, name: str, code: str) -> Self:
        body = self._class(name).body
        self.indent(name)
        texts = [each for each in body if is_docstring(each, body)]
        rest = [each for each in body if each not in texts and not is_filler(each)]
        splices = [
            (*self.whole_lines(each), "") for each in body if each not in texts and each not in rest
        ]
        if texts:
            at = self.whole_lines(texts[0])[1]
            while splices and splices[0][0] > at and BLANK.match(self.text, at):
                at = BLANK.match(self.text, at).end()  # type: ignore[union-attr]
            start = "" if splices and at > self.whole_lines(texts[0])[1] else "\n"
            code = self.separated(at) + start + code
        else:
            at = self.whole_lines(body[0])[0]
        if rest and not BLANK.match(self.text, at):
            code += "\n"
        return self.spliced([*splices, (at, at, code)])

    def replace_field(self, name: str, field: str, lines: Sequence[str]) -> Self:
        """Declare a field anew; a comment after it stays."""
        node = self._field(name, field)
        self.whole_lines(node)
        wanted = "\n".join(line.strip() for line in lines)
        if self.has_comment(node):
            self.refuse(node, "there are comments inside of it", wanted)
        if not self._is_plain(node.value):
            self.refuse(node, "its value is computed", wanted)
        start, end = self.span(node)
        return self.spliced([(start, end, "\n".join(lines).lstrip(" \t"))])

    def _is_plain(self, value: ast.expr | None) -> bool:
        """Whether a field is declared with literals and ``predicate()`` alone."""
        if isinstance(value, ast.Call):
            is_predicate = self.framework_name(value) == "predicate"
            return is_predicate and all(keyword.arg for keyword in value.keywords)
        return value is None or isinstance(value, ast.Constant | ast.UnaryOp | ast.List | ast.Tuple)

    def rename_field(self, name: str, field: str, to: str) -> Self:
        """Rename a field in its declaration alone."""
        target = self._field(name, field).target
        return self.spliced([(*self.span(target), to)])

    def move_field(self, name: str, field: str, after: str | None) -> Self:
        """Put a field after another one, or before all others, as it is written."""
        start, end = self.whole_lines(self._field(name, field))
        lines = LINE_END.split(self.text[start:end])
        kept = lines if lines[-1] else lines[:-1]
        return self.remove_field(name, field).add_field(name, kept, after)

    def remove_field(self, name: str, field: str) -> Self:
        """Remove a field, with the comment on its line."""
        node = self._field(name, field)
        body = self._class(name).body
        start, end = self.whole_lines(node)
        at = body.index(node)
        if len(body) == 1:
            return self.spliced([(start, end, f"{self.indent(name)}pass\n")])
        is_last = at == len(body) - 1
        follows = BLANK.match(self.text, end) is not None
        if at and (is_last or follows):
            # The blank lines before it would be left without a use.
            _, start = self._line_span(body[at - 1])
            between = self.text[start : self.whole_lines(node)[0]]
            if between.strip():
                start = self.whole_lines(node)[0]  # a comment stays
        return self.spliced([(start, end, "")])

    def _line_span(self, node: Statement) -> tuple[int, int]:
        last = node.end_lineno or node.lineno
        end = self._starts[last] if last < len(self._starts) else len(self.text)
        return self._starts[node.lineno - 1], end

    def set_docstring(self, name: str, text: str) -> Self:
        """Replace, add or remove the docstring of a class."""
        body = self._class(name).body
        indent = self.indent(name)
        lines = docstring(text, indent) if text else []
        found = next((each for each in body if is_docstring(each, body)), None)
        if found is None:
            at = self.whole_lines(body[0])[0]
            filler = [(*self.whole_lines(each), "") for each in body if is_filler(each)]
            gap = "" if filler else "\n"
            return self.spliced([*filler, (at, at, joined(lines) + gap)])
        start, end = self.whole_lines(found)
        if lines:
            return self.spliced([(*self.span(found), "\n".join(lines).lstrip())])
        if len(body) == 1:
            return self.spliced([(start, end, f"{indent}pass\n")])
        while match := BLANK.match(self.text, end):
            end = match.end()
        return self.spliced([(start, end, "")])

    def set_decorator(
        self, name: str, before: Mapping[str, Code], after: Mapping[str, Code]
    ) -> Self:
        """Change arguments of the decorator; those that are the same in both stay as written."""
        changed = {each for each in {*before, *after} if before.get(each) != after.get(each)}
        if not changed:
            return self
        decorator = self.decorator(self._class(name))
        if decorator is None:
            return self
        given = decorator.keywords if isinstance(decorator, ast.Call) else []
        if self.has_comment(decorator) or not all(each.arg for each in given):
            self.refuse(decorator, "it has comments or computed arguments")
        arguments: dict[str, Code] = {}
        for each in given:
            key = each.arg or ""
            if key not in changed:
                segment = self.source(each.value)
                arguments[key] = after.get(key, segment) if "\n" in segment else segment
            elif key in after:
                arguments[key] = after[key]
        arguments |= {key: after[key] for key in after if key not in arguments}
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        called = self.source(target)
        lines = [called]
        if arguments:
            start, group = call(f"@{called}", arguments.items())
            lines = lay_out(start, group, "", "", self.width)
            lines[0] = lines[0].removeprefix("@")
        return self.spliced([(*self.span(decorator), "\n".join(lines))])

    def set_parent(self, name: str, before: str, after: str) -> Self:
        """Replace the class that a type inherits, in its bases or in ``extends``."""
        node = self._class(name)
        for base in node.bases:
            named = base.id if isinstance(base, ast.Name) else self.framework_name(base)
            if named == before:
                return self.spliced([(*self.span(base), after)])
        return self.refuse(
            node, f"{name} does not inherit {before} by its name", f"inherit {after}"
        )


def is_docstring(node: ast.stmt, body: Sequence[ast.stmt]) -> bool:
    return node is body[0] and isinstance(node, ast.Expr) and is_head(node)


def is_filler(node: ast.stmt) -> bool:
    """Whether it is ``pass`` or ``...``."""
    return isinstance(node, ast.Pass) or (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and node.value.value is ...
    )


def _spell_lines(lines: Sequence[int]) -> str:
    shown = ", ".join(map(str, lines[:10]))
    return f"line {shown}" if len(lines) == 1 else f"lines {shown}{', …' if lines[10:] else ''}"
