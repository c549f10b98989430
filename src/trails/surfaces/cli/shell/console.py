"""``trails console``: a Python prompt with the project open, where ``await`` works.

A statement that awaits runs on one event loop for the whole session. Into a pipe the console reads
a whole program instead: ``trails console < report.py``.
"""

from __future__ import annotations

import ast
import asyncio
import code
import sys
import traceback
from collections.abc import Mapping
from inspect import iscoroutine
from pathlib import Path
from types import CodeType, FunctionType
from typing import Annotated, Final

import typer

from trails.surfaces.cli.operations import Operations
from trails.surfaces.cli.options import BranchOption, GraphOption, ProjectOption
from trails.surfaces.cli.output.plain import visible
from trails.surfaces.cli.output.reporting import Reporting

_PROGRAM: Final = "<stdin>"
_TYPED: Final = (_PROGRAM, "<console>")
"""The files that what was typed is in."""
_AWAIT: Final = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def add_console_command(cli: typer.Typer, operations: Operations) -> None:
    """Add it to the command line."""

    @cli.command(epilog="Examples: trails console · trails console < report.py")
    def console(
        *,
        branch: BranchOption = "main",
        graph: GraphOption = None,
        actor: Annotated[str, typer.Option(help="Who the changes are by.")] = "local",
        project: ProjectOption = Path(),
    ) -> None:
        """Open a Python prompt with the project's types, a context, and await."""
        failed = False
        with Reporting(as_json=False) as report:
            report.silent = True
            opened = operations.console(project, graph, branch, actor, report.progress)
            with opened as names, asyncio.Runner() as runner:
                prompt = Prompt(names, runner)
                if sys.stdin.isatty():
                    prompt.talk()
                else:
                    failed = not prompt.run_program(sys.stdin.read())
        if failed:
            raise typer.Exit(1)


class Prompt(code.InteractiveConsole):
    """Runs statements, and awaits those that are coroutines."""

    def __init__(self, names: Mapping[str, object], runner: asyncio.Runner) -> None:
        self._offered = sorted(names)
        super().__init__({"__name__": "__console__", "__doc__": None, **names})
        self.compile.compiler.flags |= _AWAIT
        self._runner = runner

    def runcode(self, code: CodeType) -> None:
        """Run one statement; an exception is printed, and the prompt goes on."""
        try:
            self._run(code)
        except SystemExit:
            raise
        except BaseException:  # noqa: BLE001 - shown to the one who typed it, Ctrl-C too
            sys.stderr.write(_explain())

    def _run(self, code: CodeType) -> None:
        found = FunctionType(code, self.locals)()
        if iscoroutine(found):
            self._runner.run(found)

    def talk(self) -> None:
        """Read statements until the end of input, with history and completion."""
        try:
            import readline  # noqa: PLC0415 - changes how input() reads
            import rlcompleter  # noqa: PLC0415 - likewise
        except ImportError:
            pass
        else:
            readline.set_completer(rlcompleter.Completer(dict(self.locals)).complete)
            readline.parse_and_bind("tab: complete")
        self.interact(banner=self.banner(), exitmsg="")

    def banner(self) -> str:
        """What there is."""
        own = ", ".join(name for name in self._offered if name not in {"app", "ctx"})
        lines = [
            f"Python {sys.version.split()[0]}, with await. The project is open; Ctrl-D ends.",
            "  app  the project      app.call(ctx, name, {...})   app.query(ctx, name)",
            "  ctx  a context        ctx.kg.sparql(text)          ctx.branch",
        ]
        if own:
            lines.append(f"  {own}")
        return visible("\n".join(lines))

    def run_program(self, text: str) -> bool:
        """Run a whole program; whether it succeeded. Its exception is printed."""
        try:
            self._run(compile(text, _PROGRAM, "exec", flags=_AWAIT))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001 - a program may raise anything
            sys.stderr.write(_explain())
            return False
        return True


def _explain() -> str:
    """The current exception, from where the code of the user begins."""
    kind, error, trace = sys.exc_info()
    while trace is not None and trace.tb_frame.f_code.co_filename not in _TYPED:
        trace = trace.tb_next
    return visible("".join(traceback.format_exception(kind, error, trace)))
