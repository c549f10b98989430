"""What is told to whoever asked in SPARQL: names that do not exist, and what a refusal means.

A class that is misspelled is no error in SPARQL, it just matches nothing; and the parser
says what it expected as a grammar does. Both leave a reader with nothing to correct.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from trails.engine.query_terms import Vocabulary, named_terms, pieces_of
from trails.model.iris import RDF_TYPE, XSD
from trails.model.sparql import Token, significant

_COMMON: Final = {
    "rdf": RDF_TYPE.removesuffix("type"),
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "xsd": XSD,
    "owl": "http://www.w3.org/2002/07/owl#",
    "skos": "http://www.w3.org/2004/02/skos/core#",
}
_LETTERS: Final = re.compile(r",? ?\['?.+?'?\](?=,|$)")
"""Letters that could stand at a place, as the parser lists them."""
_MOST: Final = 5
"""Names that are told of."""


def tell_missing(tokens: list[Token], vocabulary: Vocabulary) -> str | None:
    """Which classes and fields of the graph a text names that there are not; None without any."""
    named = named_terms(pieces_of(tokens), {"": vocabulary.own})
    told = [told for _, told in vocabulary.unknown(named)]
    return "; ".join(told[:_MOST]) or None


def explain_refusal(told: str, tokens: list[Token], vocabulary: Vocabulary) -> str:
    """What the parser said, for people and agents: with what to write instead, where that shows."""
    hints = [*_undeclared(tokens), *_bare(tokens, vocabulary)][:_MOST]
    plain = told.replace("['0'..='9']", "digits").replace("Prefix not found", "a declared prefix")
    plain = _LETTERS.sub("", plain).replace("one of, ", "one of ")
    return "; ".join((plain, *hints))


def _undeclared(tokens: list[Token]) -> Iterator[str]:
    """Prefixes that the text uses and does not declare."""
    read = significant(tokens)
    declared = {""}
    for before, each in pairwise(read):
        if before.kind == "word" and before.text.upper() == "PREFIX" and each.kind == "name":
            declared.add(each.text.partition(":")[0])
    used = dict.fromkeys(each.text.partition(":")[0] for each in read if each.kind == "name")
    for prefix in used:
        if prefix not in declared:
            iri = _COMMON.get(prefix, "…")
            yield f"the prefix {prefix}: is not declared: begin with PREFIX {prefix}: <{iri}>"


def _bare(tokens: list[Token], vocabulary: Vocabulary) -> Iterator[str]:
    """Classes and fields that are written without a colon."""
    names = {*vocabulary.classes.values(), *vocabulary.fields.values()}
    words = dict.fromkeys(each.text for each in tokens if each.kind == "word")
    for word in words:
        if word in names:
            yield f"{word} is written :{word}"
