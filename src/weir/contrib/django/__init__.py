"""Weir for Django: a backend for `TASKS`, and `manage.py weir_worker` when it is one of `INSTALLED_APPS`.

```python
INSTALLED_APPS = ["django_tasks", "weir.contrib.django"]
TASKS = {"default": {"BACKEND": "weir.contrib.django.WeirBackend"}}
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weir.model.lazy import lazy_names

if TYPE_CHECKING:
    from weir.contrib.django.backend import WeirBackend

__all__ = ["WeirBackend"]

_HOMES = {"WeirBackend": "backend"}
"""Public name -> the module that defines it. Django imports this package before its apps are ready."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names("weir.contrib.django", _HOMES)
