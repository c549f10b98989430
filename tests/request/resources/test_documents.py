"""What is listed, the built-in documents, branches and the past."""

import asyncio
import json

import pytest
from tests.worlds.graphs import Reading

from trails import App, Node, node_type, predicate
from trails.model.actors import LOCAL, Actor
from trails.model.capabilities import StoredQuery
from trails.model.history import MergeRequest
from trails.model.upkeep import Finding, Report
from trails.model.uris import parse_address
from trails.request.admission import KernelOptions
from trails.request.pipeline import Kernel

DOCUMENTS = ["kg/types", "schema", "stats", "branches", "prov/latest", "doctor"]


@pytest.mark.req("T9", "T22", "G18")
def test_every_type_and_document_is_listed_once(northline):
    """The list has one resource a type, described with its cost, and the built-in documents."""
    listed = northline.reader.resources(LOCAL)
    uris = [each.uri for each in listed.resources]
    types = list(northline.app.registry().types)
    assert uris == [f"trails://{name}" for name in DOCUMENTS] + [
        f"trails://kg/{name}" for name in sorted(types)
    ]
    for each in listed.resources[len(DOCUMENTS) :]:
        name = each.uri.removeprefix("trails://kg/")
        assert each.description.startswith(f"List all {name} instances")
        assert "one notification for every change of any instance" in each.description
        assert "more than 1000 instances" in each.description
        assert each.mime_type == "application/json"


@pytest.mark.req("T9")
def test_every_type_has_two_templates_and_instances_are_not_enumerated(northline):
    """Templates are exactly those of a list and of an instance, for every type."""
    templates = [each.uri_template for each in northline.reader.resources(LOCAL).templates]
    for name in northline.app.registry().types:
        assert f"trails://kg/{name}{{?where,limit,offset,cursor}}" in templates
        assert f"trails://kg/{name}/{{id}}" in templates
    assert len(set(templates)) == len(templates)
    assert not any("REQ-" in each for each in templates)


def test_everything_that_is_listed_can_be_read(northline):
    """No resource is a promise only."""
    for each in northline.reader.resources(LOCAL).resources:
        contents = northline.contents(each.uri)
        assert contents[0].mime_type == each.mime_type
        json.loads(contents[0].text)


def test_names_and_descriptions_tell_apart(northline):
    """Every entry has a name and title of its own, and says what it is for."""
    listed = northline.reader.resources(LOCAL)
    for entries in (listed.resources, listed.templates):
        for attribute in ("name", "title", "description"):
            told = [getattr(each, attribute) for each in entries]
            assert len(set(told)) == len(told)
            assert all(told)


@node_type
class Note(Node):
    """A note."""

    text: str = predicate(key=True)


@node_type
class Memo(Node):
    """A memo."""

    text: str = predicate(key=True)


def test_the_list_changes_when_the_types_do():
    """A version stands for one list: the same object until a type comes."""
    with App(Note) as app:
        reader = Kernel(app.service(), KernelOptions())
        before = reader.resources(LOCAL)
        assert reader.resources(LOCAL) is before
        app.register(Memo)
        after = reader.resources(LOCAL)
        assert after.version != before.version
        assert "trails://kg/Memo" in [each.uri for each in after.resources]


@pytest.mark.req("G18")
def test_who_lacks_the_scope_sees_and_reads_nothing(northline):
    """A credential without the runtime scope is shown no resources, and gets none."""
    builder = Actor("builder", frozenset({"builder"}), credential="t-1")
    reader = northline.reader
    assert reader.resources(builder).resources == ()
    assert reader.resources(builder).templates == ()
    for uri in ("trails://schema", "trails://kg/Person", "trails://queries/requirement_trace"):
        assert asyncio.run(reader.read(builder, uri)).kind == "scope"
    done = asyncio.run(reader.complete(builder, "trails://kg/Person/{id}", "id", "", {}))
    assert done.kind == "scope"


