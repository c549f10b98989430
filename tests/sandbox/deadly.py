"""Texts that kill, exhaust or occupy an engine that runs them."""

from tests.sandbox.branches import EX

DOUBLING = " ".join(f"BIND(CONCAT(?x{n}, ?x{n}) AS ?x{n + 1})" for n in range(60))
NESTED_TERMS = " ".join(f"BIND(TRIPLE(<a:b>, <a:c>, ?x{n}) AS ?x{n + 1})" for n in range(400))

QUERIES = {
    "nested groups": "SELECT * {" + "{" * 20_000 + "}" * 20_000 + "}",
    "nested parentheses": "SELECT * { FILTER(" + "(" * 20_000 + "1" + ")" * 20_000 + ") }",
    "nested negations": "SELECT * { ?s ?p ?o FILTER(" + "!" * 40_000 + "?o) }",
    "nested optionals": "SELECT * {" + "OPTIONAL{" * 6_000 + "}" * 6_000 + "}",
    "nested collections": "SELECT * { ?s ?p " + "(" * 20_000 + ")" * 20_000 + " }",
    "nested blank nodes": "SELECT * { ?s ?p " + "[?p " * 10_000 + "1" + "]" * 10_000 + " }",
    "nested subqueries": "SELECT * " + "{ SELECT * " * 4_000 + "{}" + "}" * 4_000,
    "nested exists": "SELECT * { ?s ?p ?o " + "FILTER EXISTS { " * 3_500 + "} " * 3_500 + "}",
    "nested paths": f"SELECT * {{ ?s {'(' * 20_000}<{EX}p>{')*' * 20_000} ?o }}",
    "nested triple terms": "SELECT * { ?s ?p "
    + "<<( <a:b> <a:c> " * 3_500
    + "1"
    + " )>>" * 3_500
    + "}",
    "long sum": "SELECT (" + "1+" * 30_000 + "1 AS ?x) {}",
    "long or": "SELECT * { ?s ?p ?o FILTER(" + "?o = 1 || " * 6_000 + "?o = 2) }",
    "cartesian product": "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }",
    "repeated patterns": "SELECT (COUNT(*) AS ?n) {"
    + " ".join(f"?s{n} ?p{n} ?o{n} ." for n in range(300))
    + "}",
    "repeated pattern on one node": "SELECT (COUNT(*) AS ?n) {"
    + " ".join(f"?s <{EX}name> ?o{n} ." for n in range(10))
    + " ?t ?p ?o . ?u ?q ?r . ?v ?w ?x }",
    "many joins to plan": "SELECT * {"
    + " ".join(f"?v{n} <{EX}p{n}> ?v{n * 7919 % 1000} ." for n in range(1_500))
    + "}",
    "doubling": f"SELECT * {{ BIND('{'a' * 100}' AS ?x0) {DOUBLING} }}",
    "doubling in an aggregate": "SELECT (GROUP_CONCAT(?o; separator=', ') AS ?x) "
    "{ ?s ?p ?o . ?t ?q ?r . ?u ?v ?w }",
    "huge sort": "SELECT * { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i } ORDER BY ?c ?f ?i ?a",
    "huge distinct": "SELECT DISTINCT * { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i FILTER(?a = ?g) }",
    "huge group": "SELECT ?a ?d ?g (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i } "
    "GROUP BY ?a ?d ?g",
    "huge values": "SELECT (COUNT(*) AS ?n) {"
    + " ".join(f"VALUES ?v{n} {{ {'1 ' * 100} }}" for n in range(20))
    + "}",
    "regular expressions": "SELECT * { ?s ?p ?o . ?t ?q ?r . ?u ?v ?w "
    "FILTER REGEX(STR(?o), '((a*)*)*((b*)*)*$x') }",
    "huge repetition in a pattern": "SELECT * { ?s ?p ?o "
    "FILTER REGEX(STR(?o), '((((a{100}){100}){100}){100}){100}') }",
    "replacing": f"SELECT * {{ BIND('{'a' * 1000}' AS ?x0) "
    + " ".join(f"BIND(REPLACE(?x{n}, 'a', '{'a' * 200}') AS ?x{n + 1})" for n in range(10))
    + "}",
    "paths without end": "SELECT (COUNT(*) AS ?n) { ?s (!<a:a>|^!<a:a>)* ?o . "
    "?t (!<a:a>|^!<a:a>)* ?q . ?u (!<a:a>|^!<a:a>)* ?v }",
    "terms in terms": f"SELECT ?x400 {{ BIND(<a:a> AS ?x0) {NESTED_TERMS} }}",
    "a graph of terms in terms": "CONSTRUCT { <a:a> <a:b> ?x400 } "
    f"WHERE {{ BIND(<a:a> AS ?x0) {NESTED_TERMS} }}",
    "null characters": "SELECT * { ?s ?p '\0' }" + "\0" * 1000,
    "an update": "INSERT DATA { <a:a> <a:b> <a:c> }",
    "nothing": "",
}

