"""kill -9 while writers share their appends: what each of them was told is there, once.

Threads save items of their own and print what was acknowledged. After the kill every such commit is
in the log, no item was written twice, and the views are as the log says.
"""

import random
import signal
import subprocess
import sys
import time

import pytest
from tests.campaigns import sized
from tests.journeys.durability.campaign import fresh_seed, make_project

from trails import App
from trails.engine.upkeep.verify import verify

WORKER = """
import sys, threading
from trails import App
project, start, step = sys.argv[1], int(sys.argv[2]), sys.argv[3]
lock = threading.Lock()
def work(app, number):
    Item = app.registry().classes["Item"]
    ctx = app.context(actor=f"writer-{number}")
    at = start
    while True:
        code = f"{number}-{at}"
        commit = Item(code=code, value=at).save(ctx)
        with lock:
            print(code, commit.id, flush=True)
        at += 1
with App.open(project) as app:
    graph, steps = app.graph(), []
    def look(name):
        steps.append(name)
        if name == step and len(steps) > 60:
            import os, signal
            os.kill(os.getpid(), signal.SIGKILL)
    graph.on_step = look
    threads = [threading.Thread(target=work, args=(app, n), daemon=True) for n in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
"""
STEPS = ("before_append", "after_append", "mid_apply", "after_apply", "")


def run(project, start, step, seconds):
    """Let eight writers write until they are killed; what was acknowledged: code → commit."""
    command = [sys.executable, "-c", WORKER, str(project), str(start), step]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        first = process.stdout.readline()
        if not step:
            time.sleep(seconds)
            process.send_signal(signal.SIGKILL)
        rest = process.stdout.read()
        assert process.wait() == -signal.SIGKILL
    lines = [line.split() for line in (first + rest).splitlines() if line]
    return {line[0]: line[1] for line in lines if len(line) == 2}


def judge(project, acknowledged):
    """Everything acknowledged is there; what is there was written once."""
    with App.open(project) as app:
        graph = app.graph()
        commits = list(graph.log.commits())
        made = {each.id: each.seq for each in commits}
        assert [each.seq for each in commits] == list(range(1, len(commits) + 1))
        assert not set(acknowledged.values()) - set(made)
        items = {each.code for each in app.registry().classes["Item"].objects(app.context())}
        assert acknowledged.keys() <= items
        written = [each for each in commits if each.actor.startswith("writer-")]
        assert len(written) == len(items)
        assert not [each for each in verify(graph, lambda _: None) if each.severity != "ok"]
        return max(made.values())


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_leaves_what_each_writer_was_told(tmp_path, step):
    """At each moment of a shared append, and at a random one."""
    rng = random.Random(fresh_seed())
    project, acknowledged = make_project(tmp_path / "project"), {}
    for start in (0, 10_000):
        acknowledged |= run(project, start, step, rng.uniform(0.1, 0.5))
        last = judge(project, acknowledged)
    assert last > len(acknowledged) > 8


@pytest.mark.long(cases=sized(20, nightly=2))
def test_many_kills_leave_what_each_writer_was_told(tmp_path):
    """The campaign: one project that is killed again and again."""
    rng = random.Random(fresh_seed())
    project, acknowledged = make_project(tmp_path / "project"), {}
    for number in range(sized(20, nightly=2)):
        step = rng.choice(STEPS)
        acknowledged |= run(project, number * 10_000, step, rng.uniform(0.05, 1.0))
        judge(project, acknowledged)