@pytest.mark.req("T22", "G18")
def test_the_schema_tells_types_fields_and_constraints(northline):
    """The schema document has every type with its fields' rules and RDF names."""
    schema = northline.body("trails://schema")
    types = {each["type"]: each for each in schema["types"]}
    assert list(types) == sorted(northline.app.registry().types)
    requirement = types["Requirement"]
    assert requirement["key"] == "req_id"
    assert requirement["label"] == "title"
    assert requirement["uri"] == "trails://kg/Requirement"
    assert requirement["predicates"]["title"] == schema["vocabulary"] + "title"
    fields = requirement["schema"]["properties"]
    assert fields["req_id"]["pattern"] == "^REQ-[0-9]{3}$"
    assert "accepted" in fields["status"]["enum"]
    assert types["Person"]["extends"] == "Party"
    assert types["Party"]["extended_by"] == ["Person", "Supplier"]
    assert types["Verification"]["joins"] == {"source": "TestCase", "target": "Requirement"}


@pytest.mark.req("T22")
def test_types_come_with_counts(northline):
    """Counts are those of the ORM, subtypes included, and each URI lists that many."""
    found = {each["type"]: each for each in northline.body("trails://kg/types")}
    ctx = northline.app.context()
    for name, cls in northline.app.registry().classes.items():
        assert found[name]["count"] == cls.objects(ctx).count()
        listed = northline.body(found[name]["uri"] + "?limit=1000")
        assert len(listed) == found[name]["count"]


@pytest.mark.req("T22")
def test_statistics_count_what_there_is(northline):
    """Instances are counted once, beside commits, branches and bytes."""
    stats = northline.body("trails://stats")
    by_type = stats["by_type"]
    assert stats["instances"] == sum(by_type.values()) - by_type["Person"] - by_type["Supplier"]
    assert stats["head"] == northline.app.context().kg.head.commit
    assert stats["commits"] == 2
    assert stats["branches"] == 1
    assert stats["capabilities"] == 6
    assert stats["queries"] == 5
    assert all(stats["bytes"][part] > 10_000 for part in ("log", "node_index", "quads_view"))


@pytest.mark.req("T22")
def test_the_doctor_tells_what_it_finds():
    """A finding of the function that was handed in stands in the document."""
    findings = (Finding("disk", "problem", "full", "free some"), Finding("log", "ok", "fine"))
    with App(Note) as app:
        told = Reading(app)
        assert told.body("trails://doctor")["healthy"] is True
        told.reader = Kernel(app.service(), KernelOptions(doctor=lambda: Report("main", findings)))
        body = told.body("trails://doctor")
        assert (body["healthy"], body["subject"]) == (False, "main")
        *given, projections = body["findings"]
        assert given == [
            {"name": "disk", "severity": "problem", "detail": "full", "fix": "free some"},
            {"name": "log", "severity": "ok", "detail": "fine"},
        ]
        assert (projections["name"], projections["severity"]) == ("projections", "ok")


@pytest.mark.req("G18")
def test_a_query_tells_its_parameters(northline):
    """A stored query's document has the JSON Schema of its parameters and the tool's name."""
    told = northline.body("trails://queries/requirement_trace")
    assert told["parameters"]["required"] == ["req_id"]
    assert told["parameters"]["properties"]["req_id"]["pattern"] == "^REQ-[0-9]{3}$"
    assert told["tool"] == "requirement_trace"
    assert (
        "did you mean 'requirement_trace'"
        in northline.failure("trails://queries/req_trace").message
    )


@pytest.mark.req("T22")
def test_the_latest_activities_tell_who_read_what():
    """Each read leaves an activity with its outcome, and none tells a value that was asked for."""
    with App(Note) as app:
        Note(text="one").save(app.context(actor="writer"), message="first")
        reading = Reading(app)
        reading.body("trails://kg/Note?where=text=secret")
        reading.failure("trails://kg/Note/absent")
        reading.failure("trails://kg/Note?where=secret")
        reading.failure("trails://kg/Note/\ud800")
        asyncio.run(
            reading.reader.read(Actor("other", frozenset(), credential="t-1"), "trails://schema")
        )
        latest = reading.body("trails://prov/latest")
        told = [(each["agent"], each["outcome"], each["detail"]) for each in latest["activities"]]
        assert told == [
            ("other", "scope", "trails://schema"),
            ("local", "validation", "'trails://kg/Note/\\ud800'"),
            ("local", "validation", "trails://kg/Note"),
            ("local", "not_found", "trails://kg/Note/absent"),
            ("local", "ok", "trails://kg/Note"),
        ]
        assert {each["activity"] for each in latest["activities"]} == {"resources/read"}
        assert all(each["started"] <= each["ended"] for each in latest["activities"])
        newest = latest["commits"][0]
        assert (newest["agent"], newest["message"]) == ("writer", "first")
        assert "secret" not in json.dumps(latest)


