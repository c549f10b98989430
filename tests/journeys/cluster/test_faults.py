"""Servers that are killed, paused and cut off while clients write: nothing is lost or doubled."""

import contextlib
import os
import random
import signal
import threading

import httpx2
import pytest
from tests.campaigns import sized
from tests.journeys.cluster.conftest import Cluster, agree, make_server, scores
from tests.worlds.processes import Web, wait_until

PEOPLE = 12
PATIENCE = 60


class Servers:
    """Processes on one log, some of which are down for a moment."""

    def __init__(self, cluster, names):
        self._folders = [make_server(cluster.folder / name, cluster.url) for name in names]
        self.up = [Web(folder) for folder in self._folders]

    def kill(self, number):
        """End one without warning, and start it again."""
        web = self.up[number]
        self.up[number] = None
        web.kill()
        web.__exit__(None)
        self.up[number] = Web(self._folders[number])

    def pause(self, number, seconds, wait):
        """Stop one for a while."""
        web = self.up[number]
        os.kill(web.pid, signal.SIGSTOP)
        wait(seconds)
        os.kill(web.pid, signal.SIGCONT)

    def close(self):
        """End all of them in order."""
        for web in self.up:
            if web is not None:
                web.close()
                web.__exit__(None)


class Client:
    """Writes until it is told to end; repeats each write, at any server, until it succeeds."""

    def __init__(self, servers, number, ended):
        self._servers, self._number, self._ended = servers, number, ended
        self._random = random.Random(number)
        self.acknowledged = []
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        step = 0
        while not self._ended.is_set():
            step += 1
            name = f"p{self._number}-{self._random.randrange(PEOPLE)}"
            data = {"name": name, "score": step}
            operation = {"op": "upsert", "type": "Person", "id": name, "data": data}
            key = f"{self._number}-{step}"
            while (commit := self._send({"operations": [operation]}, key)) is None:
                pass
            self.acknowledged.append((key, commit, name, step))

    def _send(self, body, key):
        web = self._random.choice(self._servers.up)
        if web is None:
            return None
        with contextlib.suppress(httpx2.TransportError):
            answer = httpx2.post(
                f"{web.url}/graphs/main/mutate",
                json=body,
                headers={"Idempotency-Key": key},
                timeout=2,
            )
            if answer.status_code == 200:
                return answer.json()["commit"]
            assert answer.status_code in {409, 429, 503}, answer.text
        return None


def run_faults(cluster, postgres, names, seed, faults, *, pauses=False, restarts=False):
    """Write while faults happen, and judge what is there in the end."""
    rng, servers, ended = random.Random(seed), Servers(cluster, names), threading.Event()
    clients = [Client(servers, number, ended) for number in range(3)]
    kinds = ["kill", "kill", "cut", *["pause"] * pauses, *["restart"] * restarts]

    def progress():
        before = sum(len(each.acknowledged) for each in clients)
        wait_until(lambda: sum(len(each.acknowledged) for each in clients) > before + 5)

    try:
        for _ in range(faults):
            progress()
            kind = rng.choice(kinds)
            if kind == "kill":
                servers.kill(rng.randrange(len(names)))
            elif kind == "cut":
                postgres.cut_connections()
            elif kind == "restart":
                postgres.restart()
            else:
                servers.pause(rng.randrange(len(names)), 12, threading.Event().wait)
        progress()
    finally:
        ended.set()
        for each in clients:
            each.thread.join()
        servers.close()
    judge(cluster, names, clients)


def judge(cluster, names, clients):
    """Every acknowledged write is there once, in an unbroken line, and all views agree."""
    apps = [cluster.start(name) for name in names]
    commits = list(apps[0].graph().log.commits())
    assert [each.seq for each in commits] == list(range(1, len(commits) + 1))
    keys = [each.idempotency_key for each in commits if each.idempotency_key is not None]
    assert len(keys) == len(set(keys))
    made = {each.id for each in commits}
    expected = {}
    for client in clients:
        assert all(commit in made for _, commit, *_ in client.acknowledged)
        expected.update({name: step for *_, name, step in client.acknowledged})
    found = scores(apps[0])
    assert {name: found.get(name) for name in expected} == expected
    agree(*apps)


def test_kills_and_cuts_lose_nothing(cluster, postgres):
    """A few of them."""
    run_faults(cluster, postgres, "ab", 1, 2)


@pytest.mark.long(cases=sized(50, nightly=2))
@pytest.mark.parametrize("seed", range(sized(50, nightly=2)))
def test_many_faults_lose_nothing(tmp_path, postgres, seed):
    """Also pauses that are longer than a turn may be, and restarts of PostgreSQL."""
    cluster = Cluster(tmp_path, postgres.schema(), postgres)
    try:
        run_faults(cluster, postgres, "abc", seed, 20, pauses=True, restarts=True)
    finally:
        cluster.close()
