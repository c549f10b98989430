"""A scripted repairer: it sees a call and the text of its error, and nothing else.

It knows neither the schema nor the graph, so whatever it puts right was said in the error.
"""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from typing import Any

from tests.request.faults import copied

Arguments = dict[str, Any]
_PATH = r"(?P<path>[A-Za-z_@][\w@]*(?:\[\d+\])?(?:\.[\w@]+(?:\[\d+\])?)*|line \d+)"
_KEYS = ("op", "type", "id", "iri", "data", "cascade")


def repair_call(text: str, arguments: Arguments) -> Arguments:
    """The arguments that an error asks for; the same ones where it gives no hint."""
    whole = re.search(r"(?:These arguments would pass|Corrected arguments): (\{.*\})", text)
    if whole:
        return json.loads(whole[1])
    return _Repair(copied(arguments)).run(text)


class _Repair:
    def __init__(self, arguments: Arguments) -> None:
        self.arguments = arguments
        self.given = dict(arguments)
        self.lines: dict[int, Any] = {}

    def run(self, text: str) -> Arguments:
        text = re.sub(r"^validation failed on \d+ fields?: ", "", text)
        for pattern, rule in _RULES:
            for found in re.finditer(pattern, text):
                rule(self, found)
        for number, line in self.lines.items():
            lines = self.arguments["data"].split("\n")
            lines[number - 1] = json.dumps(line)
            self.arguments["data"] = "\n".join(lines)
        return self.arguments

    # --- places ------------------------------------------------------------------------

    def place(self, path: str) -> tuple[Any, Any]:
        """The holder and the key of a path; a field of an operation is in its data."""
        line = re.match(r"line (\d+)", path)
        if line:
            number = int(line[1])
            if number not in self.lines:
                self.lines[number] = json.loads(self.arguments["data"].split("\n")[number - 1])
            return self.lines, number
        holder: Any = self.arguments
        steps = re.findall(r"[\w@]+", path)
        for at, step in enumerate(steps[:-1]):
            inner = holder[int(step)] if isinstance(holder, list) else holder.setdefault(step, {})
            of_operation = steps[0] == "operations" and at == 1
            if of_operation and steps[2] not in _KEYS and "data" in inner:
                inner = inner["data"]
            holder = inner
        key: Any = steps[-1]
        return holder, int(key) if isinstance(holder, list) else key

    def field(self, path: str, name: str | None) -> tuple[Any, Any]:
        """A field of a node on a line, or what a path leads to."""
        holder, key = self.place(path)
        if name is None:
            return holder, key
        line = holder[key]
        data = line.setdefault("data", {})
        if name in ("source", "target"):
            return line, {"source": "from", "target": "to"}[name]
        return data, name

    def get(self, path: str, name: str | None = None) -> Any:
        holder, key = self.field(path, name)
        return holder.get(key) if isinstance(holder, dict) else holder[key]

    def put(self, path: str, value: Any, name: str | None = None) -> None:
        holder, key = self.field(path, name)
        holder[key] = value

    # --- rules: one for each way in which errors speak -------------------------------------

    def required(self, found: re.Match[str]) -> None:
        if self.get(found["path"], found["name"]) is None:
            value = _made(found["expected"], found["rest"] or "", None)
            self.put(found["path"], value, found["name"])

    def kind(self, found: re.Match[str]) -> None:
        given = self.get(found["path"], found["name"])
        self.put(found["path"], _made(found["expected"], "", given), found["name"])

    def choose(self, found: re.Match[str]) -> None:
        options = [each.strip(" '") for each in found["options"].split(", ")]
        near = get_close_matches(found["given"].strip("'").lower(), options, n=1)
        self.put(found["path"], near[0] if near else options[0], found["name"])

    def bound(self, found: re.Match[str]) -> None:
        given, limit = self.get(found["path"], found["name"]), found["limit"]
        value: Any = limit if isinstance(given, str) else json.loads(limit)
        self.put(found["path"], value, found["name"])

    def match(self, found: re.Match[str]) -> None:
        self.put(found["path"], _matching(found["pattern"]), found["name"])

    def length(self, found: re.Match[str]) -> None:
        given, limit = str(self.get(found["path"], found["name"])), int(found["limit"])
        self.put(found["path"], given[:limit].ljust(limit, "x"), found["name"])

    def many(self, found: re.Match[str]) -> None:
        given = self.get(found["path"], found["name"])
        self.put(found["path"], given[: int(found["limit"])], found["name"])

    def few(self, found: re.Match[str]) -> None:
        values = ["x"] * int(found["limit"])
        self.put(found["path"], values, found["name"])

    def listed(self, found: re.Match[str]) -> None:
        given = self.get(found["path"], found["name"])
        self.put(found["path"], [given] if not isinstance(given, dict) else [], found["name"])

    def rename(self, found: re.Match[str]) -> None:
        path, name = found["path"], found["name"]
        holder, key = self.place(path)
        if name is not None:
            line = holder[key]
            holder, key = (line["data"], name) if name in line.get("data", {}) else (line, name)
        if key in holder:
            holder[found["right"]] = holder.pop(key)

    def into_data(self, found: re.Match[str]) -> None:
        operation, key = self.place(found["path"].rpartition(".")[0])
        operation = operation[key]
        operation.setdefault("data", {})[found["path"].rpartition(".")[2]] = operation.pop(
            found["path"].rpartition(".")[2]
        )

    def fields_into_data(self, found: re.Match[str]) -> None:
        holder, key = self.place(found["path"])
        line = holder[key]
        kept = ("type", "id", "data", "edge", "from", "to")
        for name in [each for each in line if each not in kept]:
            line.setdefault("data", {})[name] = line.pop(name)

    def drop(self, found: re.Match[str]) -> None:
        holder, key = self.field(found["path"], found["name"])
        holder.pop(key, None)

    def missing(self, found: re.Match[str]) -> None:
        self.put(found["path"], found["first"])

    def refer(self, found: re.Match[str]) -> None:
        node = found["node"] or found["other"]
        given = self.get(found["path"], found["name"])
        self.put(found["path"], [node] if isinstance(given, list) else node, found["name"])

    def upsert(self, found: re.Match[str]) -> None:
        holder, key = self.place(found["path"].rpartition(".")[0])
        holder[key]["op"] = "upsert"

    def cascade(self, found: re.Match[str]) -> None:
        holder, key = self.place(found["path"])
        holder[key]["cascade"] = True

    def replace(self, found: re.Match[str]) -> None:
        for name, value in self.arguments.items():
            if value == found["given"]:
                self.arguments[name] = found["right"]

    def line_type(self, found: re.Match[str]) -> None:
        holder, key = self.place(found["path"])
        line = holder[key]
        line["edge" if "edge" in line else "type"] = found["right"]

    def line_edge(self, found: re.Match[str]) -> None:
        holder, key = self.place(found["path"])
        holder[key]["edge"] = holder[key].pop("type")

    def line_node(self, found: re.Match[str]) -> None:
        self.put(found["path"], {"type": found["right"], "data": {}})

    def line_ends(self, found: re.Match[str]) -> None:
        holder, key = self.place(found["path"])
        holder[key][found["right"]] = "?"

    def line_kind(self, found: re.Match[str]) -> None:
        holder, key = self.place(found["path"])
        holder[key]["type"] = "?"

    def objects(self, found: re.Match[str]) -> None:
        given = json.loads(self.arguments["data"])
        self.arguments["data"] = "\n".join(json.dumps(each) for each in given)

    def data(self, found: re.Match[str]) -> None:
        given = self.get(found["path"])
        given = json.loads(given) if isinstance(given, str) else given
        self.put(found["path"], given[0] if isinstance(given, list) else given or {})

    def no_data(self, found: re.Match[str]) -> None:
        holder, key = self.place(found["path"])
        operation = holder[key]
        extra = [name for name in operation if name not in _KEYS]
        operation.setdefault("data", operation.pop(extra[0]) if len(extra) == 1 else {})

    def unknown_node(self, found: re.Match[str]) -> None:
        self.put(found["path"], "?")

    def only_other(self, found: re.Match[str]) -> None:
        self.arguments[found["right"]] = self.given[found["wrong"]]

    def query(self, found: re.Match[str]) -> None:
        wrong, right = found["wrong"], found["right"]
        if wrong in self.arguments.get("query", ""):
            self.arguments["query"] = self.arguments["query"].replace(wrong, right)
            return
        for name, value in self.arguments.get("params", {}).items():
            if isinstance(value, str) and f'"{value}"' == wrong:
                kind = right.rpartition("xsd:")[2]
                term = {"@value": value, "@type": f"http://www.w3.org/2001/XMLSchema#{kind}"}
                self.arguments["params"][name] = term

    def query_node(self, found: re.Match[str]) -> None:
        text = json.dumps(self.arguments).replace(found["wrong"], found["right"])
        self.arguments.update(json.loads(text))

    def flag(self, found: re.Match[str]) -> None:
        self.put(found["path"], str(self.get(found["path"])).lower() in {"true", "yes", "1"})