@pytest.mark.req("T22")
def test_what_was_just_done_is_among_the_latest():
    """Activities that still wait to be written are told too."""
    with App(Note) as app:
        reader = Kernel(app.service(), KernelOptions())

        async def ask():
            await reader.read(LOCAL, "trails://kg/Note")
            return await reader.read(LOCAL, "trails://prov/latest")

        latest = json.loads(asyncio.run(ask())[0].text)
        assert [each["detail"] for each in latest["activities"]] == ["trails://kg/Note"]


@pytest.mark.req("G18")
def test_a_query_that_is_not_offered_is_unknown():
    """A query that no tool is made of has no document and no completion either."""
    with App(Note) as app:
        hidden = StoredQuery("hidden", "Secret.", "SELECT * {}", expose=False)
        app.service().cell.register(queries=[hidden, StoredQuery("shown", "Open.", "SELECT * {}")])
        reading = Reading(app)
        assert reading.body("trails://queries/shown")["description"] == "Open."
        failure = reading.failure("trails://queries/hidden")
        assert failure.kind == "unknown"
        assert failure.message == "there is no stored query 'hidden'; it has shown"
        assert reading.complete("trails://queries/{name}", "name").values == ("shown",)


@pytest.mark.req("T22")
def test_the_latest_activities_are_bounded():
    """However much was done, the document has the last fifty calls and twenty commits."""
    with App(Note) as app:
        for number in range(25):
            Note(text=str(number)).save(app.context())
        reading = Reading(app)
        for number in range(60):
            reading.body(f"trails://kg/Note/{number % 25}")
        latest = reading.body("trails://prov/latest")
        assert len(latest["activities"]) == 50
        assert latest["activities"][0]["detail"] == "trails://kg/Note/9"
        assert len(latest["commits"]) == 20


@pytest.fixture
def versioned():
    """A note on main, another on a branch, and the commit at which main was empty of both."""
    with App(Note) as app:
        empty = app.context().kg.head.commit
        Note(text="one").save(app.context(), message="first")
        app.versions().create_branch("agents/ada")
        Note(text="two").save(app.context(branch="agents/ada", actor="ada"))
        yield Reading(app), empty


@pytest.mark.req("G18")
def test_branches_are_listed_with_their_heads(versioned):
    """Main comes first; each branch has its newest commit and a URI that reads there."""
    reading, _ = versioned
    main, branch = reading.body("trails://branches")
    assert (main["name"], main["message"]) == ("main", "first")
    assert branch["actor"] == "ada"
    assert branch["uri"] == "trails://branch/agents%2Fada/kg/types"
    assert reading.body(branch["uri"])[0]["uri"] == "trails://branch/agents%2Fada/kg/Note"
    assert reading.body(branch["uri"])[0]["count"] == 2


def labels(reading: Reading, uri: str) -> list[str]:
    """What a list holds."""
    return [each["label"] for each in reading.body(uri)]


def test_a_branch_and_the_past_are_read_by_uri(versioned):
    """Every list, instance, schema and statistic can be read on a branch and as of a commit."""
    reading, empty = versioned
    branch = "trails://branch/agents%2Fada"
    assert labels(reading, "trails://kg/Note") == ["one"]
    assert labels(reading, "trails://branch/main/kg/Note") == ["one"]
    assert labels(reading, f"{branch}/kg/Note") == ["one", "two"]
    assert labels(reading, f"{branch}/kg/Note?where=text=two") == ["two"]
    assert labels(reading, f"trails://at/{empty}/kg/Note") == []
    assert labels(reading, f"trails://at/{empty[:8]}/kg/Note") == []
    assert reading.body(f"{branch}/kg/Note/two")["@id"] == "trails://app/main/Note/two"
    assert reading.failure("trails://kg/Note/two").kind == "unknown"
    assert reading.failure(f"trails://at/{empty}/kg/Note/one").kind == "unknown"
    assert reading.body(f"{branch}/stats")["instances"] == 2
    assert reading.body(f"trails://at/{empty}/stats")["instances"] == 0
    assert reading.body(f"trails://at/{empty}/stats")["snapshot"] == empty
    assert reading.body(f"{branch}/schema") == reading.body("trails://schema")


