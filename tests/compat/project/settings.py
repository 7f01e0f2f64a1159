"""A Django project whose tasks go through Weir; the tests that start it say where Weir is."""

from __future__ import annotations

import json
import os

SECRET_KEY = "of a test"
USE_TZ = True
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "views"
INSTALLED_APPS = ["django_tasks", "weir.contrib.django"]
DATABASES = json.loads(os.environ.get("PROJECT_DATABASES", "{}"))
QUEUES = ["default", "idle", "queue_1"]
TASKS = {
    "default": {
        "BACKEND": "weir.contrib.django.WeirBackend",
        "QUEUES": QUEUES,
        "OPTIONS": json.loads(os.environ.get("PROJECT_OPTIONS", "{}")),
    },
    "immediate": {"BACKEND": "django_tasks.backends.immediate.ImmediateBackend", "QUEUES": []},
}
LOGGING = {
    "version": 1,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {"django_tasks": {"handlers": ["console"], "level": "INFO"}},
}
