"""Random operations at random servers do what they do to a dictionary."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.campaigns import sized
from tests.journeys.cluster.conftest import Cluster, agree, put, rows

from trails.errors import ValidationError
from trails.model.history import MergeRequest

SERVERS = ("a", "b")
PEOPLE = st.sampled_from(["ann", "bob", "eve"])
BRANCHES = st.sampled_from(["main", "main", "side"])
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(SERVERS),
        st.one_of(
            st.tuples(
                st.just("put"),
                BRANCHES,
                PEOPLE,
                st.integers(0, 9),
                st.sampled_from([None, "x@y", "z@y"]),
            ),
            st.tuples(st.just("delete"), BRANCHES, PEOPLE),
            st.tuples(st.just("fork")),
            st.tuples(st.just("drop")),
            st.tuples(st.just("forward")),
            st.tuples(st.just("cut")),
            st.tuples(st.just("restart")),
        ),
        st.sampled_from(SERVERS),
    ),
    min_size=5,
    max_size=25,
)


class Model:
    """What the graph should be: branch → name → fields."""

    def __init__(self) -> None:
        self.branches: dict[str, dict[str, Mapping[str, object]]] = {"main": {}}
        self.fork: dict[str, Mapping[str, object]] | None = None
        """The state that the side branch began with."""


def perform(cluster, servers, model, name, operation):
    """Do an operation at a server, and in the model."""
    how, *given = operation
    app = servers[name]
    if how == "put":
        branch, person, score, mail = given
        people = model.branches.get(branch)
        if people is None:
            return
        taken = mail and any(
            each["mail"] == mail for other, each in people.items() if other != person
        )
        if taken:
            with pytest.raises(ValidationError):
                put(app, person, branch=branch, score=score, mail=mail)
        else:
            put(app, person, branch=branch, score=score, mail=mail)
            people[person] = {"score": score, "mail": mail}
    elif how == "delete":
        branch, person = given
        if person in model.branches.get(branch, ()):
            operation = {"op": "delete", "type": "Person", "id": person}
            app.mutate(app.context(branch=branch), [operation])
            del model.branches[branch][person]
    elif how == "fork" and "side" not in model.branches:
        app.versions().create_branch("side")
        model.branches["side"] = dict(model.branches["main"])
        model.fork = dict(model.branches["main"])
    elif how == "drop" and "side" in model.branches:
        app.versions().delete_branch("side", force=True)
        del model.branches["side"]
    elif how == "forward" and "side" in model.branches and model.fork == model.branches["main"]:
        app.versions().merge(MergeRequest(source="side", target="main"))
        model.branches["main"] = dict(model.branches["side"])
        model.fork = dict(model.branches["side"])
    elif how == "cut":
        cluster.cut()
    elif how == "restart":
        cluster.stop(app)
        servers[name] = cluster.start(name)


def check(folder, postgres, operations):
    """Perform all of them; after each one, a server that follows the log shows the model."""
    cluster, model = Cluster(folder, postgres.schema(), postgres), Model()
    try:
        servers = {name: cluster.start(name) for name in SERVERS}
        for name, operation, reader in operations:
            perform(cluster, servers, model, name, operation)
            app = servers[reader]
            assert app.graph().reach(30)
            assert {"main", *app.graph().log.branches()} == set(model.branches)
            for branch, people in model.branches.items():
                assert rows(app, branch) == people
        agree(*servers.values())
    finally:
        cluster.close()


@settings(max_examples=5, deadline=None)
@given(operations=OPERATIONS)
def test_servers_are_one_graph(tmp_path_factory, postgres, operations):
    """A few cases."""
    check(tmp_path_factory.mktemp("cluster"), postgres, operations)


@pytest.mark.long
@settings(max_examples=sized(1_000, nightly=30), deadline=None)
@given(operations=OPERATIONS)
def test_servers_are_one_graph_in_many_cases(tmp_path_factory, postgres, operations):
    """The same."""
    check(tmp_path_factory.mktemp("cluster"), postgres, operations)