def test_what_a_list_shows_reads_back_as_shown(versioned):
    """On main by the IRI, elsewhere by a handle that names the place; references take both."""
    reading, _ = versioned
    names = reading.app.graph().names
    head = reading.app.context(branch="agents/ada").kg.head.commit
    shown = {"": ["one"], "branch/agents%2Fada/": ["one", "two"], f"at/{head}/": ["one", "two"]}
    for place, labels in shown.items():
        items = reading.body(f"trails://{place}kg/Note")
        assert [item["label"] for item in items] == labels
        for item in items:
            document = reading.body(item["iri"])
            assert document["trails://app/main/schema#text"] == {"@value": item["label"]}
            assert names.parse_node(item["iri"]) == ("Note", item["label"])
    noted = reading.contents("trails://branch/agents%2Fada/kg/Note/one")[1]
    assert noted.text.endswith("as it is here: trails://branch/agents%2Fada/kg/{Type}/{id}")
    assert reading.body(noted.uri)
    assert len(reading.contents("trails://kg/Note/one")) == 1


def test_a_snapshot_is_no_branch(versioned):
    """The past is named by its commit alone, not by the name that it has inside."""
    reading, empty = versioned
    assert labels(reading, f"trails://at/{empty}/kg/Note") == []
    assert reading.failure(f"trails://branch/@{empty}/kg/Note").kind == "unknown"


def test_the_past_has_its_own_types(versioned):
    """A type that came later is unknown at a commit before it."""
    reading, empty = versioned
    reading.app.register(Memo)
    assert labels(reading, "trails://kg/Memo") == []
    assert reading.failure(f"trails://at/{empty}/kg/Memo").kind == "unknown"
    types = [each["type"] for each in reading.body(f"trails://at/{empty}/kg/types")]
    assert types == ["Note"]


def test_pages_go_on_where_they_are(versioned):
    """The next page of a branch or snapshot is on the same branch or snapshot."""
    reading, _ = versioned
    ctx = reading.app.context(branch="agents/ada")
    ctx.kg.save_all([Note(text=f"n{number}") for number in range(5)])
    head = ctx.kg.head.commit
    for start in ("trails://branch/agents%2Fada", f"trails://at/{head}"):
        _, note = reading.contents(f"{start}/kg/Note?limit=4")
        assert note.uri.startswith(f"{start}/kg/Note?limit=4&cursor=")
        assert labels(reading, note.uri) == ["n2", "n3", "n4"]
        assert "4 of 7" in note.text


def test_a_branch_that_is_deleted_is_unknown(versioned):
    """After its deletion a branch is not found; main has what was merged."""
    reading, _ = versioned
    versions = reading.app.versions()
    assert labels(reading, "trails://branch/agents%2Fada/kg/Note") == ["one", "two"]
    versions.merge(MergeRequest(source="agents/ada"))
    versions.delete_branch("agents/ada")
    assert reading.failure("trails://branch/agents%2Fada/kg/Note").kind == "unknown"
    assert labels(reading, "trails://kg/Note") == ["one", "two"]


# --- completion --------------------------------------------------------------------------

LIST = "trails://kg/Requirement{?where,limit,offset,cursor}"
ONE = "trails://kg/Requirement/{id}"


def test_ids_are_completed_from_the_index(northline):
    """An id is completed by prefix, a hundred at most, in order."""
    everything = northline.complete(ONE, "id")
    assert len(everything.values) == 88
    assert (everything.total, everything.more) == (88, False)
    assert northline.complete(ONE, "id", "REQ-08").values == tuple(
        f"REQ-{number:03}" for number in range(80, 89)
    )
    assert northline.complete(ONE, "id", "nope").values == ()
    assert northline.complete("trails://kg/Party/{id}", "id", "a").values == tuple(
        sorted(northline.complete("trails://kg/Party/{id}", "id", "a").values)
    )


