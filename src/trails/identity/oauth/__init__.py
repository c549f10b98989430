"""Access tokens of another issuer (OAuth 2.1); this server is only a resource server.

It fetches nothing from the issuer but its public keys. A token is verified here, offline, and
is never passed on: the result is an actor.
"""
