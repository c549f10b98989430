"""References: the same forms mean the same node wherever one is taken."""

import json
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote, unquote

import pytest

from trails import App, Context, Edge, Node, Ref, capability, edge_type, node_type, predicate
from trails.engine.session.context import GraphContext
from trails.engine.visibility.access import OPEN, Access
from trails.errors import NotFoundError, QueryError, TrailsError, ValidationError
from trails.model.uris import ListAddress, parse_address
from trails.model.visibility import Visibility
from trails.model.writes import LoadRequest
from trails.request.builtins.queries import query_by_name
from trails.request.dispatch import call_capability
from trails.request.resources.contents import read_page


@node_type
class Person(Node):
    """Somebody."""

    name: str = predicate(key=True)


@node_type
class Employee(Person):
    """Somebody who is employed, whose key is one among people."""

    badge: str | None = predicate()


@node_type
class Agent(Person):
    """Somebody whom not everybody knows of."""


@node_type
class Team(Node):
    """A type that nothing extends, whose key is a number."""

    number: int = predicate(key=True)


@node_type
class Task(Node):
    """Something to do."""

    title: str = predicate(key=True)
    owner: Ref[Person] | None = predicate()
    team: Ref[Team] | None = predicate()
    helpers: list[Ref[Person]] = predicate()


@edge_type(source=Person, target=Person)
class Knows(Edge):
    """One person knows another."""


@capability("owner", side_effects=("none",))
def owner(ctx: Context, person: Ref[Person] | None = None, team: Ref[Team] | None = None) -> str:
    """Say who was meant."""
    return str((person or team).handle)


TYPES: Final = (Person, Employee, Agent, Team, Task, Knows)
QUERY: Final = """\
#+ description: What was meant.
#+ params: {{ it: {} }}
SELECT (STR($it) AS ?found) WHERE {{ }}
"""


class Unknowing:
    """The access of somebody who may do everything, and does not see agents."""

    unrestricted = False

    def may(self, action: str, branch: str, target: str = "") -> bool:
        """Whatever it is."""
        return bool(action and branch) or bool(target)

    def visibility(self, schema: object, branches: object) -> Visibility:
        """All but one type."""
        del schema, branches
        return Visibility(hidden=frozenset({"Agent"}))


class Place:
    """Where a reference to a person or a team is taken."""

    def __init__(self, app: App, access: Access) -> None:
        self.app = app
        self.service = app.service()
        self.access = access
        self.title = "t"

    @property
    def ctx(self) -> GraphContext:
        """An actor at work."""
        return self.service.context("ann", access=self.access)

    def handle(self, given: object) -> str:
        """An IRI, or an instance, as ``Type/id``."""
        text = str(given.handle if isinstance(given, Node) else given)
        return text.removeprefix(self.ctx.names.nodes)

    # --- each gives the node that was meant, as Type/id ------------------------------

    def orm_field(self, field: str, value: object) -> str:
        """A field of an instance that is saved."""
        Task(title=self.title, **{field: value}).save(self.ctx, upsert=True)
        return self.handle(getattr(Task.get(self.ctx, self.title), field))

    def orm_list(self, field: str, value: object) -> str:
        """An item of a list of references; teams have none."""
        if field != "owner":
            return self.orm_field(field, value)
        Task(title=self.title, helpers=[value]).save(self.ctx, upsert=True)
        return self.handle(Task.get(self.ctx, self.title).helpers[0])

    def orm_many(self, field: str, value: object) -> str:
        """Instances that are saved together."""
        self.ctx.kg.save_all([Task(title=self.title, **{field: value})], upsert=True)
        return self.handle(getattr(Task.get(self.ctx, self.title), field))

    def orm_get(self, field: str, value: object) -> str:
        """One instance."""
        found = {"owner": Person, "team": Team}[field].get(self.ctx, value)
        return self.handle(found)

    def orm_filter(self, field: str, value: object) -> str:
        """A condition on instances."""
        found = Task.objects(self.ctx).where(**{field: value, "title__startswith": "of"})
        return self.handle(getattr(found.get(), field))

    def orm_filter_in(self, field: str, value: object) -> str:
        """A condition with several values."""
        found = Task.objects(self.ctx).where(**{f"{field}__in": [value]})
        return self.handle(getattr(found.where(title__startswith="of").get(), field))

    def resource_filter(self, field: str, value: object) -> str:
        """A filter of a resource, as ``where=`` and ``--where`` write it."""
        uri = f"trails://kg/Task?where={field}={quote(str(value))}"
        address = parse_address(uri, self.ctx.names.nodes, list)
        assert isinstance(address, ListAddress)
        page = json.loads(read_page(self.service, self.ctx, uri, address, None)[0].text)
        titles = [unquote(self.handle(each["iri"])).partition("/")[2] for each in page]
        (found,) = [Task.get(self.ctx, each) for each in titles if each.startswith("of")]
        return self.handle(getattr(found, field))

    def capability(self, field: str, value: object) -> str:
        """An argument of a capability."""
        name = {"owner": "person"}.get(field, field)
        return str(call_capability(self.ctx, "owner", {name: value}))

    def stored_query(self, field: str, value: object) -> str:
        """A parameter of a stored query."""
        name = {"owner": "person"}.get(field, field)
        answer = query_by_name(self.service, self.ctx, name, {"it": value})
        return self.handle(answer.rows[0]["found"])

    def mutate_data(self, field: str, value: object) -> str:
        """A field in a typed operation."""
        operation = {"op": "upsert", "type": "Task", "data": {"title": self.title, field: value}}
        self.service.mutate(self.ctx, [operation])
        return self.handle(getattr(Task.get(self.ctx, self.title), field))

    def mutate_id(self, field: str, value: object) -> str:
        """The node of a typed operation."""
        type_name = {"owner": "Person", "team": "Team"}[field]
        operation = {"op": "update", "type": type_name, "id": value, "data": {}}
        done = self.service.mutate(self.ctx, [operation])
        return self.handle(done.applied[0].handle)

    def load_lines(self, field: str, value: object) -> str:
        """A field in a line of NDJSON."""
        line = f'{{"type": "Task", "data": {{"title": "{self.title}", "{field}": "{value}"}}}}'
        return self._load(line, "ndjson", field)

    def load_edges(self, field: str, value: object) -> str:
        """The end of an edge line."""
        lines = f'{{"type": "Task", "data": {{"title": "{self.title}"}}}}\n{{"edge": "{field}", '
        return self._load(f'{lines}"from": "{self.title}", "to": "{value}"}}', "ndjson", field)

    def load_table(self, field: str, value: object) -> str:
        """A cell of a table."""
        return self._load(f"title,{field}\n{self.title},{value}\n", "csv", field)

    def _load(self, text: str, form: str, field: str) -> str:
        request = LoadRequest(
            files=([text.encode()],), format=form, type_name="Task" if form == "csv" else None
        )
        self.service.load("ann", request, access=self.access)
        return self.handle(getattr(Task.get(self.ctx, self.title), field))


