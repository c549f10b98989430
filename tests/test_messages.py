"""Errors are clauses: they begin in lower case and have no final full stop (CONTRIBUTING.md)."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import trails

SOURCE = Path(trails.__file__).parent
SENTENCES = {
    "app/serve/http",
    "identity/oauth/verifier.py",
    "sandbox/pool.py",
    "surfaces/mcp/failures.py",
    "surfaces/rest/replies.py",
    "surfaces/rest/routing.py",
}
"""Where refusals by HTTP itself are made, and others that are whole sentences."""
WHERE = {"Failure": 2, "FieldError": 2}
"""The place of the message among the arguments, where it is not the first text."""


def text_of(node: ast.expr) -> str:
    """A text; what is filled in is an ellipsis."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(each) for each in node.values)
    if isinstance(node, ast.BinOp):
        return text_of(node.left) + text_of(node.right)
    return "…"


def messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The messages of errors and failures, with their lines."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name in WHERE:
            found = node.args[WHERE[name] : WHERE[name] + 1]
        else:
            found = node.args[:1] if name.endswith("Error") else []
        yield from ((each.lineno, text_of(each)) for each in found)


def test_errors_are_clauses() -> None:
    """So that they read well after a colon, and before a hint that is added."""
    seen, wrong = 0, []
    for file in sorted(SOURCE.rglob("*.py")):
        name = file.relative_to(SOURCE).as_posix()
        if name.startswith(tuple(SENTENCES)):
            continue
        for line, text in messages(ast.parse(file.read_text(encoding="utf-8"))):
            seen += " " in text
            if " " in text and (re.match("[A-Z][a-z]", text) or text.endswith(".")):
                wrong.append(f"{name}:{line}: {text}")
    assert not wrong, "\n".join(wrong)
    assert seen > 300
