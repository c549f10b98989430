"""Serve the Northline example and take a tour of it: run it with ``make demo``.

The demo works on a copy of this project, ``.demo/northline`` at the top of the repository. The
copy stays there with its data, and the server runs until it is stopped.

DEMO_ONCE=1  end after the tour, and keep nothing
TOUR=all     show the rest of the tour, too
"""

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import tour
import tour_more
from rich.console import Console
from server import is_free, serving

HERE = Path(__file__).parent
DEMO = HERE.parent.parent / ".demo" / "northline"
PORT = 8321
console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    """Serve, show the tour on the first run, and stay."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))
    if os.environ.get("DEMO_ONCE"):
        with tempfile.TemporaryDirectory(prefix="northline-") as folder:
            run_demo(Path(folder) / "northline", port=0, stay=False)
    else:
        run_demo(DEMO, port=PORT if is_free(PORT) else 0, stay=True)


def run_demo(project: Path, *, port: int, stay: bool) -> None:
    """Serve a copy of this project; one that an earlier demo left is served as it is."""
    fresh = not project.exists()
    if fresh:
        copy_project(project)
    with serving(project, port) as served:
        console.print(f"\nServing Northline at [bold]{served['url']}[/]. Let your agent in:\n")
        console.print(f"  {served['graphs'][0]['add']}\n", markup=False)
        console.print("Other clients: .venv/bin/trails mcp install --help")
        if fresh:
            take_tour(project, served)
        else:
            console.print(f"\nThis is the data of your last demo, in {os.path.relpath(project)}.")
            console.print("Delete that folder to start again, with the tour.")
            if os.environ.get("TOUR") == "all":
                tour_more.show_more(project)
        if stay:
            console.print(f"\nServing at [bold]{served['url']}[/] until you press Ctrl-C.")
            console.print(f"The data is in {os.path.relpath(project)} and stays there.")
            # A signal raises SystemExit wherever the program is, so none is missed.
            while True:
                signal.pause()


def copy_project(target: Path) -> None:
    """Copy this project without its data, complete or not at all."""
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(HERE, partial, ignore=shutil.ignore_patterns(".trails", "__pycache__"))
    partial.rename(target)


def take_tour(project: Path, served: dict[str, Any]) -> None:
    """Show the short tour, or all of it."""
    tour.show(project, served["graphs"][0]["url"])
    if os.environ.get("TOUR") == "all":
        tour_more.show_more(project)
    else:
        console.print("\nThat was the short tour; 'TOUR=all make demo' shows more.")
    console.print("Start a project of your own with [bold].venv/bin/trails new acme[/].")


if __name__ == "__main__":
    main()
