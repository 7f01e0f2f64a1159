"""The Python client over HTTP. Its public names are those of `weir` itself."""
