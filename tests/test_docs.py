"""The documentation says what the code does, and leaves nothing out."""

import contextlib
import inspect
import io
import re
from pathlib import Path

import pytest

import trails
from trails import errors, predicate
from trails.app.local import LocalOperations
from trails.app.settings import (
    Auth,
    Budgets,
    GraphSettings,
    Loads,
    LogSettings,
    McpSettings,
    Project,
    SandboxSettings,
    ServerSettings,
    Settings,
    Validation,
)
from trails.identity.oauth.settings import OAuth
from trails.model.constraints import FIELD_CODES
from trails.model.kinds import KINDS
from trails.registry.query_headers import HEADER_KEYS, PARAM_KEYS
from trails.surfaces.cli.commands import build_cli
from trails.views.nodes.conditions import LOOKUPS

ROOT = Path(__file__).parent.parent
REFERENCE = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def section(title):
    """The text under one heading of the reference."""
    return REFERENCE.split(f"## {title}")[1].split("\n## ")[0]


def error_classes():
    """All errors that Trails raises on purpose."""
    return [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.TrailsError)
    ]


def commands(cli, prefix):
    """Every command, those of groups included."""
    for command in cli.registered_commands:
        yield f"{prefix} {command.name or command.callback.__name__}"
    for group in cli.registered_groups:
        yield from commands(group.typer_instance, f"{prefix} {group.name}")


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("Arguments of `predicate()`", list(inspect.signature(predicate).parameters)),
        ("Kinds", [*KINDS, "Ref", "List"]),
        ("Lookups", [f"__{name}" for name in LOOKUPS]),
        ("Codes of field errors", sorted(FIELD_CODES)),
        ("Errors", [each.__name__ for each in error_classes() if each is not errors.TrailsError]),
        ("Errors", [each.code for each in error_classes() if each is not errors.TrailsError]),
        (
            "Settings",
            [
                field
                for struct in (
                    Project,
                    ServerSettings,
                    Auth,
                    OAuth,
                    GraphSettings,
                    McpSettings,
                    Budgets,
                    Validation,
                    LogSettings,
                    Loads,
                    SandboxSettings,
                )
                for field in struct.__struct_fields__
            ]
            + ["graphs"],
        ),
        ("Stored queries", [*HEADER_KEYS, *PARAM_KEYS]),
        (
            "Commands",
            list(commands(build_cli(LocalOperations()), "trails")),
        ),
    ],
)
def test_the_reference_names_everything(title, names):
    """An argument, kind, lookup, code, error, setting or command without an entry fails."""
    text = section(title)
    missing = [name for name in names if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]
    assert not missing


def test_the_settings_of_the_reference_are_all_of_them():
    """Every table of the settings file is one that the section above looked at."""
    assert set(Settings.__struct_fields__) == {
        "project",
        "server",
        "graphs",
        "validation",
        "log",
        "loads",
        "sandbox",
        "auth",
    }


def test_the_error_tree_is_drawn_completely():
    """The header of errors.py shows every class."""
    for each in error_classes():
        assert each.__name__ in (errors.__doc__ or "")


def test_links_lead_somewhere():
    """Relative links in the documentation point at files that exist."""
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_paths_lead_somewhere():
    """Files that the documentation names exist; packages are relative to ``src/trails``."""
    packages = "|".join(each.name for each in (ROOT / "src/trails").iterdir() if each.is_dir())
    named = re.compile(rf"`((?:src|tests|bench|{packages})/[\w/.*-]+)(?:::\w+)?`")
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for path in named.findall(page.read_text(encoding="utf-8")):
            if not path.startswith("policies/"):  # also a folder of every project
                found = [*ROOT.glob(path), *(ROOT / "src/trails").glob(path)]
                assert found, f"{page.name}: {path}"


def test_the_readme_runs():
    """Its Python blocks, run one after the other, print what they say."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    said = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("# ")]
    printed = io.StringIO()
    scope = {"__name__": "readme"}
    with contextlib.redirect_stdout(printed):
        for block in blocks:
            exec(block, scope)  # noqa: S102 - our own text
    assert printed.getvalue().splitlines() == said
    scope["app"].close()


def test_all_public_names_can_be_imported():
    """What ``trails`` lists is there, and what is there is listed."""
    for name in trails.__all__:
        assert getattr(trails, name) is not None
    assert set(dir(trails)) == set(trails.__all__)
    with pytest.raises(AttributeError):
        _ = trails.nonsense


def test_a_subpackage_takes_no_public_name_away():
    """Python puts a subpackage under its name into the package around it, once it is imported."""
    subpackages = {each.parent.name for each in Path(trails.__file__).parent.glob("*/__init__.py")}
    assert subpackages.isdisjoint(trails.__all__)
