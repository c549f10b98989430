"""The path of a request: authenticate, resolve, authorize, dispatch, shape."""
