"""Records in the audit log what a request changes in its environment."""

from __future__ import annotations

from weir.api.auth import Access
from weir.api.services import Services
from weir.control.audit_log import AuditedChange


async def audit(services: Services, access: Access, action: str, target: str, /, **details: object) -> None:
    """Record a change. Inside `all_or_nothing` the change and its record are one transaction."""
    if services.audit is not None:
        change = AuditedChange.inside(
            access.environment, actor=access.actor, action=action, target=target, **details
        )
        await services.audit.record(change)
