"""``trails console``: statements and whole programs, with the project's own types."""

import contextlib
import os
import pty
import subprocess
import sys

from tests.worlds.processes import Web, command, run_command

PROGRAM = """\
import asyncio

title = await asyncio.sleep(0, "From a program")
async with asyncio.timeout(5):
    task = Task(title=title)
    task.save(ctx)
print(sorted(task.title for task in Task.objects(ctx)))
print(app.call(ctx, "tasks.finish", {"task": task.id})["status"], ctx.branch)
"""


def test_a_program_runs_in_a_pipe(shell):
    """With await at its top level; what it writes is written by the actor that is named."""
    shell.run("branch", "create", "draft")
    told = shell.out("console", "--branch", "draft", "--actor", "ada", stdin=PROGRAM)
    assert "From a program" in told
    assert told.splitlines()[-1] == "done draft"
    newest = shell.json("commit", "list", "--branch", "draft")["commits"][0]
    assert newest["actor"] == "ada"


def test_a_program_that_fails_says_where(shell):
    """With its own lines alone, and exit code 1; what it printed is kept."""
    program = "print('begun')\nTask(title='x').save(ctx)\n"
    done = run_command(["console"], shell.project, program)
    assert (done.returncode, done.stdout) == (1, "begun\n")
    assert 'File "<stdin>", line 2' in done.stderr
    assert "console.py" not in done.stderr
    assert "title must have at least 3 characters" in done.stderr
    done = run_command(["console"], shell.project, "1 +")
    assert (done.returncode, done.stdout) == (1, "")
    assert "SyntaxError" in done.stderr
    assert "there is no branch" in shell.error("console", "--branch", "nowhere", stdin="")


def test_a_prompt_says_what_there_is_and_goes_on_after_errors(template):
    """On a terminal: a banner, values of expressions, tracebacks."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command("console"), cwd=template, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    for line in (
        "import asyncio",
        "await asyncio.sleep(0, 6 * 7)",
        "1 / 0",
        "Task.__name__",
        "exit()",
    ):
        while not shown.endswith(b">>> "):
            shown += os.read(ours, 4096)
        os.write(ours, f"{line}\n".encode())
        shown += b"\n"
    with contextlib.suppress(OSError):
        while block := os.read(ours, 4096):
            shown += block
    assert process.wait(60) == 0
    os.close(ours)
    text = shown.decode()
    assert f"Python {sys.version.split()[0]}, with await" in text
    assert "Person, Task, finish" in text
    assert "\n42\r\n" in text
    assert "ZeroDivisionError" in text
    assert "'Task'" in text


def test_beside_a_server_it_says_who_has_the_project(shell):
    """The prompt has the project open itself, which only one process can."""
    with Web(shell.project) as served:
        said = shell.error("console", stdin="1")
    assert f"process {served.process.pid} has this project open" in said
