"""Import a module when it is first used.

A command that reads one page needs a third of the modules, and importing the others would take
longer than its work. ``later`` is for a module that only some paths of its user need::

    if TYPE_CHECKING:
        from trails.engine.write import mutate
    else:
        mutate = later("trails.engine.write.mutate")

Type checkers and import contracts see an ordinary import. A server calls ``import_all`` before it
takes requests, so that none of them waits for an import.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final

_names: Final[set[str]] = set()


def later(name: str) -> ModuleType:
    """A module that is imported when one of its attributes is first read."""
    _names.add(name)
    return _LaterModule(name)


def import_all() -> None:
    """Import every module that was left for later, and those that they leave."""
    done: set[str] = set()
    while waiting := _names - done:
        for name in sorted(waiting):
            import_module(name)
        done |= waiting


class _LaterModule(ModuleType):
    _found: ModuleType | None = None

    def __getattr__(self, name: str) -> object:
        found = self._found
        if found is None:
            found = self._found = import_module(self.__name__)
        # Values are not kept here: what replaces one in the module is seen at once.
        return getattr(found, name)
