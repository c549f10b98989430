"""Put the parameters of a stored query into its text.

``$name`` becomes the value as the RDF library writes it. Beyond that:

- a parameter that is null, or an empty list, leaves ``?name``, a variable like any other:
  in a pattern it matches everything, in a comparison nothing;
- ``BOUND($name)`` says whether there is a value;
- a list stands after ``IN`` or between the braces of ``VALUES``;
- an Int after ``LIMIT`` or ``OFFSET`` is written as digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyoxigraph as ox

from trails.engine.sparql import bind, write_term
from trails.errors import QueryError
from trails.model.capabilities import StoredQuery
from trails.model.kinds import KINDS
from trails.model.sparql import Token, tokenize
from trails.model.types import PredicateDescriptor

_COUNTS: Final = frozenset({"LIMIT", "OFFSET"})


def bind_query(query: StoredQuery, values: Mapping[str, object]) -> str:
    """The text with coerced values in place of its parameters."""
    params = {param.name: param for param in query.params}
    settled = _Settler(tokenize(query.text), params, values)
    return bind(settled.tokens, settled.scalars)


class _Settler:
    """Replaces the parameters that are not simply one value; the others are for ``bind``."""

    def __init__(
        self,
        tokens: list[Token],
        params: Mapping[str, PredicateDescriptor],
        values: Mapping[str, object],
    ) -> None:
        self._params = params
        self._values = values
        self._solid = [token for token in tokens if token.kind != "space"]
        self._at = 0  # of the next solid token
        self._braces: list[str] = []
        self.scalars: dict[str, object] = {}
        self.tokens: list[Token] = []
        remaining = iter(tokens)
        for token in remaining:
            if token.kind == "space":
                self.tokens.append(token)
            elif self._asks_for_value(token):
                self.tokens.append(Token("other", self._has_value()))
                self._at += 4
                for _ in range(3):  # the parenthesis, the parameter, the parenthesis
                    while next(remaining).kind == "space":
                        continue
            else:
                self.tokens.append(self._settle(token))
                self._at += 1

    def _word(self, offset: int) -> str:
        at = self._at + offset
        return self._solid[at].text.upper() if 0 <= at < len(self._solid) else ""

    def _param(self, offset: int) -> str:
        """The parameter that a token stands for, or nothing."""
        at = self._at + offset
        if not 0 <= at < len(self._solid) or self._solid[at].kind != "variable":
            return ""
        name = self._solid[at].text[1:]
        return name if name in self._params else ""

    def _asks_for_value(self, token: Token) -> bool:
        return (
            token.text.upper() == "BOUND"
            and self._word(1) == "("
            and self._word(3) == ")"
            and self._param(2) != ""
        )

    def _has_value(self) -> str:
        value = self._values.get(self._param(2))
        return "(false)" if value is None or value in ((), []) else "(true)"

    def _settle(self, token: Token) -> Token:
        if token.text == "{":
            self._braces.append(self._opened_by())
        elif token.text == "}" and self._braces:
            self._braces.pop()
        name = self._param(0)
        if not name:
            return token
        param, value = self._params[name], self._values.get(name)
        in_data = self._braces[-1:] == ["VALUES"]
        if param.many:
            return Token("other", self._write_list(name, value, in_data=in_data))
        if value is None:
            return Token("other", "UNDEF") if in_data else Token("variable", f"?{name}")
        if param.type.kind == "Vector":
            return Token("other", _write_vector(value))
        if param.type.kind == "Int" and self._word(-1) in _COUNTS:
            return Token("other", str(value))
        self.scalars[name] = value
        return token

    def _opened_by(self) -> str:
        """VALUES, if this brace opens its data."""
        at = self._at - 1
        if at >= 0 and self._solid[at].text == ")":
            while at >= 0 and self._solid[at].text != "(":
                at -= 1
        return "VALUES" if at > 0 and self._solid[at - 1].text.upper() == "VALUES" else ""

    def _write_list(self, name: str, value: object, *, in_data: bool) -> str:
        items = value if isinstance(value, list | tuple) else ()
        terms = [write_term(name, item) for item in items]
        if self._word(-1) == "IN":
            return f"({', '.join(terms)})"
        if self._word(-1) == "(" and self._word(-2) == "IN" and self._word(1) == ")":
            return ", ".join(terms)
        if in_data and self._word(-1) != "(":
            return " ".join(terms)
        raise QueryError(
            f"${name} is a list, so it stands after IN, as in 'FILTER (?x IN ${name})', or in "
            f"'VALUES ?x {{ ${name} }}'"
        )


def _write_vector(value: object) -> str:
    kind = KINDS["Vector"]
    return str(ox.Literal(kind.lexical(value), datatype=ox.NamedNode(kind.datatype)))
