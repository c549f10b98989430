"""A client of ``trails serve --stdio`` that says by which token it asks."""

from tests.journeys.access.workshops import code_of
from tests.worlds.processes import Stdio
from tests.worlds.surfaces import INFO, INITIALIZED, MODERN, envelope, hello

CLIENT_INFO = "io.modelcontextprotocol/clientInfo"


def said(token):
    """A client info, with a token or without."""
    return dict(INFO) if token is None else {**INFO, "authorization": {"bearer": token}}


def meta_of(token):
    """The envelope of a request of the newest revision."""
    return envelope(MODERN, said(token))


class Client(Stdio):
    """A session, of an older revision where ``begin`` is called."""

    def begin(self, token=None):
        """Open a session: the answer to ``initialize``."""
        answer = self.answer(self.ask("initialize", hello(info=said(token))))
        if "result" in answer:
            self.send(INITIALIZED)
        return answer

    def old(self, method, **params):
        """The answer to a request of an older revision."""
        return self.answer(self.ask(method, params))

    def new(self, method, token=None, **params):
        """The answer to a request of the newest revision."""
        return self.answer(self.ask(method, {**params, "_meta": meta_of(token)}))

    def ping(self, token=None):
        """Who asks, in the newest revision; or the number of an error."""
        answer = self.new("tools/call", token, name="trails_meta_ping", arguments={})
        return code_of(answer) or answer["result"]["structuredContent"]["actor"]
