"""Commands for a checkout: `weir test`, `weir check`, `weir bench`, `weir docs`. None is in the wheel."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The checkout."""