PLACES: Final = [
    Place.orm_field,
    Place.orm_list,
    Place.orm_many,
    Place.orm_get,
    Place.orm_filter,
    Place.orm_filter_in,
    Place.resource_filter,
    Place.capability,
    Place.stored_query,
    Place.mutate_data,
    Place.mutate_id,
    Place.load_lines,
    Place.load_edges,
    Place.load_table,
]
everywhere = pytest.mark.parametrize("take", PLACES, ids=lambda each: each.__name__)
Take = Callable[[Place, str, object], str]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """Some people and teams, and a task of each."""
    folder = tmp_path_factory.mktemp("references")
    (folder / "trails.toml").write_text('[project]\nname = "acme"\n')
    (folder / "app.py").write_text(f"from {__name__} import *\n")
    (folder / "queries").mkdir()
    for each in (Person, Team):
        name = each.__name__
        (folder / "queries" / f"{name.lower()}.rq").write_text(QUERY.format(name))
    made = App.open(folder, strict=True)
    ctx = made.service().context("setup")
    people = [Person(name="ann"), Employee(name="Zoë b"), Agent(name="bond")]
    team = Team(number=7)
    ctx.kg.save_all([*people, team])
    ctx.kg.save_all([Task(title=f"of {each.name}", owner=each) for each in people])
    Task(title="of 7", team=team).save(ctx)
    yield made
    made.close()


FORMS: Final = [
    ("owner", "{base}Person/ann", "Person/ann"),
    ("owner", "trails://kg/Person/ann", "Person/ann"),
    ("owner", "trails://branch/main/kg/Person/ann", "Person/ann"),
    ("owner", "Person/ann", "Person/ann"),
    ("owner", "ann", "Person/ann"),
    ("owner", "{base}Employee/Zo%C3%AB%20b", "Employee/Zo%C3%AB%20b"),
    ("owner", "Employee/Zo%C3%AB%20b", "Employee/Zo%C3%AB%20b"),
    ("owner", "Zoe\u0308 b", "Employee/Zo%C3%AB%20b"),
    ("team", "{base}Team/7", "Team/7"),
    ("team", "Team/7", "Team/7"),
    ("team", "7", "Team/7"),
]


@everywhere
def test_every_form_is_taken_everywhere(app: App, take: Take) -> None:
    """An IRI, a handle, Type/id, or the key, also of a type that extends the one that is asked."""
    place = Place(app, OPEN)
    for field, form, wanted in FORMS:
        given = form.format(base=place.ctx.names.nodes)
        assert take(place, field, given) == wanted, given


def refusal(place: Place, take: Take, field: str, given: object) -> tuple[str, str]:
    """The code and the message of the error that a reference gets."""
    with pytest.raises(TrailsError) as caught:
        take(place, field, given)
    error = caught.value
    if isinstance(error, ValidationError):
        (only,) = error.fields
        return only.code, only.message
    if isinstance(error, QueryError):
        return str(error.data["reason"]), error.message
    assert isinstance(error, NotFoundError)
    return "reference", error.message


@everywhere
def test_a_missing_node_is_an_error_that_names_the_nearest(app: App, take: Take) -> None:
    """No answer without rows, and no reference to nothing."""
    place = Place(app, OPEN)
    for given in ("anne", "Person/anne", f"{place.ctx.names.nodes}Person/anne"):
        code, message = refusal(place, take, "owner", given)
        assert code == "reference", message
        assert message.endswith("did you mean Person/ann?"), message
    assert refusal(place, take, "team", "70")[0] == "reference"


@everywhere
def test_a_node_of_another_type_is_refused(app: App, take: Take) -> None:
    """It exists, and is not what was asked for."""
    place = Place(app, OPEN)
    code, message = refusal(place, take, "owner", "Team/7")
    assert code == "reference"
    assert "Team/7" in message
    assert "is not a Person" in message


@everywhere
def test_a_hidden_node_is_refused_like_a_missing_one(app: App, take: Take) -> None:
    """By its key or as Type/id; messages differ in nothing but what was given."""
    place = Place(app, Unknowing())
    place.title = "new"
    for hidden, missing in (("bond", "bund"), ("Agent/bond", "Agemt/bond")):
        told = refusal(place, take, "owner", hidden)
        assert told[0] == "reference"
        other = refusal(place, take, "owner", missing)
        assert told == tuple(
            each.replace("bund", "bond").replace("Agemt", "Agent") for each in other
        )
        assert "Agent/bond" not in told[1].replace(hidden, "")
