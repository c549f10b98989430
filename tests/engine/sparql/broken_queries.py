"""Stored queries with one mistake each, and what the author is told: file → (text, message).

The types that they are checked against are in ``test_stored_queries``.
"""

OK = "#+ description: Finds it.\n"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
GOOD = "SELECT ?t { ?t a :Task }"


def with_params(params: str, body: str = "SELECT ?t { ?t :title $p }") -> str:
    """A query whose mistake is in its parameters."""
    return f"{OK}#+ params: {params}\n{body}\n"


BROKEN: dict[str, tuple[str, str]] = {
    # --- the header
    "no_header": (GOOD, ":1: it has no header; begin the file with '#+ description"),
    "empty_file": ("", "it has no header"),
    "header_below": (f"# a comment\n{OK}{GOOD}", ":1: it has no header"),
    "header_in_two": (
        f"{OK}\n#+ expose: false\n{GOOD}",
        ":3: header lines must be together at the top",
    ),
    "not_yaml": (
        f"#+ description: Finds: this\n{GOOD}",
        ":1: the header is not YAML: mapping values are not allowed here",
    ),
    "unclosed": (f"{OK}#+ params: {{ p: String\n{GOOD}", "the header is not YAML"),
    "a_list": (f"#+ - description\n{GOOD}", "the header must be keys with values"),
    "a_word": (f"#+ description\n{GOOD}", "the header must be keys with values"),
    "tagged": (
        f"{OK}#+ params: !!python/object/apply:os.system ['true']\n{GOOD}",
        ":2: YAML's anchors, aliases and tags ('tag:yaml.org,2002:python/object",
    ),
    "tagged_scalar": (f"#+ description: !!bool x\n{GOOD}", ":1: YAML's anchors, aliases and tags"),
    "odd_scalar": (f"#+ description: =\n{GOOD}", ":1: the header is not YAML: could not"),
    "anchored": (f"#+ description: &a It\n#+ name: *a\n{GOOD}", "aliases and tags ('a')"),
    "laughs": (
        f"{OK}#+ params: {{a: &a [x, x], b: &b [*a, *a], c: [*b, *b]}}\n{GOOD}",
        ":2: YAML's anchors, aliases and tags ('a') are not",
    ),
    "control_character": (f"#+ description: bell \a\n{GOOD}", "characters that YAML does not"),
    "twice": (f"{OK}{OK}{GOOD}", ":2: description: is declared twice"),
    "too_long_header": (f"#+ description: {'x' * 20_000}\n{GOOD}", "longer than 16 KiB"),
    "too_deep_header": (f"{OK}#+ params: {'[' * 5000}\n{GOOD}", "the header nests too deep"),
    "unknown_key": (
        f"#+ descripton: Finds it.\n{GOOD}",
        ":1: descripton: is not a key of the header; did you mean 'description'?",
    ),
    "unlike_any_key": (f"{OK}#+ zzz: 1\n{GOOD}", ":2: zzz: is not a key of the header; known keys"),
    "number_as_key": (f"{OK}#+ 17: 1\n{GOOD}", ":2: 17: is not a key of the header"),
    "mapping_as_key": (f"{OK}#+ {{a: 1}}: 1\n{GOOD}", ":2: a key must be a word"),
    "merge_key": (f"{OK}#+ <<: {{expose: false}}\n{GOOD}", ":2: <<: is not a key"),
    "impossible_date": (
        with_params("{ p: { type: Date, default: 2026-13-45 } }"),
        ":2: params.p.default: '2026-13-45' can't be read; put it in quotes",
    ),
    # --- name, description, tool_name, expose
    "other_name": (
        f"#+ name: another\n{OK}{GOOD}",
        ":1: name: must be the file's name, 'other_name'",
    ),
    "no description": (f"{OK}{GOOD}", ":1: name: 'no description' can't name a tool"),
    "undescribed": (f"#+ expose: true\n{GOOD}", ":1: description: is missing"),
    "empty_description": (f"#+ description:\n{GOOD}", ":1: description: must be a string"),
    "blank_description": (f"#+ description: '  '\n{GOOD}", ":1: description: must be a string"),
    "bad_tool_name": (f"{OK}#+ tool_name: find it!\n{GOOD}", ":2: tool_name: 'find it!' can't"),
    "tool_number": (f"{OK}#+ tool_name: 7\n{GOOD}", ":2: tool_name: must be a string"),
    "expose_word": (f"{OK}#+ expose: maybe\n{GOOD}", ":2: expose: must be true or false"),
    # --- parameters
    "params_list": (with_params("[p]"), ":2: params: must be names with types"),
    "unknown_type": (
        with_params("{ p: Strin }"),
        ":2: params.p: 'Strin' is not a type; did you mean 'String'?",
    ),
    "unknown_node_type": (with_params("{ p: Tsak }"), "did you mean 'Task'?"),
    "number_as_type": (with_params("{ p: 7 }"), ":2: params.p: a type is the name of a kind"),
    "null_type": (with_params("{ p: }"), ":2: params.p: has no type"),
    "no_type": (with_params("{ p: { nullable: true } }"), ":2: params.p: has no type"),
    "unknown_param_key": (
        with_params("{ p: { type: String, min_lenght: 3 } }"),
        ":2: params.p.min_lenght: is not a key of params.p; did you mean 'min_length'?",
    ),
    "key_constraint": (
        with_params("{ p: { type: String, unique: true } }"),
        "params.p.unique: is not a key of params.p",
    ),
    "control_argument": (
        with_params("{ branch: String }", "SELECT ?t { ?t :title $branch }"),
        ":2: params.branch: parameter 'branch' is a control argument",
    ),
    "bad_param_name": (
        with_params("{ Name: String }", "SELECT ?t { ?t :title $Name }"),
        "params.Name: a field name starts with a lower-case letter",
    ),
    "list_of_nothing": (with_params("{ p: List }"), "a list needs the type of its items"),
    "list_of_two": (with_params("{ p: [String, Int] }"), "a list has one type of items"),
    "list_of_lists": (with_params("{ p: [[String]] }"), "params.p: a type is the name of a kind"),
    "list_of_vectors": (with_params("{ p: [Vector] }"), "a list can't hold vectors"),
    "of_without_list": (with_params("{ p: { type: String, of: Int } }"), "'of' belongs to"),
    "vector_without_size": (with_params("{ p: Vector }"), "a Vector needs its dimension"),
    "vector_of_none": (with_params("{ p: { type: Vector, dimension: 0 } }"), "between 1 and 65536"),
    "dimension_of_text": (
        with_params("{ p: { type: String, dimension: 3 } }"),
        "dimension belongs to Vector",
    ),
    "nullable_word": (with_params("{ p: { type: Int, nullable: 1 } }"), "nullable must be true or"),
    "null_and_default": (
        with_params("{ p: { type: Int, nullable: true, default: 1 } }"),
        "has a default, so it is never null",
    ),
    "null_and_counted": (
        with_params("{ p: { type: [Int], nullable: true, min_count: 2 } }"),
        "min_count and nullable contradict",
    ),
    "bad_default": (
        with_params("{ p: { type: Int, default: many } }"),
        "params.p: default='many' is not an integer",
    ),
    "default_of_no_node": (
        with_params("{ p: { type: Person, default: true } }"),
        ":2: params.p: its default must be a reference: 'Type/id', an IRI or a key",
    ),
    "default_of_other_type": (
        with_params("{ p: { type: Person, default: Task/a } }"),
        ":2: params.p: default='Task/a': it names a Task; name a Person",
    ),
    "default_of_no_type": (
        with_params("{ p: { type: Person, default: 'trails://kg/Persn/ann' } }"),
        "default='trails://kg/Persn/ann': there is no type 'Persn'; did you mean 'Person'?",
    ),
    "default_of_no_key": (
        with_params("{ p: { type: Person, default: '' } }"),
        "default='': '' can't be a key of Person: it is empty",
    ),
    "default_of_many": (
        with_params("{ p: { type: Person, default: [Ann] } }"),
        "its default must be one reference",
    ),
    "default_of_one": (
        with_params("{ p: { type: [Person], default: Ann } }"),
        "its default must be a list of references",
    ),
    "default_of_too_many": (
        with_params("{ p: { type: [Person], default: [Ann, Bob], max_count: 1 } }"),
        "its default has 2 values, which min_count and max_count refuse",
    ),
    "default_and_null_node": (
        with_params("{ p: { type: Person, default: Ann, nullable: true } }"),
        "has a default, so it is never null",
    ),
    "default_out_of_range": (
        with_params("{ p: { type: Int, default: 9, max_value: 5 } }"),
        "default must be at most 5",
    ),
    "bad_pattern": (with_params("{ p: { type: String, pattern: '(' } }"), "params.p: "),
    "pattern_of_number": (
        with_params("{ p: { type: Int, pattern: x } }"),
        "params.p: pattern does not apply to Int",
    ),
    "range_of_text": (
        with_params("{ p: { type: String, min_value: 1 } }"),
        "params.p: min_value does not apply to String",
    ),
    "length_as_text": (
        with_params("{ p: { type: String, max_length: long } }"),
        "max_length='long' must be a whole number",
    ),
    "range_upside_down": (
        with_params("{ p: { type: Int, min_value: 5, max_value: 1 } }"),
        "min_value=5 is above max_value=1",
    ),
    "no_choice": (with_params("{ p: { type: String, one_of: [] } }"), "leaves no legal value"),
    "choice_of_maps": (with_params("{ p: { type: String, one_of: [{a: 1}] } }"), "is not a string"),
    "yes_is_a_bool": (with_params("{ p: { type: String, one_of: [yes] } }"), "is not a string"),
    "counted_scalar": (with_params("{ p: { type: Int, max_count: 3 } }"), "above 1 need a list"),
    "described_by_number": (
        with_params("{ p: { type: Int, description: 1 } }"),
        "must be a string",
    ),
    "unused": (
        with_params("{ p: String, q: String }"),
        ":2: params.q: is not in the query; write it there as $q",
    ),
    "undeclared": (
        f"{OK}SELECT ?t {{\n  ?t :title $p }}",
        ":3: $p is not declared; add 'p: <type>' to params",
    ),
    "only_in_comment": (with_params("{ p: String }", f"{GOOD} # $p"), "params.p: is not in"),
    "only_in_string": (
        with_params("{ p: String }", 'SELECT ?t { ?t :title "$p" }'),
        "params.p: is not in the query",
    ),
    "bound_to_param": (
        with_params("{ p: Int }", "SELECT ?t { ?t :title $p BIND (1 AS ?p) }"),
        "?p is a parameter, so nothing else can be bound to it",
    ),
    "list_as_value": (
        with_params("{ p: [String] }"),
        "$p is a list, so use it after IN",
    ),
    "null_limit": (
        with_params("{ p: { type: Int, min_value: 0, nullable: true } }", GOOD + " LIMIT $p"),
        ":3: the query can't be parsed when its nullable parameters are null",
    ),
    "null_in_data": (
        with_params("{ p: { type: String, nullable: true } }", "INSERT DATA { <x:x> :title $p }"),
        "can't be parsed when its nullable parameters are null",
    ),
    "limit_by_text": (
        with_params("{ p: String }", GOOD + " LIMIT $p"),
        ":3: params.p: is used after LIMIT; declare it as '{ type: Int, min_value: 0 }'",
    ),
    "offset_below_zero": (
        with_params("{ p: Int }", GOOD + " OFFSET $p"),
        ":3: params.p: is used after OFFSET",
    ),
    # --- the form
    "no_query": (OK, ":2: there is no query"),
    "only_prefix": (f"{OK}PREFIX x: <https://x.org/>", "there is no query"),
    "service": (
        f"{OK}SELECT ?t {{\n SERVICE <https://x.org/> {{ ?t a :Task }} }}",
        ":3: SERVICE reaches other servers",
    ),
    "load": (f"{OK}LOAD <https://x.org/>", ":2: LOAD works on whole graphs"),
    "clear": (f"{OK}CLEAR ALL", ":2: CLEAR works on whole graphs"),
    "clear_beside": (f"{OK}DELETE WHERE {{ ?t :title ?x }} ;\nDROP ALL", ":3: DROP works on whole"),
    "mixed": (
        f"{OK}SELECT ?t {{ ?t a :Task }}\nDELETE WHERE {{ ?t a :Task }}",
        ":3: SELECT and DELETE are mixed",
    ),
    "two_reads": (f"{OK}{GOOD}\nASK {{ ?t a :Task }}", "it has ASK and SELECT; one file is one"),
    "too_long": (f"{OK}{GOOD} # {'x' * 70_000}", "64 KiB"),
    "much_too_long": (f"{OK}{GOOD} # {'x' * 90_000}", ":1: is longer than 80 KiB"),
    "too_deep": (f"{OK}SELECT ?t {'{' * 40} ?t a :Task {'}' * 40}", "32 levels"),
    # --- classes and fields
    "unknown_class": (
        f"{OK}SELECT ?t {{\n  ?t a :Tsak }}",
        ":3: there is no class :Tsak; did you mean :Task?",
    ),
    "unknown_field": (
        f"{OK}SELECT ?t {{ ?t a :Task ;\n :titel ?x }}",
        ":3: there is no field :titel; did you mean :title?",
    ),
    "field_as_class": (f"{OK}SELECT ?t {{ ?t a :title }}", "no class :title (it is a field)"),
    "class_as_field": (f"{OK}SELECT ?t {{ ?t :Task ?x }}", "no field :Task (it is a class)"),
    "field_in_path": (
        f"{OK}SELECT ?n {{ ?t :owner/:nam ?n }}",
        "no field :nam; did you mean :name",
    ),
    "field_in_long_path": (
        f"{OK}SELECT ?n {{ ?t (^:owner|!(:title|:tilte))+/:name? ?n . ?n a :Task }}",
        "no field :tilte; did you mean :title",
    ),
    "class_after_path": (
        f"{OK}SELECT ?n {{ ?t :owner/a :Persn }}",
        "no class :Persn; did you mean",
    ),
    "class_by_rdf_type": (
        f"{OK}PREFIX r: <{RDF}>\nSELECT ?t {{ ?t r:type :Tusk }}",
        ":3: there is no class :Tusk",
    ),
    "class_by_full_iri": (
        f"{OK}SELECT ?t {{ ?t a <trails://app/main/schema#Tasks> }}",
        "there is no class <trails://app/main/schema#Tasks>; did you mean :Task?",
    ),
    "own_prefix": (
        f"{OK}PREFIX kg: <trails://app/main/schema#>\nSELECT ?t {{ ?t kg:titl ?x }}",
        ":3: there is no field kg:titl; did you mean :title?",
    ),
    "second_class": (f"{OK}SELECT ?t {{ ?t a :Task, :Perso }}", "no class :Perso; did you mean"),
    "with_full_stop": (f"{OK}SELECT ?t {{ ?t a :Tsk. ?t :title ?x. }}", "no class :Tsk; did"),
    "in_blank_node": (f"{OK}SELECT ?t {{ ?t :owner [ :nmae ?n ] }}", "no field :nmae; did you"),
    "in_optional": (f"{OK}SELECT ?t {{ ?t a :Task OPTIONAL {{ ?t :deu ?d }} }}", "no field :deu"),
    "in_not_exists": (
        f"{OK}SELECT ?t {{ ?t a :Task FILTER NOT EXISTS {{ ?t :ownr ?o }} }}",
        "no field :ownr; did you mean :owner",
    ),
    "in_exists_expression": (
        f"{OK}SELECT ?t {{ ?t a :Task FILTER (true && EXISTS {{ ?t :ownr ?o }}) }}",
        "no field :ownr",
    ),
    "in_subquery": (
        f"{OK}SELECT ?t {{ {{ SELECT (MAX(?x) AS ?t) {{ ?y :titles ?x }} }} }}",
        "no field :titles",
    ),
    "in_union": (f"{OK}SELECT ?t {{ {{ ?t a :Task }} UNION {{ ?t a :Tack }} }}", "no class :Tack"),
    "in_template": (
        f"{OK}DELETE {{ ?t :statsu ?s }} WHERE {{ ?t :status ?s }}",
        "no field :statsu; did you mean :status",
    ),
    "in_values": (f"{OK}SELECT ?t {{ VALUES ?c {{ :Tsak }} ?t a ?c }}", "no class or field :Tsak"),
    "in_filter": (f"{OK}SELECT ?t {{ ?t a ?c FILTER (?c != :Tsak) }}", "no class or field :Tsak"),
    "after_number": (f"{OK}SELECT ?t {{ ?t :age 1.5 ; :nam ?n }}", "no field :nam"),
    "field_with_other_iri": (
        f"{OK}SELECT ?t {{ ?t :summary ?s }}",
        "no field :summary; did you mean <https://schema.org/abstract>?",
    ),
    # --- the parser
    "unbalanced": (f"{OK}SELECT ?t {{\n ?t a :Task", "the query can't be parsed"),
    "not_sparql": (f"{OK}SELECT\n  ?t WHAT {{ ?t a :Task }}", ":3: the query can't be parsed"),
    "no_such_prefix": (f"{OK}SELECT ?t {{ ?t foaf:name ?n }}", ":2: the query can't be parsed"),
    "relative_iri": (f"{OK}SELECT ?t {{ ?t a <Task> }}", "no class <Task>; did you mean :Task?"),
    "ungrouped": (f"{OK}SELECT ?t (COUNT(?n) AS ?c) {{ ?t :title ?n }}", "can't be parsed"),
    "null_byte": (f"{OK}SELECT ?t {{ ?t a \0 :Task }}", ":2: "),
}
