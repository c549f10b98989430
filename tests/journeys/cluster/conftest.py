"""Servers that share one log on PostgreSQL, each with a folder of its own."""

import json

import pytest
from tests.worlds.processes import wait_until

from trails import App
from trails.engine.upkeep.verify import verify

APP = '''
from trails import Node, Ref, node_type, predicate


@node_type
class Team(Node):
    """Where somebody works."""

    name: str = predicate(key=True)


@node_type
class Person(Node):
    """Somebody."""

    name: str = predicate(key=True)
    mail: str | None = predicate(unique=True)
    score: int | None = predicate()
    bio: str | None = predicate(search=True)
    team: Ref[Team] | None = predicate()
'''


def make_server(folder, url, app=APP):
    """A project folder whose log is at a URL."""
    folder.mkdir(parents=True)
    (folder / "trails.toml").write_text(
        f'[project]\nname = "shared"\n\n[graphs.main.log]\nurl = "{url}"\n'
    )
    (folder / "app.py").write_text(app)
    return folder


class Cluster:
    """Apps in this process, as if each were a server of its own."""

    def __init__(self, folder, url, postgres):
        self.folder, self.url, self._postgres = folder, url, postgres
        self.apps = []

    def cut(self):
        """End the connections of all servers."""
        self._postgres.cut_connections()

    def open(self, name):
        """Another server, whether it can be used or not."""
        path = self.folder / name
        app = App.open(path if path.exists() else make_server(path, self.url))
        self.apps.append(app)
        return app

    def start(self, name):
        """Another server, which serves its graph."""
        app = self.open(name)
        app.graph()
        return app

    def stop(self, app):
        """End a server in order."""
        self.apps.remove(app)
        app.close()

    def close(self):
        """End all of them."""
        while self.apps:
            self.apps.pop().close()


@pytest.fixture
def cluster(tmp_path, postgres):
    """No servers yet."""
    found = Cluster(tmp_path, postgres.schema(), postgres)
    yield found
    found.close()


@pytest.fixture
def two(cluster):
    """Two servers."""
    return cluster.start("a"), cluster.start("b")


def put(app, name, branch="main", key=None, **data):
    """Save a person; the commit."""
    operation = {"op": "upsert", "type": "Person", "id": name, "data": {"name": name, **data}}
    return app.mutate(app.context(branch=branch), [operation], idempotency_key=key).commit


def rows(app, branch="main"):
    """Who is there: name → score and mail."""
    lines = b"".join(app.export(app.context(branch=branch), "ndjson", ["Person"])).splitlines()
    found = (json.loads(each)["data"] for each in lines)
    return {each["name"]: {"score": each.get("score"), "mail": each.get("mail")} for each in found}


def scores(app, branch="main"):
    """Who is there, and with which score."""
    return {name: row["score"] for name, row in rows(app, branch).items()}


def content(app, branch="main"):
    """Everything on a branch."""
    return b"".join(app.export(app.context(branch=branch), "nquads"))


def level(*apps):
    """Wait until all servers show the same heads."""

    def heads(app):
        graph = app.graph()
        return {
            name: (head.commit, each.head.commit if (each := graph.checkouts.get(name)) else "")
            for name, head in graph.log.branches().items()
        }

    def shows_no_other(app):
        used = {name for name, each in app.graph().checkouts.items() if not each.fixed}
        return used <= {"main", *app.graph().log.branches()}

    def agree():
        found = [heads(app) for app in apps]
        return all(map(shows_no_other, apps)) and all(
            each.keys() == found[0].keys()
            and all(
                head == found[0][name][0] and shown in {"", head}
                for name, (head, shown) in each.items()
            )
            for each in found
        )

    wait_until(agree, "the same heads")


def agree(*apps):
    """All servers have the same history and the same views, which follow from the log."""
    level(*apps)
    first = apps[0]
    chain = [each.id for each in first.graph().log.commits()]
    for app in apps:
        assert [each.id for each in app.graph().log.commits()] == chain
        for branch in {"main", *app.graph().log.branches()}:
            assert content(app, branch) == content(first, branch)
        assert [each for each in verify(app.graph(), print) if each.severity != "ok"] == []
