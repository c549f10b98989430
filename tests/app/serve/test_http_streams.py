"""Where a request ends is never in doubt: our reader finds what h11 and llhttp agree on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random

import pytest
from tests.app.serve.http_streams import (
    Ours,
    Request,
    cut,
    is_refused,
    make_stream,
    path_of,
    read_agreed,
)
from tests.app.serve.test_exchanges import Server
from tests.app.serve.test_http_connections import Recorder
from tests.campaigns import sized


def expected(data):
    """What we should execute of a stream, and whether the connection must end."""
    agreed = read_agreed(data)
    found, start = [], 0
    for request in agreed.requests:
        if is_refused(request, data, start):
            return found, True
        found.append(request._replace(target=path_of(request.target)))
        start = request.end
    return found, agreed.refused


async def campaign(seed, streams):
    """Compare; what is answered before its body was read is compared as well."""
    rng, ours = Random(seed), Ours()
    executed = 0
    for _ in range(streams):
        data = make_stream(rng)
        blocks = cut(data, rng)
        wanted, refused = expected(data)
        found = await ours.read_stream(blocks)
        exact = all(len(block) == 1 for block in blocks)
        ends = [each.end for each in wanted] if exact else [each.end for each in found.requests]
        same = [Request(*each[:3], end) for each, end in zip(wanted, ends, strict=False)]
        assert found.requests == same, (data, blocks)
        assert len(found.requests) == len(wanted), (data, blocks)
        if refused and not found.refused:  # it waits for the end of a line
            found = await ours.read_stream([*blocks, b"\r\n\r\n"])
            assert found.refused, (data, blocks)
            assert len(found.requests) == len(wanted), (data, blocks)
        executed += len(wanted)
        await ours.read_stream(blocks, hasty=True)
        said = [each[:2] for each in wanted]
        assert ours.begun[: len(said)] == said[: len(ours.begun)], (data, blocks)
        assert len(ours.begun) <= len(said) + 1, (data, blocks)
    ours.close()
    return executed


def test_our_reader_agrees_with_two_others():
    """On thousands of streams, however they are cut: the same requests, bodies and ends."""
    assert asyncio.run(campaign(1, 1500)) > 700


def test_our_reader_agrees_with_two_others_on_sockets():
    """On a few hundred streams, over a real connection each."""
    rng, app = Random(2), Recorder()
    with Server(app) as server:
        for _ in range(300):
            data = make_stream(rng)
            wanted, refused = expected(data)
            app.requests.clear()
            with server.connect() as sock, suppress(ConnectionResetError, BrokenPipeError):
                for block in cut(data, rng):
                    sock.sendall(block)
                if refused:  # it may wait for the end of a line
                    sock.sendall(b"\r\n\r\n")
                read_until(sock, len(wanted), ends=refused)
            found = [(each.method.decode(), each.target, each.body) for each in wanted]
            assert app.requests == found, data


def read_until(sock, answers, *, ends):
    """Read so many answers, and the end of the connection where it should come."""
    got = b""
    while ends or got.count(b"HTTP/1.1 200") < answers:
        part = sock.recv(1 << 16)
        if not part:
            return
        got += part


@pytest.mark.long(cases=50_000)
@pytest.mark.parametrize("seed", range(sized(20, nightly=1)))
def test_our_reader_agrees_with_two_others_for_long(seed):
    """On a million of them."""
    asyncio.run(campaign(1000 + seed, 50_000))
