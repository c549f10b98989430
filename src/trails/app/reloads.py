"""What came of a reload: which declarations differ, or why they can't be used.

``App.reload`` does it; this describes it, for the log and for every surface.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from trails.errors import TrailsError
from trails.model.iris import digest_of
from trails.model.upkeep import ReloadError, ReloadReport
from trails.registry.registry import Registry

_logger: Final = logging.getLogger("trails")


def compare_registries(
    graph: str, old: Registry, new: Registry, schema: Sequence[str]
) -> ReloadReport:
    """Return what a new registry declares otherwise than the one before."""
    before, after = dict(_descriptors(old)), dict(_descriptors(new))
    return ReloadReport(
        graph,
        "reloaded",
        new.version,
        new.digest,
        added=tuple(sorted(after.keys() - before.keys())),
        changed=tuple(
            name for name in sorted(after.keys() & before.keys()) if before[name] != after[name]
        ),
        removed=tuple(sorted(before.keys() - after.keys())),
        schema=tuple(schema),
    )


def _descriptors(registry: Registry) -> Iterator[tuple[str, str]]:
    """Everything that is declared, with its digest."""
    kinds: Mapping[str, Mapping[str, object]] = {
        "type": registry.types,
        "shape": registry.shapes,
        "capability": {name: each.descriptor for name, each in registry.capabilities.items()},
        "meta-capability": {name: each.descriptor for name, each in registry.metas.items()},
        "stored query": registry.queries,
    }
    for kind, named in kinds.items():
        for name, each in named.items():
            yield f"{kind} {name}", digest_of(each)


def describe_reason(reason: Exception, file: str) -> ReloadError:
    """Return why declarations can't be used; ``file`` is the module of the graph."""
    if not isinstance(reason, TrailsError):
        message = f"unexpected {type(reason).__name__}; details are in the log"
        return ReloadError("internal", message, file)
    where = reason.data.get("where", file)
    return ReloadError(reason.code, reason.message, str(where))


def log_reload(report: ReloadReport, unexpected: Exception | None = None) -> None:
    """Write a line about a reload; an exception that is our fault comes with its trace."""
    if report.error is None:
        _logger.info(
            "graph %s: reloaded, registry version %d: %s",
            report.graph,
            report.version,
            report.summary(),
            extra={"event": "reload.done"},
        )
    else:
        _logger.error(
            "graph %s: not reloaded, the declarations before stay in use: %s",
            report.graph,
            report.error,
            exc_info=unexpected,
            extra={"event": "reload.failed"},
        )
