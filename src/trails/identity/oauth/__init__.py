"""Access tokens of another issuer (OAuth 2.1): this server is a resource server, and no more.

It asks the issuer for nothing but its public keys. A token is checked here, offline, and
goes no further: what comes out is an actor.
"""
