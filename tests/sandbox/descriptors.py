"""What the descriptors of a process stand for, as the system tells."""

from contextlib import suppress
from pathlib import Path


def files_opened_by(pid: int) -> list[str]:
    """Paths and kinds; a store closes some of its files in the background."""
    opened = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            opened.append(str(entry.readlink()))
    return opened
