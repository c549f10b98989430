"""Load the plugins that a project enables.

Installed code runs only in projects whose settings name it. A plugin is checked whole before
anything of it is used: versions, kinds, declarations, and collisions with what is built in and with
plugins before it. One that fails is left out and reported; the others, and the server, go on.
Plugins are loaded once for each process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from trails import __version__
from trails.authoring.plugins import Plugin, PluginCommand, PluginResource
from trails.errors import TrailsError
from trails.imports import later
from trails.model.kinds import KINDS, KindFault, add_kind, remove_kind
from trails.model.upkeep import Finding, flag, passed
from trails.registry.registry import Declarations, Registry, RegistryCell, collect, discover
from trails.request.builtins.ping import META
from trails.surfaces.cli.shell.catalog import LISTED

if TYPE_CHECKING:
    from importlib import metadata
    from importlib.metadata import EntryPoint

    from trails.request import operations
else:
    metadata = later("importlib.metadata")
    operations = later("trails.request.operations")

GROUP: Final = "trails.plugins"
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_PATH: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")
_MEDIA: Final = re.compile(r"[a-z]+/[a-z0-9.+-]+")
_SPECIFIER: Final = re.compile(r"\s*(>=|<=|==|!=|~=|>|<)\s*(\d+(?:\.\d+)*)\s*")
# The messages of these describe code; those of KindFault are ours.
_SAFE_MESSAGES: Final = (
    *(ImportError, SyntaxError, NameError, AttributeError),
    *(TrailsError, KindFault),
)
T = TypeVar("T")


class PluginFault(Exception):  # noqa: N818 - becomes a text of ``Plugins.failures``
    """Why a plugin can't be used."""


class Plugins(msgspec.Struct, frozen=True):
    """The plugins of a project."""

    loaded: tuple[Plugin, ...] = ()
    failures: Mapping[str, str] = {}
    """Name → why it is not loaded."""
    declarations: Declarations = Declarations()

    @property
    def commands(self) -> dict[str, PluginCommand]:
        """All commands, by name."""
        return {command.name: command for each in self.loaded for command in each.commands}

    @property
    def resources(self) -> dict[str, PluginResource]:
        """All resources, as ``<plugin>/<path>``."""
        return {
            f"{each.name}/{given.path}": given for each in self.loaded for given in each.resources
        }

    def explain(self, reason: TrailsError) -> None:
        """Add to an error of declarations which plugins they may lack."""
        if self.failures:
            shown = "; ".join(f"plugin {name!r}: {why}" for name, why in self.failures.items())
            reason.message += f" (not loaded: {shown})"
            reason.args = (reason.message,)


def installed_plugins() -> dict[str, list[EntryPoint]]:
    """Return the plugins of installed packages, by name; nothing of them is imported."""
    found: dict[str, list[EntryPoint]] = {}
    for each in metadata.entry_points(group=GROUP):
        if each not in found.setdefault(each.name, []):
            found[each.name].append(each)
    return found


@cache
def load_plugins(names: tuple[str, ...]) -> Plugins:
    """Load some plugins in order; each that can't be used is reported."""
    if not names:
        return Plugins()
    installed, loaded = installed_plugins(), Plugins()
    for name in dict.fromkeys(names):
        try:
            loaded = _join(loaded, _find(name, installed))
        except PluginFault as fault:
            loaded = msgspec.structs.replace(loaded, failures={**loaded.failures, name: str(fault)})
    return loaded


def _find(name: str, installed: Mapping[str, Sequence[EntryPoint]]) -> Plugin:
    """Import a plugin, and check what it says of itself."""
    points = installed.get(name, ())
    if not points:
        raise PluginFault(
            f"no installed package has it; install the package, or remove {name!r} from "
            "[project] plugins"
        )
    if len(points) > 1:
        packages = ", ".join(sorted(str(each.dist.name if each.dist else "?") for each in points))
        raise PluginFault(f"several packages have it ({packages}); uninstall all but one")
    found = _guard(f"{points[0].value} can't be imported", points[0].load)
    if not isinstance(found, Plugin):
        raise PluginFault(f"{points[0].value} is not a Plugin; make it with trails.Plugin(...)")
    if found.name != name:
        raise PluginFault(f"it calls itself {found.name!r}; use one name in both places")
    if not fits_version(__version__, found.requires):
        raise PluginFault(
            f"version {found.version} needs Trails {found.requires}, and this is {__version__}; "
            "install another version of one of them"
        )
    return found


