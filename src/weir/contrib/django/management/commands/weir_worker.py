"""`manage.py weir_worker`: Weir's worker for the tasks of a Django project."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from weir.cli.main import main
from weir.contrib.django.worker_apps import app_of_alias
from weir.errors import Misconfigured

_NUMBERS = {
    "concurrency": "Work on so many tasks at once; over HTTP so many of each queue.",
    "processes": "Keep so many worker processes running.",
    "port": "Answer /metrics, /livez and /readyz here; 0 chooses a port.",
}


class WeirWorkerCommand(BaseCommand):  # type: ignore[misc]
    """Runs tasks until Ctrl-C or SIGTERM, which let running tasks end."""

    help = "Run the tasks that this project enqueues with a backend of Weir."
    # `handle` reports wrong settings. Django's checks would also want an address of the API, and a worker on
    # the stores does not need one.
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--backend", default="default", help="Backend of TASKS; `default` by default.")
        parser.add_argument("--queue", action="append", default=[], help="Only this queue; may be repeated.")
        for name, text in _NUMBERS.items():
            parser.add_argument(f"--{name}", type=int, help=text)
        parser.add_argument("--watch", action="store_true", help="Start again when a Python file changes.")
        parser.add_argument("--plan", action="store_true", help="Only show what declaring queues changes.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            app_of_alias(options["backend"])
        except Misconfigured as error:
            raise CommandError(str(error), returncode=2) from None
        # The processes of a worker find the project where `manage.py` does.
        paths = [str(Path(sys.path[0]).resolve()), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        main(["worker", f"weir.contrib.django.worker_apps:{options['backend']}", *_words(options)])


Command = WeirWorkerCommand
"""The name by which Django finds it."""


def _words(options: dict[str, Any]) -> list[str]:
    """The options as `weir worker` spells them."""
    words = [word for queue in options["queue"] for word in ("--queue", queue)]
    for name in _NUMBERS:
        if options[name] is not None:
            words += [f"--{name}", str(options[name])]
    return words + [f"--{name}" for name in ("watch", "plan") if options[name]]
