"""Plugins: found by entry point, checked whole, and left out if anything is wrong with them."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from tests.worlds.packages import MONEY, install
from tests.worlds.projects import make_project

from trails import (
    App,
    Context,
    Kind,
    Node,
    Plugin,
    PluginCommand,
    PluginResource,
    capability,
    meta_capability,
    node_type,
    predicate,
)
from trails.app import plugins as loader
from trails.app.doctor import examine_project
from trails.app.plugins import fits_version, load_plugins
from trails.errors import QuarantineError
from trails.model.capabilities import Capability, MetaFacts
from trails.model.kinds import KINDS, remove_kind

SETTINGS = '[project]\nname = "acme"\nplugins = [{}]\n'


class Unit:
    """A value of a kind for tests."""

    def __init__(self, text):
        self.text = text

    def __eq__(self, other):
        return isinstance(other, Unit) and self.text == other.text

    def __hash__(self):
        return hash(self.text)

    def __str__(self):
        return self.text


def coerce(value):
    """A text or a unit."""
    return value if isinstance(value, Unit) else Unit(str(value))


def make_kind(**more):
    """A row that is in order."""
    given = {
        "name": "Unit",
        "schema": {"type": "string"},
        "expected": "a unit",
        "example": Unit("m"),
        "coerce": coerce,
        "datatype": "https://example.org/unit",
        "python": Unit,
        "parse": Unit,
        "plain": str,
        "restore": Unit,
        **more,
    }
    return Kind(**given)


def declare(name="thing"):
    """A type, a capability and a meta-capability."""

    @node_type
    class Thing(Node):
        """A thing."""

        name: str = predicate(key=True)

    @capability(f"{name}.count", side_effects=["none"])
    def count(ctx: Context) -> int:
        """Count things."""
        return 1

    @meta_capability(f"trails.meta.{name}.check", side_effects=["none"])
    def check(ctx: Context) -> bool:
        """Check things."""
        return True

    Thing.__name__ = name.title()
    return Thing, count, check


@pytest.fixture
def world(monkeypatch):
    """Entry points and modules that a test makes up; kinds are removed after it."""
    points, before = {}, set(KINDS)

    class Point:
        value, dist = "made.up:plugin", None

        def __init__(self, name, found):
            self.name, self._found = name, found

        def load(self):
            if isinstance(self._found, BaseException):
                raise self._found
            return self._found

    def add(name, found, *declared):
        if declared:
            module = f"plugin_module_{name}"
            members = {f"item{at}": each for at, each in enumerate(declared)}
            monkeypatch.setitem(sys.modules, module, SimpleNamespace(**members))
        points.setdefault(name, []).append(Point(name, found))

    monkeypatch.setattr(loader, "installed_plugins", lambda: points)
    load_plugins.cache_clear()
    yield add
    load_plugins.cache_clear()
    for name in set(KINDS) - before:
        remove_kind(KINDS[name])


def plugin(name="thing", **more):
    """A plugin whose declarations ``world`` was given."""
    given = {"name": name, "version": "1", "modules": (f"plugin_module_{name}",), **more}
    return Plugin(**given)


@pytest.mark.req("T25")
def test_a_plugin_registers_capabilities_and_meta_capabilities(world, tmp_path):
    """In every graph of a project that enables it, and in no other."""
    world("thing", plugin(), *declare())
    folder = make_project(tmp_path, "", settings=SETTINGS.format('"thing"'))
    with App.open(folder) as app:
        registry = app.registry()
        assert {"thing.count"} <= set(registry.capabilities)
        assert {"trails.meta.thing.check"} <= set(registry.metas)
        assert set(registry.types) == set(app.graph().main.schema.by_name)
        assert app.call(app.context(), "thing.count") == 1
    (folder / "trails.toml").write_text(SETTINGS.format(""), encoding="utf-8")
    with App.open(folder) as app:
        assert "thing.count" not in app.registry().capabilities
        (found,) = [
            each
            for report in examine_project(app)
            for each in report.findings
            if each.code == "plugin_disabled"
        ]
        assert found.where == "thing"


@pytest.mark.req("T25")
def test_one_id_in_both_registries_is_an_error_at_load(world):
    """Of one plugin, or of two; the second is left out."""
    _, count, _ = declare()
    mark = count.__trails_capability__
    twin = SimpleNamespace(
        __trails_capability__=Capability(
            mark.descriptor, mark.handler, MetaFacts("builder", "thing", "count")
        )
    )
    world("thing", plugin(), count, twin)
    world("first", plugin("first"), count)
    world("second", plugin("second"), twin)
    found = load_plugins(("thing", "first", "second"))
    assert [each.name for each in found.loaded] == ["first"]
    for name in ("thing", "second"):
        assert "as a capability and as a meta-capability" in found.failures[name]


def collide_with_a_builtin():
    """A capability whose tool name is that of a built-in."""

    @capability("graph_query")
    def query(ctx: Context) -> None:
        """Ask."""

    return query


BROKEN = {
    "missing": (None, "no installed package has it"),
    "import": (ImportError("no module named lost"), "ImportError: no module named lost"),
    "exception": (RuntimeError("token=secret"), "RuntimeError"),
    "exit": (SystemExit(1), "SystemExit"),
    "no plugin": (object(), "is not a Plugin"),
    "other name": (plugin("other"), "calls itself 'other'"),
    "version": (plugin(requires=">=99"), "needs Trails >=99"),
    "specifier": (plugin(requires="latest"), "'latest'"),
    "module": (plugin(modules=("no_such_module_at_all",)), "no_such_module_at_all can't be"),
    "command": (
        plugin(commands=(PluginCommand(name="serve", capability="thing.count", summary="x"),)),
        "'serve' is built in",
    ),
    "call": (
        plugin(commands=(PluginCommand(name="things", capability="thing.nope", summary="x"),)),
        "'thing.nope', which is not declared",
    ),
    "resource": (
        plugin(
            resources=(
                PluginResource(path="a/b", title="", description="", read=str),
                PluginResource(path="c", title="", description="", read=str),
                PluginResource(path="c", title="", description="", read=str),
            )
        ),
        "'c' is declared twice",
    ),
    "kind": (plugin(kinds=(make_kind(name="String"),)), "there is a kind 'String' already"),
    "datatype": (
        plugin(kinds=(make_kind(datatype="http://www.w3.org/2001/XMLSchema#string"),)),
        "datatype of its own",
    ),
    "class": (plugin(kinds=(make_kind(python=str),)), "class of its own"),
    "round trip": (plugin(kinds=(make_kind(parse=str),)), "parse(lexical(example))"),
}


@pytest.mark.req("T25")
@pytest.mark.parametrize("case", BROKEN)
def test_a_plugin_that_fails_is_left_out_and_reported(world, tmp_path, case):
    """The server and other plugins go on; nothing of it is there, no secret is shown."""
    broken, reason = BROKEN[case]
    kinds = set(KINDS)
    if broken is not None:
        world("thing", broken, *declare())
    world("sound", plugin("sound"), *declare("sound"))
    folder = make_project(tmp_path, "", settings=SETTINGS.format('"thing", "sound"'))
    with App.open(folder) as app:
        assert reason in app.plugins.failures["thing"]
        assert "secret" not in app.plugins.failures["thing"]
        assert set(app.registry().capabilities) == {"sound.count"}
        assert set(KINDS) == kinds
        findings = [each for report in examine_project(app) for each in report.findings]
        (found,) = [each for each in findings if each.code == "plugin_failed"]
        assert (found.where, reason in found.detail) == ("thing", True)


@pytest.mark.req("T25")
@pytest.mark.parametrize("what", ["type", "kind", "command", "builtin"])
def test_plugins_do_not_replace_anything(world, what):
    """Neither what is built in nor what another plugin has; the first one stays."""
    type_, count, check = declare()
    command = PluginCommand(name="things", capability="thing.count", summary="Count.")
    both = {"kind": {"kinds": (make_kind(),)}, "command": {"commands": (command,)}}.get(what, {})
    world("thing", plugin(**both), type_, count, check)
    second = {"type": declare()[:1], "builtin": (collide_with_a_builtin(),)}.get(what, (count,))
    if what == "kind":
        both = {"kinds": (make_kind(),)}
    world("second", plugin("second", **both), *second)
    found = load_plugins(("thing", "second"))
    assert [each.name for each in found.loaded] == ["thing"]
    assert set(found.failures) == {"second"}
    assert (
        "collides" in found.failures["second"]
        or "already" in found.failures["second"]
        or ("one of plugin 'thing'" in found.failures["second"])
        or "declared twice" in found.failures["second"]
    )


@pytest.mark.parametrize(
    ("specifier", "fits"),
    [
        ("", True),
        (">=0.1", True),
        (">= 1.2, < 2", True),
        ("<1.2", False),
        ("==1.2.3", True),
        ("!=1.2.3", False),
        ("~=1.2", True),
        ("~=1.1.0", False),
        (">1.2.3", False),
        ("<=1.2.3", True),
    ],
)
def test_version_specifiers_mean_what_those_of_packages_mean(specifier, fits):
    """As far as numbers go."""
    assert fits_version("1.2.3", specifier) is fits


def test_a_graph_whose_code_needs_a_missing_plugin_names_it(world, tmp_path):
    """It is quarantined; the others are served."""
    world("thing", plugin(requires=">=99"), *declare())
    settings = SETTINGS.format('"thing"') + '[graphs.main]\n[graphs.other]\napp = "other.py"\n'
    files = {"app.py": "from no_such_plugin import Thing\n", "other.py": ""}
    with App.open(make_project(tmp_path, files, settings=settings)) as app:
        with pytest.raises(QuarantineError, match="plugin 'thing': version 1 needs Trails >=99"):
            app.registry("main")
        assert app.registry("other")


USER = '''
from __future__ import annotations

from trails import Node, node_type, predicate
from trails_money import Money


@node_type
class Invoice(Node):
    """An invoice."""

    number: str = predicate(key=True)
    total: Money = predicate()
'''


def test_data_of_a_missing_kind_is_kept(tmp_path, monkeypatch):
    """A graph whose plugin was removed is quarantined, and comes back with the plugin."""
    site = install(MONEY, tmp_path / "site")
    monkeypatch.syspath_prepend(str(site))
    load_plugins.cache_clear()
    folder = make_project(tmp_path / "acme", USER, settings=SETTINGS.format('"money"'))
    try:
        with App.open(folder) as app:
            invoice = app.registry().classes["Invoice"]
            invoice(number="1", total="12.50 EUR").save(app.context())
        (folder / "trails.toml").write_text(SETTINGS.format(""), encoding="utf-8")
        other = USER.replace("from trails_money import Money\n", "").replace("Money", "str")
        (folder / "app.py").write_text(other, encoding="utf-8")
        money = KINDS["Money"]
        remove_kind(money)
        unread = pytest.raises(QuarantineError, match=r"Money \(ExchangeRate.price\)")
        with App.open(folder) as app, unread:
            app.graph()
        with App.open(folder, declarations=False) as app:
            findings = [each for report in examine_project(app) for each in report.findings]
            assert "graph_unreadable" in {each.code for each in findings}
        load_plugins.cache_clear()
        (folder / "trails.toml").write_text(SETTINGS.format('"money"'), encoding="utf-8")
        (folder / "app.py").write_text(USER, encoding="utf-8")
        with App.open(folder) as app:
            invoice = app.registry().classes["Invoice"]
            assert str(invoice.get(app.context(), "1").total) == "12.5 EUR"
    finally:
        load_plugins.cache_clear()
        for name in [name for name in sys.modules if name.startswith("trails_money")]:
            del sys.modules[name]
        if "Money" in KINDS:
            remove_kind(KINDS["Money"])
