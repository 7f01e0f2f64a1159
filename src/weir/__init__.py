"""Weir: a message queue that you can see through."""

__version__ = "0.1.0"
