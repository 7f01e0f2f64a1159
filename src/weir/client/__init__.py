"""The Python client: HTTP only, light to import. Its public names are those of `weir` itself."""
