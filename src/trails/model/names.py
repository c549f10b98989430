"""Which names may be declared, and how one name is written on each surface.

Pure grammar. Names are checked when they are declared, so no surface needs escaping rules.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches
from hashlib import sha256
from typing import Final

from trails.errors import DeclarationError
from trails.model.iris import IRI_PATTERN, RDF_TYPE

CONTROL_ARGUMENTS: Final = frozenset(
    {"branch", "snapshot", "dry_run", "propose", "expected_head", "idempotency_key", "max_chars"}
)

RESERVED_PROJECTS: Final = frozenset(
    {"kg", "schema", "stats", "doctor", "prov", "branches", "queries", "branch", "at"}
)

# The closed set of built-in tools; a capability or stored query may not shadow one.
BUILTIN_TOOLS: Final = frozenset(
    {
        "branch_create",
        "branch_delete",
        "branch_list",
        "branch_merge",
        "commit_get",
        "commit_list",
        "export_records",
        "fetch",
        "graph_health",
        "graph_load",
        "graph_mutate",
        "graph_query",
        "graph_snapshot",
        "node_blame",
        "node_get",
        "node_list",
        "read_record_field",
        "schema_apply",
        "schema_get",
        "search",
        "stored_query_list",
        "stored_query_run",
        "trails_meta_doctor",
        "trails_meta_files_apply",
        "trails_meta_gen_app",
        "trails_meta_gen_capability",
        "trails_meta_gen_edgetype",
        "trails_meta_gen_migration",
        "trails_meta_gen_nodetype",
        "trails_meta_gen_plugin",
        "trails_meta_gen_policy",
        "trails_meta_gen_query",
        "trails_meta_gen_shape",
        "trails_meta_impact",
        "trails_meta_migrate_apply",
        "trails_meta_migrate_plan",
        "trails_meta_migrate_rollback",
        "trails_meta_migrate_status",
        "trails_meta_policy_check",
        "trails_meta_policy_explain",
        "trails_meta_policy_test",
        "trails_meta_query_add",
        "trails_meta_query_check",
        "trails_meta_query_explain",
        "trails_meta_reload",
        "trails_meta_schema_apply",
        "trails_meta_schema_diff",
        "trails_meta_schema_export",
        "trails_meta_schema_import",
        "trails_meta_schema_outline",
        "trails_meta_schema_plan",
        "trails_meta_schema_show",
    }
)

META_PREFIX: Final = "trails.meta."

INTERNAL_BRANCH: Final = "~"
"""How the names of branches begin that only Trails uses; nobody can list, read or name them."""

_TYPE = re.compile(r"[A-Z][A-Za-z0-9]{0,63}")
_FIELD = re.compile(r"[a-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*")
_TERM = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_CAPABILITY = re.compile(r"[a-z][a-z0-9]*([._][a-z0-9]+)*")
_META = re.compile(r"trails\.meta\.([a-z][a-z0-9]*\.)?[a-z][a-z0-9]*")
_PROJECT = re.compile(r"[a-z][a-z0-9-]{0,62}")
LONGEST_BRANCH: Final = 100
_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_TOOL = re.compile(r"[A-Za-z0-9_.-]{1,128}")


def check_type_name(name: str) -> None:
    """A type is named like a class: ``Requirement``."""
    if not _TYPE.fullmatch(name):
        raise DeclarationError(
            f"{name!r} can't name a type: start with a capital letter, then letters and digits, "
            "64 at most (for example 'TestCase')"
        )


def check_field_name(owner: str, name: str) -> None:
    """A field is a lower-case word; double underscores belong to lookups."""
    if not _FIELD.fullmatch(name) or len(name) > 64:
        raise DeclarationError(
            f"{owner}.{name}: a field name starts with a lower-case letter, has letters, digits "
            "and single underscores, and at most 64 of them; rename it"
        )


def check_term(where: str, iri: str) -> None:
    """A declared RDF name is an absolute IRI, or a word in the graph's own vocabulary."""
    if iri == RDF_TYPE:
        raise DeclarationError(f"{where}: iri={iri!r} says what type a node has; choose another")
    if iri and not _TERM.fullmatch(iri) and not re.fullmatch(IRI_PATTERN[1:-1], iri):
        raise DeclarationError(
            f"{where}: iri={iri!r} is not an IRI; write an absolute one, like "
            "'https://schema.org/name', or leave it out"
        )


