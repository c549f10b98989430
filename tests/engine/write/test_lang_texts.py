"""Text in several languages: one text for each tag, changed and merged by language.

Other tests of its parts: the table's own in ``tests/model/test_kinds.py``, merges, blame and time
travel against a model in ``tests/engine/history/test_model.py``, files in
``tests/engine/transfer/test_export.py``, every surface in ``test_kinds_history.py``.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator

import pyshacl
import pytest
import rdflib
from tests.journeys.access.hidden_parts import Restricted
from tests.worlds.graphs import Calls, writing

from trails import App, LangText, MergeRequest, Node, node_type, predicate
from trails.engine.graph.changes import net_between, show_changes
from trails.engine.session.context import GraphContext
from trails.engine.transfer.rdf import load_rdf
from trails.engine.upkeep.verify import verify
from trails.engine.write.mutate import local_effect, mutate_sparql
from trails.errors import DeclarationError, QueryError, TrailsError, ValidationError
from trails.model.values.lang_texts import LangTextError
from trails.model.visibility import Visibility
from trails.projections.json_schema import project_type
from trails.projections.shacl import project_shacl


@node_type
class Word(Node):
    """A word in several languages."""

    code: str = predicate(key=True)
    title: LangText = predicate(label=True, search=True, max_length=10, languages=["en"])
    note: LangText | None = predicate(pattern="^[a-z ]+$")


@pytest.fixture
def app() -> Iterator[App]:
    """A graph in memory with a word."""
    with App(Word, name="app") as made:
        Word(code="bread", title={"en": "Bread", "de-ch": "Brot"}).save(made.context())
        yield made


@pytest.fixture
def ctx(app: App) -> GraphContext:
    """Someone at work in it."""
    return app.context()


def update(app: App, text: str) -> None:
    """Run a SPARQL Update."""
    graph = app.graph()
    effect = local_effect(graph, graph.main)
    mutate_sparql(graph, graph.main, app.context().kg.transaction, text, effect)


# --- the value ----------------------------------------------------------------------------------


def test_a_value_is_a_mapping_that_never_changes() -> None:
    """Tags are kept in lower case and in order."""
    title = LangText({"de-CH": "Brot"}, en="Bread")
    assert dict(title) == {"de-ch": "Brot", "en": "Bread"}
    assert (title.en, title["de-CH"], title.get("fr"), len(title)) == ("Bread", "Brot", None, 2)
    assert title == LangText({"en": "Bread", "de-ch": "Brot"})
    assert len({title, LangText({"DE-CH": "Brot", "en": "Bread"})}) == 1
    assert title | {"EN": "Loaf"} == LangText({"en": "Loaf", "de-ch": "Brot"})
    assert title.without("de-CH") == LangText(en="Bread")
    assert title.without("en", "de-ch") is None
    assert copy.deepcopy(title) == pickle.loads(pickle.dumps(title)) == title  # noqa: S301
    assert eval(repr(title)) == title  # noqa: S307
    with pytest.raises(AttributeError, match="there is no text for 'fr'"):
        _ = title.fr
    with pytest.raises(KeyError):
        _ = title["fr"]


BEST = (
    ({"en": "e", "de": "d"}, ("de-CH", "en"), "d"),
    ({"en": "e", "de-ch": "c"}, ("de",), "c"),
    ({"en": "e", "de-at": "a", "de-ch": "c"}, ("de-ch",), "c"),
    ({"en": "e", "de-at": "a"}, ("de-ch",), "a"),
    ({"en-gb": "g", "fr": "f"}, ("it",), "g"),
    ({"fr": "f", "it": "i"}, ("de",), "f"),
    ({"fr": "f", "en": "e"}, (), "e"),
)


@pytest.mark.parametrize(("texts", "wanted", "found"), BEST)
def test_the_best_text(texts: dict[str, str], wanted: tuple[str, ...], found: str) -> None:
    """The wanted language, a wider or another kind of it, English, the first."""
    assert LangText(texts).best(*wanted) == found
    assert str(LangText(texts)) == LangText(texts).best()


@pytest.mark.parametrize(
    "texts", [{}, {"e": "x"}, {"en": 1}, {"en": "a", "EN": "b"}, {"en": "\ud800"}, {1: "x"}]
)
def test_what_is_no_text_by_language(texts: dict[str, str]) -> None:
    """Is refused when it is made."""
    with pytest.raises(LangTextError):
        LangText(texts)


# --- declared -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"key": True}, "key=True does not apply to LangText"),
        ({"unique": True}, "unique=True does not apply to LangText"),
        ({"one_of": [{"en": "a"}]}, "one_of does not apply to LangText"),
        ({"languages": ["english"]}, "'english' is not a language tag"),
        ({"languages": "en"}, "must be a list of tags"),
        ({"languages": ["en", "EN"]}, "lists a language twice"),
        ({"default": {"en": "a"}, "min_length": 2}, "default@en must have at least 2"),
    ],
)
def test_wrong_declarations(said: dict[str, object], message: str) -> None:
    """Are refused when the class is made."""
    with pytest.raises(DeclarationError, match=message):

        @node_type
        class Wrong(Node):
            """Not possible."""

            code: str = predicate()
            title: LangText = predicate(**said)


def test_a_list_of_them_is_refused() -> None:
    """It holds all languages already."""
    with pytest.raises(DeclarationError, match="write LangText without list"):

        @node_type
        class Wrong(Node):
            """Not possible."""

            titles: list[LangText] = predicate()


def test_languages_belong_to_them_alone() -> None:
    """A plain text has none."""
    with pytest.raises(DeclarationError, match="languages does not apply to String"):

        @node_type
        class Wrong(Node):
            """Not possible."""

            title: str = predicate(languages=["en"])


def test_json_schema_applies_rules_to_each_text() -> None:
    """An object with a pattern for its tags."""
    title = project_type(Word.__trails__)["properties"]["title"]
    assert title["type"] == "object"
    assert title["additionalProperties"] == {"type": "string", "maxLength": 10}
    assert title["required"] == ["en"]
    assert "pattern" in title["propertyNames"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("texts", "conforms"),
    [
        ("'a'@en, 'b'@de", True),
        ("'a'@en, 'b'@en", False),
        ("'a'", False),
        ("'too long a text'@en", False),
    ],
)
def test_shacl_has_one_text_for_each_language(texts: str, conforms: bool) -> None:
    """The independent validator agrees with the graph."""
    with App(Word, name="app") as app:
        graph = app.graph()
        shapes = project_shacl(graph.main.schema, graph.names)
        prefix = f"@prefix : <{graph.names.vocabulary}> ."
        text = f"{prefix} <{graph.names.nodes}Word/w> a :Word ; :code 'w' ; :title {texts} ."
        data = rdflib.Graph().parse(data=text, format="turtle")
        assert pyshacl.validate(data, shacl_graph=shapes, advanced=True)[0] is conforms
        try:
            with writing(graph) as write:
                load_rdf(write, graph.main.schema, graph.names, [text.encode()], format="turtle")
        except ValidationError:
            assert not conforms
        else:
            assert conforms
            assert Word.get(app.context(), "w").title == LangText(en="a", de="b")


# --- saved ----------------------------------------------------------------------------------------


def test_saved_and_changed_by_language(app: App, ctx: GraphContext) -> None:
    """A commit has only the statements of the languages that changed."""
    word = Word.get(ctx, "bread")
    assert word.title == LangText({"en": "Bread", "de-ch": "Brot"})
    assert word.save(ctx) is None
    word.title |= {"fr": "Pain", "en": "Loaf"}
    commit = word.save(ctx)
    assert commit is not None
    assert (commit.removed, commit.added) == (1, 2)
    net = net_between(app.graph(), commit.parents[0], commit.id)
    (change,) = show_changes(app.graph(), net, app.graph().main.schema)
    assert [(each.field, each.before, each.after) for each in change.fields] == [
        ("title@en", "Bread", "Loaf"),
        ("title@fr", None, "Pain"),
    ]
    word.note = {"en": "soft"}
    word.save(ctx)
    word.note = None
    word.save(ctx)
    assert Word.get(ctx, "bread").note is None
    assert all(each.severity == "ok" for each in verify(app.graph(), lambda _: None))


WRONG = {
    "no language": ("Bread", 'must be texts by language tag, like {"en": "Bread"'),
    "none": ({}, "it has no text; leave the field out"),
    "a tag": ({"en": "a", "english": "b"}, "'english' is not a language tag like 'en'"),
    "upper case": ({"en": "a", "de-CH": "b"}, "write 'de-CH' in lower case: 'de-ch'"),
    "a text": ({"en": 1}, "the text for 'en' is not a string"),
    "too long": ({"en": "a", "de": "b" * 11}, "title@de must have at most 10 characters"),
    "missing": ({"de": "b"}, "title must have texts in 'en'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_texts_are_refused(ctx: GraphContext, case: str) -> None:
    """The message names the language."""
    title, message = WRONG[case]
    with pytest.raises(ValidationError) as caught:
        Word(code="x", title=title).save(ctx)
    assert message in str(caught.value)


def test_filters_look_at_every_language(ctx: GraphContext) -> None:
    """The value of a filter is a text."""
    for where, found in (
        ({"title": "Brot"}, 1),
        ({"title": "Br"}, 0),
        ({"title__in": ["x", "Bread"]}, 1),
        ({"title__startswith": "Br"}, 1),
        ({"title__icontains": "READ"}, 1),
        ({"note__isnull": True}, 1),
    ):
        assert Word.objects(ctx).where(**where).count() == found, where
    with pytest.raises(QueryError, match="title is compared with 1, which is not a text"):
        Word.objects(ctx).where(title=1).count()
    with pytest.raises(QueryError, match="has no one order"):
        list(Word.objects(ctx).order_by("title"))


def test_merge_by_language(app: App) -> None:
    """Two languages merge; one that both sides changed is a conflict with its own name."""
    versions = app.versions(actor="a")
    versions.create_branch("draft")
    for branch, texts in (("main", {"en": "Loaf"}), ("draft", {"fr": "Pain"})):
        word = Word.get(app.context(branch=branch), "bread")
        word.title |= texts
        word.save(app.context(branch=branch))
    assert versions.merge(MergeRequest("draft", "main")).outcome == "merged"
    merged = {"en": "Loaf", "fr": "Pain", "de-ch": "Brot"}
    assert dict(Word.get(app.context(), "bread").title) == merged
    for branch, texts in (("main", {"fr": "Miche"}), ("draft", {"fr": "Baguette"})):
        word = Word.get(app.context(branch=branch), "bread")
        word.title |= texts
        word.save(app.context(branch=branch))
    result = versions.merge(MergeRequest("draft", "main"))
    (conflict,) = result.conflicts
    assert (conflict.field, conflict.base, conflict.ours, conflict.theirs) == (
        *("title@fr", "Pain", "Miche", "Baguette"),
    )


def test_a_hidden_text_is_in_no_difference(app: App, ctx: GraphContext) -> None:
    """Whatever its languages: the field decides."""
    word = Word.get(ctx, "bread")
    word.title |= {"fr": "Pain"}
    word.note = {"en": "soft", "de": "weich"}
    commit = word.save(ctx)
    assert commit is not None
    access = Restricted(Visibility(hidden_fields={"Word": frozenset({"note"})}))
    for versions, fields in (
        (app.service().versions("all"), ["note@de", "note@en", "title@fr"]),
        (app.service().versions("some", access=access), ["title@fr"]),
    ):
        (change,) = versions.commit(commit.id).difference.changes
        assert [each.field for each in change.fields] == fields
    word.note = {"en": "hard"}
    hidden = word.save(ctx)
    assert hidden is not None
    page = app.service().versions("some", access=access).commits()
    assert hidden.id not in [each.id for each in page.commits]


UPDATES = {
    "INSERT DATA { <Word/bread> :title 'Pain'@FR }": {"fr": "Pain"},
    "DELETE { ?w :title ?t } INSERT { ?w :title 'Loaf'@en } WHERE { ?w :title ?t FILTER(LANG(?t) = 'en') }": {"en": "Loaf"},
}  # fmt: skip
REFUSED = {
    "INSERT DATA { <Word/bread> :title 'Loaf'@en }": "title@en may have at most 1 text, not 2",
    "INSERT DATA { <Word/bread> :title 'Loaf' }": "takes a literal with a language tag",
    "DELETE DATA { <Word/bread> :title 'Bread'@en }": "title must have texts in 'en'",
    "INSERT DATA { <Word/bread> :code 'Loaf'@en }": "takes a literal of type",
}
# ruff: noqa: E501 - an update reads best on one line


@pytest.mark.parametrize("text", UPDATES)
def test_updates_change_languages(app: App, ctx: GraphContext, text: str) -> None:
    """By tagged literals; the others stay."""
    update(app, text)
    assert Word.get(ctx, "bread").title == LangText(en="Bread") | {"de-ch": "Brot"} | UPDATES[text]


@pytest.mark.parametrize("text", REFUSED)
def test_updates_that_break_a_rule(app: App, ctx: GraphContext, text: str) -> None:
    """Nothing is written."""
    before = ctx.kg.head.commit
    with pytest.raises(TrailsError, match=REFUSED[text]):
        update(app, text)
    assert ctx.kg.head.commit == before


def test_parameters_of_queries(app: App, ctx: GraphContext) -> None:
    """One language is a literal with its tag; several are refused."""
    text = "SELECT ?w WHERE { ?w :title $t }"
    assert len(ctx.kg.sparql(text, t=LangText(en="Bread")).rows) == 1
    assert not ctx.kg.sparql(text, t="Bread").rows
    with pytest.raises(QueryError, match="has texts in de, en; give one of them"):
        ctx.kg.sparql(text, t=LangText(en="Bread", de="Brot"))


def test_search_finds_each_language_and_labels_are_texts(app: App) -> None:
    """A hit names the language, and the part that is read."""
    calls = Calls(app)
    try:
        found = calls.result("search", {"query": "brot"})
        (hit,) = found["results"]
        evidence = hit["evidence"]
        assert (hit["title"], evidence["field"], evidence["path"]) == ("Bread", "title", "/de-ch")
    finally:
        calls.kernel.close()
