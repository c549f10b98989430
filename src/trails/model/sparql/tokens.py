"""SPARQL text as tokens: its form, the limits on it, and whether it reaches outside the graph.

The tokenizer knows the lexical grammar of SPARQL exactly and refuses everything else. This is a
security boundary: the engine's parser backtracks, so a text that two readers split differently
can hide a keyword in what one of them takes for a string. Where the engine could read a ``<``
in two ways, the text is refused. Everything here takes linear time and runs nothing.

A graph has only a default graph. So updates may use INSERT DATA, DELETE DATA, DELETE WHERE and
DELETE/INSERT … WHERE; operations on named graphs are refused with what to use instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final, Literal

import msgspec

from trails.errors import QueryError
from trails.model.constraints import shorten

MAX_TEXT: Final = 64 * 1024
MAX_TOKENS: Final = 20_000
MAX_DEPTH: Final = 32
MAX_PATTERNS: Final = 64
MAX_CLAUSES: Final = 128
MAX_OPERATORS: Final = 500

# SPARQL 1.1, section 19.8: what PN_CHARS_BASE and PN_CHARS have beyond ASCII.
_BASE_BEYOND: Final = (
    "\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d"
    "\u2070-\u218f\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_CHAR_BEYOND: Final = "\u00b7\u0300-\u036f\u203f-\u2040"
_ESCAPE: Final = r"\\(?:[tbnrf\\\"']|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})"


@cache
def _tokens(*, ascii_only: bool) -> re.Pattern[str]:
    """The regular expression of tokens.

    Compiled on first use, because that takes longer than most imports. For ASCII texts it is
    compiled without the ranges beyond ASCII, which takes a tenth of the time.
    """
    base = "A-Za-z" if ascii_only else "A-Za-z" + _BASE_BEYOND
    beyond = "" if ascii_only else _CHAR_BEYOND
    letter = base + "_"
    char = f"{letter}0-9{beyond}-"
    local = rf"(?:[{char}:]|%[0-9A-Fa-f]{{2}}|\\[_~.\-!$&'()*+,;=/?#@%])"
    # The engine ends a local name before its second dot, so `:a.b.SERVICE` is `:a.b`, `.` and
    # a keyword; it is split there, although the standard would continue.
    # Every repetition is possessive or can't overlap what follows it: no text is read twice.
    pattern = rf"""
    (?P<space>(?:[ \t\r\n]++|\#[^\n\r]*+)++)
  | (?P<string>\"\"\"(?:\"{{0,2}}(?:[^"\\]|{_ESCAPE}))*+\"\"\"
      |'''(?:'{{0,2}}(?:[^'\\]|{_ESCAPE}))*+'''
      |"(?!"")(?:[^"\\\n\r]|{_ESCAPE})*+"|'(?!'')(?:[^'\\\n\r]|{_ESCAPE})*+')
  | (?P<iri><(?:[^<>"{{}}|^`\\\x00-\x20]|\\u[0-9A-Fa-f]{{4}}|\\U[0-9A-Fa-f]{{8}})*+>)
  | (?P<variable>[?$][{letter}0-9][{letter}0-9{beyond}]*+)
  | (?P<blank>_:[{letter}0-9](?:\.*+[{char}])*+)
  | (?P<name>(?:[{base}](?:\.*+[{char}])*+)?+:(?:{local}++(?:\.++{local}++)?+)?+)
  | (?P<run>[{base}](?:\.*+[{char}])*+)
  | (?P<number>[0-9]++\.[0-9]*+[eE][+-]?[0-9]++|\.?[0-9]++[eE][+-]?[0-9]++
      |[0-9]*+\.[0-9]++|[0-9]++)
  | (?P<tag>@[A-Za-z]++(?:-[A-Za-z0-9]++)*+(?:--[A-Za-z]++)?+)
  | (?P<open>[{{(\[])
  | (?P<close>[}})\]])
  | (?P<other>\^\^|&&|\|\||!=|<=|>=|[.;,=!<>+*/|^?~-])
    """
    return re.compile(pattern, re.VERBOSE)


# A run of letters without a colon is not a name but words: `true.SERVICE` is three tokens.
_PIECE = re.compile(r"(?P<word>[A-Za-z][A-Za-z0-9_]*)|(?P<number>[0-9]+)|(?P<other>[.-])")
_ABSOLUTE = re.compile(r"<[A-Za-z][A-Za-z0-9+.-]*://")


_OPERANDS: Final = frozenset(
    {"variable", "blank", "name", "word", "number", "string", "iri", "tag"}
)
_PAIRS: Final = {"}": "{", ")": "(", "]": "["}


class Token(msgspec.Struct, frozen=True, gc=False):
    """A piece of SPARQL text; all tokens together are the text.

    The kinds: space (comments too), string, iri, variable, blank, name (with a colon),
    word (a keyword or ``a``), number, tag, open, close, other.
    """

    kind: str
    text: str


# --- cutting ------------------------------------------------------------------------------


def tokenize(text: str) -> list[Token]:
    """Split text into tokens, in one pass."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_TEXT:
        raise _too_much(f"{size} bytes", f"{MAX_TEXT // 1024} KiB ({MAX_TEXT} bytes)", "shorten it")
    tokens: list[Token] = []
    nesting: list[str] = []
    before = Token("open", "")  # the last token that is not whitespace
    pattern = _tokens(ascii_only=text.isascii())
    at = count = 0
    while at < len(text):
        cut = [_cut(pattern, text, at, before, nesting)]
        at += len(cut[0].text)
        if cut[0].kind == "run":
            cut = list(_words_of(cut[0].text))
        tokens += cut
        if cut[-1].kind == "space":
            continue
        before = cut[-1]
        _nest(before, nesting)
        count += len(cut)
        if count > MAX_TOKENS:
            raise _too_much(f"{count} tokens or more", str(MAX_TOKENS), "ask in several steps")
    return tokens


def _cut(cut: re.Pattern[str], text: str, at: int, before: Token, nesting: list[str]) -> Token:
    found = cut.match(text, at)
    if found is None:
        raise QueryError(_unreadable(text, at))
    token = Token(str(found.lastgroup), found.group())
    if text[at] == "<":
        return _angle(text, at, token, before, nesting)
    if token.kind == "string" and "\\" in token.text:
        _check_code_points(token.text)
    return token


def _angle(text: str, at: int, token: Token, before: Token, nesting: list[str]) -> Token:
    """``<`` begins an IRI or compares: inside an expression the engine may see either."""
    compared = before.kind in _OPERANDS or before.kind == "close"
    if text.startswith("<<", at) and not (compared and _ABSOLUTE.match(text, at + 1)):
        raise QueryError(
            "'<<' begins a triple term, and this graph has none; to compare with '<', leave a "
            "space after it"
        )
    if token.kind != "iri":
        return token
    if _ABSOLUTE.match(token.text) or not (compared and nesting and nesting[-1] == "("):
        return token
    if token.text[1] in "?$":
        token = Token("other", "<")
    if any(char in "'#)" for char in text[at : text.index(">", at)]):
        raise QueryError(
            f"{shorten(text[at : text.index('>', at) + 1])} could be an IRI or a comparison; "
            "leave a space after '<' to compare, or give the IRI a prefix"
        )
    return token


def _check_code_points(string: str) -> None:
    for escape in re.findall(r"\\(?:\\|u(.{4})|U(.{8}))", string):
        code = int("".join(escape) or "0", 16)
        if 0xD800 <= code <= 0xDFFF or code > 0x10FFFF:
            raise QueryError(f"\\u{code:04X} in {shorten(string)} is not a character; remove it")


def _words_of(run: str) -> Iterator[Token]:
    at = 0
    while at < len(run):
        found = _PIECE.match(run, at)
        if found is None:
            raise QueryError(
                f"{shorten(run)} is not a SPARQL keyword; a name needs a prefix and a colon, "
                "as in ':name'"
            )
        yield Token(str(found.lastgroup), found.group())
        at = found.end()


def _nest(token: Token, nesting: list[str]) -> None:
    if token.kind == "open":
        nesting.append(token.text)
        if (depth := len(nesting)) > MAX_DEPTH:
            raise _too_much(f"{depth} levels or more", f"{MAX_DEPTH} levels", "flatten it")
    elif token.kind == "close" and (not nesting or nesting.pop() != _PAIRS[token.text]):
        raise QueryError(f"{token.text!r} has no matching opening bracket; check the brackets")


def _unreadable(text: str, at: int) -> str:
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    where = f"line {line}, column {column}"
    char = text[at]
    if char in "\"'":
        return (
            f"the string that begins at {where} has no end, or an escape that SPARQL does not "
            f"know: {text[at : at + 40]!a}"
        )
    return f"{char!a} at {where} has no meaning in SPARQL outside of strings; remove it"


def _too_much(found: str, limit: str, then: str) -> QueryError:
    return QueryError(f"the text has {found}, and the limit is {limit}; {then}")


def significant(tokens: Iterable[Token]) -> list[Token]:
    """The tokens without space and comments."""
    return [token for token in tokens if token.kind != "space"]


def text_of(tokens: Iterable[Token]) -> str:
    """The text of tokens."""
    return "".join(token.text for token in tokens)


# --- what must not be asked ------------------------------------------------------------------


def check(tokens: list[Token]) -> None:
    """Refuse what reaches outside, and what could exhaust or crash the engine."""
    read = significant(tokens)
    refuse_network(read)
    costs = _Costs()
    costs.count(read)
    if costs.patterns > MAX_PATTERNS:
        raise _too_much(
            f"{costs.patterns} patterns in one group",
            str(MAX_PATTERNS),
            "ask in several steps, or list values with VALUES",
        )
    if costs.clauses > MAX_CLAUSES:
        raise _too_much(
            f"{costs.clauses} clauses (OPTIONAL, UNION, FILTER, AS and the like)",
            str(MAX_CLAUSES),
            "ask in several steps, or list values with VALUES",
        )
    if costs.operators > MAX_OPERATORS:
        raise _too_much(
            f"{costs.operators} operators", str(MAX_OPERATORS), "compare with IN, or use VALUES"
        )


def could_be(keyword: str, token: Token, following: str) -> bool:
    """Whether the engine may read a keyword that names an IRI and opens a group.

    It also takes ``SERVICE:x { … }`` and ``trueSERVICEa:b { … }`` for keyword and name.
    """
    if token.kind == "word":
        return keyword in token.text.upper()
    prefix = token.text.partition(":")[0].upper() if token.kind == "name" else ""
    return keyword in prefix and following == "{"


def refuse_network(read: list[Token]) -> None:
    """SERVICE and LOAD, also where the engine accepts them glued to another word."""
    for at, token in enumerate(read):
        following = read[at + 1].text if at + 1 < len(read) else ""
        if could_be("SERVICE", token, following):
            raise QueryError(
                "SERVICE reaches other servers and is not available; load their data first, or "
                "choose another prefix if this is the prefix of a name"
            )
        if token.kind == "word" and "LOAD" in token.text.upper():
            raise QueryError("LOAD fetches from other servers and is not available; use load")


_CLAUSES: Final = frozenset(
    {
        *("OPTIONAL", "UNION", "MINUS", "FILTER", "VALUES", "GRAPH", "EXISTS", "LATERAL"),
        *("SELECT", "AS", "GROUP", "ORDER", "HAVING"),
    }
)
_OPERATORS: Final = frozenset(
    {"=", "!=", "<", ">", "<=", ">=", "&&", "||", "!", "+", "-", "*", "/", "|", "^", "?"}
)
_TEMPLATES: Final = frozenset({"DATA", "CONSTRUCT", "INSERT", "DELETE"})


class _Costs:
    """Counts what the engine's planner multiplies or recurses into."""

    def __init__(self) -> None:
        self.clauses = self.operators = self.patterns = 0
        self._groups: list[tuple[int, bool]] = []
        """(patterns, whether it is joined with its parent) of each open brace."""
        self._here = 0
        self._described = False
        self._skipped = 0
        """Open braces whose content is data: templates, and the rows of VALUES."""

    def count(self, read: list[Token]) -> None:
        """Count everything in a text."""
        before = Token("open", "")
        parens, word = 0, ""
        for token in read:
            if token.text == "{":
                self._open(before, word)
                parens, word = 0, ""
            elif token.text == "}":
                self._close()
            elif not self._skipped:
                parens += (token.text == "(") - (token.text == ")")
                self._count(token, before, parens)
            if token.kind == "word":
                word = token.text.upper()
                # Every term of DESCRIBE is planned as a group of its own.
                self._described = self._described or word == "DESCRIBE"
            before = token

    def _open(self, before: Token, word: str) -> None:
        if self._skipped or word == "VALUES" or (before.kind == "word" and word in _TEMPLATES):
            self._skipped += 1
        else:
            self._groups.append((self._here, bool(self._groups) and before.kind != "word"))
            self._here = 0

    def _close(self) -> None:
        if self._skipped:
            self._skipped -= 1
        elif self._groups:
            around, joined = self._groups.pop()
            # A group that only adds braces is planned together with its parent.
            self._here = around + (self._here if joined else 0)
            self._note_patterns()

    def _count(self, token: Token, before: Token, parens: int) -> None:
        if _keyword_of(token) in _CLAUSES:
            self.clauses += 1
        elif token.text in _OPERATORS:
            self.operators += 1
            # A step of a path is one more pattern.
            self._here += token.text == "/"
        elif not self._groups:
            self.clauses += self._described and token.kind in _OPERANDS
        elif token.kind in _OPERANDS and (token.kind != "word" or token.text in _VALUES):
            if parens and before.kind in _OPERANDS - {"word"}:
                self._here += 2  # an item of a collection is two statements
            elif not parens and before.text in _STARTS:
                self._here += 1
        elif token.text in {"[", "("} and before.text in _STARTS and parens <= 1:
            self._here += 1
        self._note_patterns()

    def _note_patterns(self) -> None:
        self.patterns = max(self.patterns, self._here)


_STARTS: Final = frozenset({"{", "}", ".", ";", ","})
_VALUES: Final = frozenset({"a", "true", "false"})


def _keyword_of(token: Token) -> str:
    """The clause that a token begins; the engine also takes ``trueFILTER:f(?x)``."""
    if token.kind not in {"word", "name"}:
        return ""
    return token.text.partition(":")[0].upper().removeprefix("TRUE").removeprefix("FALSE")


# --- what a text is -----------------------------------------------------------------------

UPDATES: Final = frozenset(
    {"INSERT", "DELETE", "WITH", "LOAD", "CLEAR", "DROP", "CREATE", "ADD", "MOVE", "COPY"}
)
QUERIES: Final = frozenset({"SELECT", "ASK", "CONSTRUCT", "DESCRIBE"})
_PROLOGUE: Final = {
    "PREFIX": ("name", "iri"),
    "BASE": ("iri",),
    "VERSION": ("string",),
}


def skip_prologue(read: list[Token], at: int = 0) -> int:
    """The index after PREFIX, BASE and VERSION; ``read`` has no whitespace tokens."""
    while at < len(read) and read[at].kind == "word":
        kinds = _PROLOGUE.get(read[at].text.upper())
        if kinds is None:
            break
        found = tuple(token.kind for token in read[at + 1 : at + 1 + len(kinds)])
        if found != kinds:
            raise QueryError(
                f"{read[at].text} is followed by {shorten(text_of(read[at + 1 : at + 3]))}; "
                "write PREFIX name: <iri> or BASE <iri>"
            )
        at += 1 + len(kinds)
    return at


def query_form(tokens: list[Token]) -> str:
    """SELECT, ASK, CONSTRUCT or DESCRIBE of a text within the limits; else it is refused."""
    check(tokens)
    read = significant(tokens)
    at = skip_prologue(read)
    form = read[at].text.upper() if at < len(read) and read[at].kind == "word" else ""
    if form in QUERIES:
        return form
    if form in UPDATES:
        raise QueryError(f"{form} changes data, and queries are read-only; use graph_mutate")
    raise QueryError("this is not a SPARQL query: it has no SELECT, ASK, CONSTRUCT or DESCRIBE")


Form = Literal["INSERT DATA", "DELETE DATA", "DELETE WHERE", "MODIFY"]


class UpdateOperation(msgspec.Struct, frozen=True):
    """One operation; each part is the tokens between its braces, or None if it has none.

    ``prologue`` is every PREFIX and BASE from the beginning of the text to here.
    """

    form: Form
    prologue: str
    delete: tuple[Token, ...] | None = None
    insert: tuple[Token, ...] | None = None
    where: tuple[Token, ...] | None = None


_INSTEAD: Final = {
    "LOAD": "use the load operation",
    "CLEAR": "delete the nodes with DELETE WHERE",
    "DROP": "delete the nodes with DELETE WHERE",
    "CREATE": "make a branch to keep data apart",
    "COPY": "make a branch to have a copy",
    "MOVE": "write the data where it shall be with DELETE and INSERT",
    "ADD": "write the data with INSERT",
    "WITH": "leave it out: the data is the default graph",
    "USING": "leave it out: the data is the default graph",
    "GRAPH": "leave it out: the data is the default graph",
}
_NO_GRAPHS: Final = "graphs here have no named graphs"


def update_form(tokens: list[Token]) -> tuple[UpdateOperation, ...]:
    """The operations of an update within the limits; anything else is refused."""
    check(tokens)
    reader = _Reader(tokens)
    operations = []
    while (operation := reader.operation()) is not None:
        operations.append(operation)
    if not operations:
        raise QueryError(
            "the update is empty; write INSERT DATA, DELETE DATA, DELETE WHERE or "
            "DELETE … INSERT … WHERE"
        )
    return tuple(operations)


class _Reader:
    """Reads operations one after another."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._read = significant(tokens)
        self._places = [at for at, token in enumerate(tokens) if token.kind != "space"]
        self._at = 0
        self._prologue = ""

    def operation(self) -> UpdateOperation | None:
        """The next operation, or None at the end."""
        begin = self._at
        self._at = skip_prologue(self._read, begin)
        if begin < self._at:
            self._prologue += text_of(self._tokens[self._places[begin] : self._place()]) + "\n"
        if self._at == len(self._read):
            return None
        found = self._operation()
        if self._at < len(self._read):
            if self._read[self._at].text != ";":
                raise self._unexpected("';' or the end")
            self._at += 1
        return found

    def _operation(self) -> UpdateOperation:
        first = self._word()
        if first in _INSTEAD:
            raise _refuse(first)
        if first not in {"INSERT", "DELETE"}:
            raise self._unexpected("INSERT or DELETE")
        self._at += 1
        second = self._word()
        if second == "DATA":
            self._at += 1
            block = self._block()
            if first == "INSERT":
                return UpdateOperation("INSERT DATA", self._prologue, insert=block)
            return UpdateOperation("DELETE DATA", self._prologue, delete=block)
        if first == "DELETE" and second == "WHERE":
            self._at += 1
            block = self._block()
            return UpdateOperation("DELETE WHERE", self._prologue, delete=block, where=block)
        parts = {first: self._block()}
        if first == "DELETE" and self._word() == "INSERT":
            self._at += 1
            parts["INSERT"] = self._block()
        if self._word() in _INSTEAD:
            raise _refuse(self._word())
        if self._word() != "WHERE":
            raise self._unexpected("WHERE")
        self._at += 1
        return UpdateOperation(
            "MODIFY", self._prologue, parts.get("DELETE"), parts.get("INSERT"), self._block()
        )

    def _place(self) -> int:
        """The position of the next token in the text."""
        return self._places[self._at] if self._at < len(self._read) else len(self._tokens)

    def _word(self) -> str:
        if self._at < len(self._read) and self._read[self._at].kind == "word":
            return self._read[self._at].text.upper()
        return ""

    def _block(self) -> tuple[Token, ...]:
        """The tokens between braces."""
        if self._at >= len(self._read) or self._read[self._at].text != "{":
            raise self._unexpected("'{'")
        begin, depth = self._place() + 1, 0
        for at in range(self._at, len(self._read)):
            token = self._read[at]
            depth += (token.text == "{") - (token.text == "}")
            following = self._read[at + 1].text if at + 1 < len(self._read) else ""
            if could_be("GRAPH", token, following):
                raise _refuse("GRAPH")
            if not depth:
                self._at = at + 1
                return tuple(self._tokens[begin : self._places[at]])
        raise QueryError("a '{' has no '}'; check the brackets")

    def _unexpected(self, wanted: str) -> QueryError:
        near = text_of(Token("", each.text + " ") for each in self._read[self._at : self._at + 3])
        found = shorten(near.strip()) if near else "the end of the text"
        return QueryError(
            f"the update can't be read: {wanted} is expected, not {found}; it may have "
            "INSERT DATA, DELETE DATA, DELETE WHERE and DELETE … INSERT … WHERE, with ';' between"
        )


def _refuse(word: str) -> QueryError:
    why = "" if word == "LOAD" else f", because {_NO_GRAPHS}"
    return QueryError(f"{word} is not available{why}; {_INSTEAD[word]}")
