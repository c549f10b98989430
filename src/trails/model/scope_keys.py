"""What the HTTP front and the surfaces behind it agree on: keys of an ASGI scope, the body limit.

The front authenticates a request and puts the result into its scope under these keys; MCP and
REST read them there. Neither side imports the other, so both import this module.
"""

from __future__ import annotations

from typing import Final

ACTOR: Final = "trails.actor"
"""The ``Actor`` that sends the request."""
CHALLENGE: Final = "trails.challenge"
"""A function from a missing scope to the ``WWW-Authenticate`` value that asks for it, or None."""
PRESENTED: Final = "trails.presented"
"""The ``Secret`` that came in the ``Authorization`` header."""
LISTENER: Final = "trails.listener"
"""The ``Listener`` that accepted the connection: its host policy and its authenticator."""
MAX_BODY: Final = 32 << 20
"""Bytes of a message or body that is read as a whole, unless the application sets another limit."""
