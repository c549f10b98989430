"""A client of ``trails serve --stdio`` that says by which token it asks."""

from tests.access.workshops import code_of
from tests.serving.processes import META, OLD, Stdio

CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
NEW = "2026-07-28"


def said(token):
    """A client info, with a token or without."""
    info = {"name": "test", "version": "1"}
    return info if token is None else {**info, "authorization": {"bearer": token}}


def meta_of(token):
    """The envelope of a request of the newest revision."""
    return {**META, CLIENT_INFO: said(token)}


class Client(Stdio):
    """A session, of an older revision where ``begin`` is called."""

    def begin(self, token=None):
        """Open a session: the answer to ``initialize``."""
        asked = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": said(token)}
        answer = self.answer(self.ask("initialize", asked))
        if "result" in answer:
            self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
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