def test_completion_is_bounded_and_finds_any_text():
    """More than a hundred ids are cut with a word that there are more; odd ids are found."""
    odd = ["a/b", "a b", "é", "~", "%41"]
    with App(Note) as app:
        ctx = app.context()
        ctx.kg.save_all([Note(text=text) for text in (*odd, *(f"n{at:03}" for at in range(150)))])
        reading = Reading(app)
        found = reading.complete("trails://kg/Note/{id}", "id", "n")
        assert found.values == tuple(f"n{at:03}" for at in range(100))
        assert found.more
        for text in odd:
            assert reading.complete("trails://kg/Note/{id}", "id", text).values == (text,)
        app.versions().create_branch("b")
        Note(text="only here").save(app.context(branch="b"))
        Note(text="n140x").save(app.context(branch="b"))
        Note.get(app.context(branch="b"), "n149").delete(app.context(branch="b"))
        template = "trails://branch/{branch}/kg/{type}/{id}"
        at = {"branch": "b", "type": "Note"}
        assert reading.complete(template, "id", "o", **at).values == ("only here",)
        assert reading.complete(template, "id", "n14", **at).values == (
            "n140",
            "n140x",
            *(f"n{at}" for at in range(141, 149)),
        )


def test_filters_are_completed_field_by_field(northline):
    """First the names of fields, then the values of those that have a choice."""
    assert northline.complete(LIST, "where", "st").values == ("status=", "status_reason=")
    assert northline.complete(LIST, "where", "status=").values == (
        "status=proposed",
        "status=accepted",
        "status=rejected",
    )
    assert northline.complete(LIST, "where", "status=ac").values == ("status=accepted",)
    assert northline.complete(LIST, "where", "title=").values == ()
    assert northline.complete(LIST, "where", "nope=").values == ()
    for value in northline.complete(LIST, "where", "status=").values:
        northline.contents(f"trails://kg/Requirement?where={value}")


def test_branches_commits_types_and_queries_are_completed(northline):
    """Every variable of every template that has a known set of values is completed."""
    placed = "trails://branch/{branch}/kg/{type}/{id}"
    past = "trails://at/{commit}/kg/{type}{?where,limit,offset,cursor}"
    head = northline.app.context().kg.head.commit
    assert northline.complete(placed, "branch", "m").values == ("main",)
    assert northline.complete(placed, "type", "te", branch="main").values == ("Team", "TestCase")
    assert northline.complete(placed, "id", "REQ-00", branch="main", type="Requirement").total == 9
    assert northline.complete(placed, "id", "REQ-00", branch="main").values == ()
    assert northline.complete(past, "commit").values[0] == head
    assert northline.complete(past, "commit", head[:5]).values == (head,)
    assert northline.complete(past, "commit", "xyz").values == ()
    assert northline.complete(past, "where", "stat", commit=head, type="Hazard").values == (
        "status=",
    )
    assert northline.complete(past, "limit").values == ()
    assert northline.complete("trails://queries/{name}", "name", "req").values == (
        "requirement_trace",
    )


@pytest.mark.parametrize(
    ("template", "variable", "given", "kind"),
    [
        ("trails://kg/Nope/{id}", "id", {}, "unknown"),
        ("trails://kg/Requirement", "id", {}, "unknown"),
        (ONE, "name", {}, "validation"),
        ("trails://branch/{branch}/kg/{type}/{id}", "type", {"branch": "nope"}, "unknown"),
    ],
)
def test_what_can_not_be_completed_is_told(northline, template, variable, given, kind):
    """An unknown template, variable or branch is a failure."""
    assert northline.complete(template, variable, "", **given).kind == kind


def test_every_template_expands_to_a_uri_that_is_read(northline):
    """Filled with values that completion gives, each template is an address of the grammar."""
    given = {"branch": "main", "type": "Requirement", "name": "requirement_trace"}
    given["commit"] = northline.complete("trails://at/{commit}/schema", "commit").values[0]
    for each in northline.reader.resources(LOCAL).templates:
        template = each.uri_template
        uri = template.replace("{?where,limit,offset,cursor}", "?limit=1")
        for name, value in given.items():
            uri = uri.replace(f"{{{name}}}", value)
        if "{id}" in uri:
            uri = uri.replace("{id}", northline.complete(template, "id", "", **given).values[0])
        parse_address(uri, "x:")
        assert northline.contents(uri)[0].mime_type == each.mime_type
