"""Measurements, for a checkout only: `weir bench` runs them."""
