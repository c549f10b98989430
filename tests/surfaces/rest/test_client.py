"""The client of the command line, on servers that answer early, badly, or not to the end."""

import socket
import threading

import pytest

from trails.app.sessions.connection import ServerConnection
from trails.app.sessions.servers import parse_address
from trails.errors import ConflictError, UnreachableError, ValidationError

BLOCK = b" " * (1 << 20)


def connect(port):
    """A client of a server on this machine."""
    return ServerConnection(parse_address(f"http://127.0.0.1:{port}"))


@pytest.fixture
def saying():
    """Start a server that says certain bytes to whoever connects, and hangs up."""
    sockets, threads = [], []

    def start(said):
        server = socket.create_server(("127.0.0.1", 0))
        sockets.append(server)

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(said)

        threads.append(threading.Thread(target=serve, daemon=True))
        threads[-1].start()
        return connect(server.getsockname()[1])

    yield start
    for thread in threads:
        thread.join(10)
    for each in sockets:
        each.close()


def test_an_answer_before_the_end_of_a_body_is_heard(client):
    """A load that is refused at once says why, however much was still to be sent."""
    blocks = (BLOCK for _ in range(64))
    with pytest.raises(ValidationError) as caught:
        connect(client.port).send(
            "/graphs/main/load", {"mode": "sideways"}, blocks, {"Content-Type": "text/csv"}
        )
    assert [each.field for each in caught.value.fields] == ["mode"]


def test_errors_are_what_they_were(client):
    """With their class, code, message and data."""
    connection = connect(client.port)
    with pytest.raises(ConflictError) as caught:
        connection.post("/graphs/main/branches", {"name": "main"})
    assert caught.value.code == "conflict"
    assert "'main'" in caught.value.message


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nGone", "answered 404"),
        (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", "answered 302"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "lost the connection"),
        (b"", "lost the connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[", "lost the connection"),
    ],
)
def test_what_is_no_answer_is_told(saying, said, told):
    """Not as a crash, and not as a result."""
    with pytest.raises(UnreachableError, match=told):
        saying(said).ask("GET", "/graphs")


def test_a_stream_that_breaks_off_is_not_taken_for_whole(saying):
    """Its reader is told."""
    start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"
    with pytest.raises(UnreachableError, match="lost the connection"):
        list(saying(start).receive("/graphs/main/export", {}))
