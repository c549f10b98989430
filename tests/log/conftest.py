"""Logs of both kinds."""

import pytest

from trails.log.postgres.log import PostgresLog
from trails.log.sqlite import SqliteLog

BASE = "trails://tests/main"
MADE = "2026-01-01T00:00:00Z"


class Place:
    """Where a log is; it can be opened again and again."""

    def __init__(self, folder, url=""):
        """``url``: on a server."""
        self.folder, self.url = folder, url
        self._opened = []

    def open(self, **options):
        """The log of this place; whatever was opened before is closed first."""
        self.close()
        if self.url:
            log = PostgresLog(self.url, self.folder, "main", BASE, MADE, **options)
        else:
            log = SqliteLog(self.folder, "main", BASE, MADE, **options)
        self._opened.append(log)
        return log

    def close(self):
        """Close what is open."""
        while self._opened:
            self._opened.pop().close()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """A place for a log, of each kind."""
    url = request.getfixturevalue("postgres").schema() if request.param == "postgres" else ""
    found = Place(tmp_path / "graph", url)
    yield found
    found.close()


@pytest.fixture
def remote(postgres, tmp_path):
    """A place for a log on PostgreSQL."""
    found = Place(tmp_path / "graph", postgres.schema())
    yield found
    found.close()