def _at(rest: str) -> list[str]:
    """A rule for a field of a line, and the same for a path."""
    line = r"(?P<path>line \d+): '?(?P<name>\w+)'?"
    path = r"(?<![\w.])(?<!line \d: )(?P<path>[a-z_]\w*(?:\[\d+\])?(?:\.\w+(?:\[\d+\])?)*)"
    return [line + rest, path + r"(?P<name>(?!))?" + rest]


_NODE = r"did you mean (?P<node>\w+/[^ ?]+)"
_SOME = r"there are (?P<node>\w+/[^ ,;]+)"
_TABLE: list[tuple[str, Any]] = [
    (r" is not a (?:field|parameter|key) of \w[\w.]*; did you mean '(?P<right>\w+)'\?",
     _Repair.rename),
    (r" is not a (?:field|parameter) of \w[\w.]*; it has (?P<right>(?!))?", _Repair.drop),
    (r" is required: (?P<expected>[^;]*?)(?P<rest>, which [^;]*)?(?=;|$)", _Repair.required),
    (r" must be (?P<expected>an? (?!list\b)[^;]*|true or false), not ", _Repair.kind),
    (r" must be the (?P<expected>[^;]*), not ", _Repair.kind),
    (r" must be one of (?P<options>[^;]*), not (?P<given>[^;]*)", _Repair.choose),
    (r" must be at (?:least|most) (?P<limit>[-\d.]+), not ", _Repair.bound),
    (r" must match (?P<pattern>\S+), not ", _Repair.match),
    (r" must have at (?:least|most) (?P<limit>\d+) characters?, not ", _Repair.length),
    (r" may have at most (?P<limit>\d+) values?, not", _Repair.many),
    (r" needs at least (?P<limit>\d+) values?, not", _Repair.few),
    (r" must be a list, not ", _Repair.listed),
    (rf": there is no [^;]*; (?:{_NODE}|{_SOME.replace('node', 'other')})", None),
    (rf" must refer to [^;]*;[^;]*; (?:{_NODE}|{_SOME.replace('node', 'other')})", None),
    (rf": [^;]* is not an? [^;]*; (?:{_NODE}|{_SOME.replace('node', 'other')})", None),
    (r" identifies the node and can't change", _Repair.drop),
]  # fmt: skip