def _guard(what: str, work: Callable[..., T], *given: object) -> T:
    """Run code of a plugin; what it raises becomes a fault, without texts that may be secret."""
    try:
        return work(*given)
    except BaseException as error:
        if not isinstance(error, Exception | SystemExit):
            raise
        said = f": {error}" if isinstance(error, _SAFE_MESSAGES) else ""
        raise PluginFault(f"{what}: {type(error).__name__}{said}") from None


def _join(known: Plugins, plugin: Plugin) -> Plugins:
    """Add a plugin to those before it; all of it, or a fault and none."""
    problems = [*_check_commands(known, plugin), *_check_resources(plugin)]
    if problems:
        raise PluginFault("; ".join(problems))
    before = set(KINDS)
    try:
        for kind in plugin.kinds:
            _guard("a kind can't be added", add_kind, kind)
        declared = known.declarations + _discover(plugin)
        registry = _guard("conflicting declarations", _make_registry, declared)
        _check_calls(plugin, registry)
    except PluginFault:
        for kind in plugin.kinds:
            if kind.name not in before:
                remove_kind(kind)
        raise
    return Plugins((*known.loaded, plugin), known.failures, declared)


def _discover(plugin: Plugin) -> Declarations:
    found = Declarations()
    for name in plugin.modules:
        found += discover(_guard(f"{name} can't be imported", import_module, name))
    return found


def _make_registry(declared: Declarations) -> Registry:
    """Check declarations against each other and against what is built in."""
    return RegistryCell(collect(META).capabilities).add(declared)


def _check_calls(plugin: Plugin, registry: Registry) -> None:
    for each in plugin.commands:
        if registry.capability(each.capability) is None:
            raise PluginFault(
                f"the command {each.name!r} calls {each.capability!r}, which is not declared"
            )


def _check_commands(known: Plugins, plugin: Plugin) -> Iterator[str]:
    taken = dict.fromkeys(LISTED, "built in")
    taken |= {each.command.split()[0]: "built in" for each in operations.OPERATIONS if each.command}
    taken |= {
        command.name: f"one of plugin {each.name!r}"
        for each in known.loaded
        for command in each.commands
    }
    for command in plugin.commands:
        if not _NAME.fullmatch(command.name):
            yield f"{command.name!r} can't name a command; use lower-case words joined by '-'"
        elif command.name in taken:
            yield f"the command {command.name!r} is {taken[command.name]}; rename it"
        taken.setdefault(command.name, "declared twice")


def _check_resources(plugin: Plugin) -> Iterator[str]:
    seen = set()
    for each in plugin.resources:
        if not _PATH.fullmatch(each.path):
            yield f"{each.path!r} can't be the path of a resource; use one lower-case word"
        if not _MEDIA.fullmatch(each.media_type):
            yield f"{each.media_type!r} of the resource {each.path!r} is not a media type"
        if each.path in seen:
            yield f"the resource {each.path!r} is declared twice; rename one"
        seen.add(each.path)


def fits_version(version: str, specifier: str) -> bool:
    """Whether a version is among those of a specifier, like ``>=0.1,<1``."""
    if not specifier.strip():
        return True
    return all(_fits(_numbers(version), each) for each in specifier.split(","))


def _fits(version: tuple[int, ...], clause: str) -> bool:
    matched = _SPECIFIER.fullmatch(clause)
    if matched is None:
        raise PluginFault(f"requires has {clause.strip()!r}, which is not like '>=0.1' or '<1'")
    operator, wanted = matched[1], _numbers(matched[2])
    width = max(len(version), len(wanted))
    left, right = (each + (0,) * (width - len(each)) for each in (version, wanted))
    if operator == "~=":
        return left >= right and version[: len(wanted) - 1] == wanted[:-1]
    return {
        ">=": left >= right,
        "<=": left <= right,
        "==": left == right,
        "!=": left != right,
        ">": left > right,
        "<": left < right,
    }[operator]


def _numbers(version: str) -> tuple[int, ...]:
    """The release of a version, without what follows its numbers."""
    matched = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, matched[0].split("."))) if matched else (0,)


def examine_plugins(plugins: Plugins) -> Iterator[Finding]:
    """Report the plugins of a project, and installed ones that it does not enable."""
    for name, why in plugins.failures.items():
        fix = "fix that and restart; until then nothing of the plugin is there"
        yield flag("plugin_failed", f"{name}: {why}", fix, where=name)
    if plugins.loaded:
        yield passed("plugins", ", ".join(f"{each.name} {each.version}" for each in plugins.loaded))
    known = {*plugins.failures, *(each.name for each in plugins.loaded)}
    for name in sorted(installed_plugins().keys() - known):
        fix = f'to use it: [project] plugins = ["{name}"]'
        yield flag("plugin_disabled", f"{name} is installed, and not enabled", fix, where=name)
