"""A request that meets an owner who has just gone is answered, and not cut off."""

import asyncio

from trails.app.serve.web import Pump


async def pipe() -> tuple[tuple, tuple]:
    """Both ends of a connection."""
    arrived = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda *ends: arrived.set_result(ends), "127.0.0.1", 0)
    near = await asyncio.open_connection(*server.sockets[0].getsockname())
    far = await arrived
    server.close()
    return near, far


def test_a_request_that_crosses_the_end_of_the_owner_is_answered():
    """The owner goes with nothing asked; what was sent at that moment is told so."""

    async def run() -> bytes:
        client, front = await pipe()
        owner, beyond = await pipe()
        pumping = asyncio.ensure_future(Pump(front, owner).run())
        beyond[1].close()
        await beyond[1].wait_closed()
        client[1].write(b"POST /graphs/main/mcp HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await client[0].read()
        await pumping
        client[1].close()
        return answer

    answer = asyncio.run(run())
    assert answer.startswith(b"HTTP/1.1 502")