_RULES: list[tuple[str, Any]] = [
    (pattern, rule or _Repair.refer) for rest, rule in _TABLE for pattern in _at(rest)
] + [
    (_PATH + r" is not a key of \w+; it is a field; put it into data", _Repair.into_data),
    (_PATH + r" is missing; choose from (?P<first>\w+)", _Repair.missing),
    (_PATH + r" is not an object of fields", _Repair.data),
    (r"(?P<path>operations\[\d+\])\.data is missing; give the fields", _Repair.no_data),
    (_PATH + r" is missing: the key, (?P<first>)", _Repair.unknown_node),
    (r"(?P<wrong>\w+) is not a parameter of \w+; it has [^;]*; (?P<right>\w+) is required",
     _Repair.only_other),
    (_PATH + r" is not true or false", _Repair.flag),
    (_PATH + r": [^;]* already exists[^;]*; update or upsert it", _Repair.upsert),
    (_PATH + r": [^;]* can't be deleted [^;]*; [^;]* or delete with cascade", _Repair.cascade),
    (r"there is no (?:branch|type|.* commit) '(?P<given>[^']+)'; did you mean '(?P<right>[^']+)",
     _Repair.replace),
    (r"(?P<path>line \d+): '(?P<name>\w+)' is not a key of a line; did you mean '(?P<right>\w+)'",
     _Repair.rename),
    (r"(?P<path>line \d+): '\w+' is not a key of a line; it has .* Fields go into .data",
     _Repair.fields_into_data),
    (r"(?P<path>line \d+): there is no (?:type|edge) '\w+'; did you mean '(?P<right>\w+)'",
     _Repair.line_type),
    (r"(?P<path>line \d+): there is no (?:type|edge) '\?'; it has (?P<right>\w+)",
     _Repair.line_type),
    (r"(?P<path>line \d+): .* belong to an edge; .* write \"edge\"", _Repair.line_edge),
    (r"(?P<path>line \d+): \w+ is not an edge type; write \{\"type\": \"(?P<right>\w+)\"",
     _Repair.line_node),
    (r"(?P<path>line \d+): an edge needs \"(?P<right>\w+)\"", _Repair.line_ends),
    (r"(?P<path>line \d+): it has no \"type\"", _Repair.line_kind),
    (r"line 1: it is not a JSON object .* write one object a line", _Repair.objects),
    (r"no (?:class|field) (?P<wrong>\S+?)(?: \(it is a \w+\))?; did you mean (?P<right>:\w+)",
     _Repair.query),
    (r"is never (?P<wrong>\S+); did you mean (?P<right>\"[^\"]+\")", _Repair.query),
    (r"(?:equals|compared with) (?P<wrong>\S+); write (?:an IRI such as )?(?P<right>\S+)",
     _Repair.query),
    (r"(?P<wrong><\S+>) matches nothing; write (?P<right><[^>]+>)", _Repair.query),
    (r"there is no \w+ '(?P<wrong>\w+/[^']+)'; (?:did you mean|there are) (?P<right>\w+/[^ ,?]+)",
     _Repair.query_node),
    (r"(?P<wrong>\b\w+) is written (?P<right>:\w+)", _Repair.query),
]  # fmt: skip


