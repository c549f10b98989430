"""Cedar: an actor, an action, a resource and a branch in, a decision out."""
