"""What other rooms refuse in a spec, for everybody who reads one to apply it."""

from __future__ import annotations

from weir.alerts.rule import alert_mistakes
from weir.spec.check import PartCheck

SPEC_CHECKS: tuple[PartCheck, ...] = (alert_mistakes,)