def _made(expected: str, rules: str, given: Any) -> Any:  # noqa: C901 - a table of kinds
    """A value of a kind that an error describes, near the one that was given."""
    if isinstance(given, list) and len(given) == 1:
        given = given[0]
    if isinstance(given, dict) and len(given) == 1 and "reference" in expected:
        return next(iter(given.values()))
    number = re.search(r"-?\d+(?:[.,]\d+)?", str(given)) if given is not None else None
    like = re.search(r"like '([^']+)'", expected)
    low = re.search(r"at least ([\d.]+)", rules)
    if pattern := re.search(r"must match (\S+)", rules):
        return _matching(pattern[1])
    if options := re.search(r"must be one of '([^']+)'", rules):
        return options[1]
    if "characters" in rules and low:
        return "x" * int(low[1])
    if expected.startswith("a reference"):
        return str(given) if given is not None else "?"
    if "array of" in expected:
        return [1.0] * int(re.findall(r"\d+", expected)[0])
    if "true or false" in expected:
        return str(given).lower() in {"true", "yes", "1"}
    if "written as a string" in expected:
        places = r"-?\d+" if "integer" in expected else r"-?\d+(?:\.\d{1,9})?"
        found = re.search(places, str(given).replace(",", ".")) if number else None
        return found[0] if found else like[1] if like else low[1] if low else "1"
    if "integer" in expected or "finite number" in expected:
        whole = int if "integer" in expected else float
        return whole(float(number[0])) if number else whole(float(low[1])) if low else whole(1)
    if "string" in expected:
        return str(given) if given not in (None, {}) else "x"
    if "object" in expected:
        return json.loads(given) if isinstance(given, str) else {}
    return like[1] if like else "urn:x:y"


def _matching(pattern: str) -> str:
    """A text that matches a simple pattern: literals, classes, and numbers of times."""
    out = []
    for piece, times in re.findall(r"(\[[^\]]+\]|\\d|[^{}^$])(?:\{(\d+)\})?", pattern):
        one = "0" if piece == r"\d" else piece[1] if piece.startswith("[") else piece
        out.append(one * int(times or 1))
    return "".join(out)
