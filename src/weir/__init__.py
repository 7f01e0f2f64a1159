"""Weir: a message queue that you can see through."""
