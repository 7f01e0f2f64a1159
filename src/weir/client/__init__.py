"""The Python client, over HTTP or in direct mode. `weir` itself has its public names."""