def check_base_iri(base: str) -> None:
    """A base is an absolute IRI that types and ids can follow as parts of a path."""
    if not re.fullmatch(IRI_PATTERN[1:-1], base) or "#" in base or "?" in base:
        raise DeclarationError(
            f"base_iri {base!r} can't begin the IRIs of a graph: write an absolute IRI without '?' "
            "and '#', like 'https://example.org/kg', or leave it out"
        )


def check_capability_id(identifier: str) -> None:
    """A capability id is dotted lower-case words: ``requirements.accept``."""
    if not _CAPABILITY.fullmatch(identifier) or len(identifier) > 128:
        raise DeclarationError(
            f"{identifier!r} can't be a capability id: use lower-case words joined by dots or "
            "single underscores, 128 characters at most (for example 'requirements.accept')"
        )
    if identifier.startswith("trails."):
        raise DeclarationError(
            f"{identifier!r}: ids that start with 'trails.' belong to the framework; "
            "use @meta_capability for operations on the application itself"
        )


def check_meta_id(identifier: str) -> None:
    """Underscores are refused so that ``trails_meta_gen_shape`` maps back to one id."""
    if "_" in identifier:
        raise DeclarationError(
            f"{identifier!r}: '_' is not allowed in a meta-capability's name, because its tool "
            "name replaces dots by underscores and must map back; use a single word"
        )
    if not _META.fullmatch(identifier):
        raise DeclarationError(
            f"{identifier!r} can't be a meta-capability id: write 'trails.meta.<op>' or "
            "'trails.meta.<namespace>.<op>' in lower-case letters and digits"
        )


def check_project_name(name: str) -> None:
    """Project and graph names become part of IRIs and paths."""
    if not _PROJECT.fullmatch(name):
        raise DeclarationError(
            f"{name!r} can't name a project or graph: use a lower-case letter, then lower-case "
            "letters, digits and '-', 63 at most"
        )
    if name in RESERVED_PROJECTS:
        raise DeclarationError(
            f"{name!r} is reserved, because trails://{name}/ addresses something built in; "
            "choose another name"
        )


def check_branch_name(name: str) -> None:
    """Branches are named like paths: ``main``, ``agents/ada/tidy-up``."""
    if (
        len(name) > LONGEST_BRANCH
        or _BRANCH.fullmatch(name) is None
        or ".." in name
        or name.endswith((".", ".lock"))
    ):
        raise DeclarationError(
            f"{name[:200]!r} can't name a branch: use letters, digits, '.', '_', '-' and '/' "
            f"between parts that begin with a letter or digit, at most {LONGEST_BRANCH} in all",
            branch=name[:200],
        )


def fold(name: str) -> str:
    """A name as it is compared with names that look alike: ``maxCount`` is like ``max_count``."""
    return name.replace("_", "").replace("-", "").casefold()


def branch_folder(name: str) -> str:
    """The folder of a branch: one name, also where a file system ignores case."""
    if name == "main":
        return name
    return f"{name.replace('/', '+')}~{sha256(name.encode()).hexdigest()[:8]}"


def check_parameter_name(owner: str, name: str) -> None:
    """Control arguments steer the engine and can't double as a capability's own."""
    if name in CONTROL_ARGUMENTS:
        raise DeclarationError(
            f"{owner}: parameter {name!r} is a control argument of every call "
            f"({', '.join(sorted(CONTROL_ARGUMENTS))}); rename it"
        )
    check_field_name(owner, name)


def check_tool_name(name: str) -> None:
    """What every MCP client accepts at most."""
    if not _TOOL.fullmatch(name):
        raise DeclarationError(
            f"{name!r} can't name a tool: 1 to 128 characters of A-Z a-z 0-9 _ . -"
        )


def meta_tool_name(identifier: str) -> str:
    """``trails.meta.gen.shape`` → ``trails_meta_gen_shape``."""
    check_meta_id(identifier)
    return identifier.replace(".", "_")


def meta_id_of_tool(tool: str) -> str:
    """The inverse of :func:`meta_tool_name`."""
    identifier = tool.replace("_", ".")
    check_meta_id(identifier)
    return identifier


def suggest(name: str, known: Collection[str]) -> str:
    """A hint for an unknown name: the nearest known name, or all of them."""
    near = get_close_matches(name, known, n=1)
    near = near or [each for each in known if each.casefold() == name.casefold()]
    return f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"


def portable_name(name: str) -> str:
    """The spelling for clients that refuse dots; two names may not share one."""
    return name.replace(".", "_").replace("-", "_")