ENTITIES = "".join(f'<!ENTITY a{n + 1} "{f"&a{n};" * 10}">' for n in range(14))
RDF = 'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/"'

FILES = {
    "json-ld depth": ("json-ld", '{"@id": "a:a", "b:b": ' * 60_000),
    "json-ld lists": ("json-ld", '{"@id": "a:a", "b:b": ' + '{"@list": [' * 30_000),
    "json arrays": ("json-ld", "[" * 500_000 + "]" * 500_000),
    "json-ld contexts": ("json-ld", '{"@context": ' + "[" * 60_000 + "]" * 60_000 + "}"),
    "json-ld graphs": ("json-ld", '{"@graph": ' * 60_000 + "1" + "}" * 60_000),
    "remote context": ("json-ld", '{"@context": "http://127.0.0.1:9/c", "@id": "a:a"}'),
    "entity bomb": (
        "rdf-xml",
        (
            f'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY a0 "lol">{ENTITIES}]><rdf:RDF {RDF}>'
            '<rdf:Description rdf:about="http://e/x"><e:p>&a14;</e:p></rdf:Description></rdf:RDF>'
        ),
    ),
    "entity that is itself": (
        "rdf-xml",
        (
            f'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY a "&b;"><!ENTITY b "&a;">]><rdf:RDF {RDF}>'
            '<rdf:Description rdf:about="http://e/x"><e:p>&a;</e:p></rdf:Description></rdf:RDF>'
        ),
    ),
    "entity from a file": (
        "rdf-xml",
        (
            f'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
            f"<rdf:RDF {RDF}><rdf:Description><e:p>&a;</e:p></rdf:Description></rdf:RDF>"
        ),
    ),
    "xml depth": (
        "rdf-xml",
        f"<rdf:RDF {RDF}>" + "<rdf:Description><e:p>" * 100_000,
    ),
    "turtle collections": ("turtle", "<a:a> <a:b> " + "(" * 200_000),
    "turtle blank nodes": ("turtle", "<a:a> <a:b> " + "[ <a:b> " * 100_000),
    "turtle triple terms": (
        "turtle",
        "<a:a> <a:b> " + "<<( <a:b> <a:c> " * 50_000 + "1" + " )>>" * 50_000 + " .",
    ),
    "nested triple terms that fit": (
        "n-quads",
        "<a:a> <a:b> " + "<<( <a:b> <a:c> " * 100 + "<a:d>" + " )>>" * 100 + " .\n",
    ),
    "a prefix that grows": (
        "turtle",
        f"@prefix p: <http://e/{'x' * 60_000}> .\n" + "p:a p:b p:c, p:d, p:e, p:f .\n" * 3_000,
    ),
    "not text": ("turtle", "\udcff\udcfe" * 1000),
    "a name without end": ("n-triples", "<http://e/" + "a" * 3_000_000),
}
