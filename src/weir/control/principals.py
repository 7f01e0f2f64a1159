"""Principals: who sends a request and which scope it reaches. Tenants are kept apart here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from weir.errors import Forbidden, InvalidInput, NotFound
from weir.model.holders import Holder
from weir.model.names import EnvironmentRef


class Role(StrEnum):
    """The rights of a token; each role includes the ones before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"
    OPERATOR = "operator"
    """Runs the installation: an admin of every organization, who also sees Weir itself."""

    @property
    def rank(self) -> int:
        return _RANKS[self]


_RANKS = {Role.READ: 0, Role.WRITE: 1, Role.ADMIN: 2, Role.OPERATOR: 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who sends a request: a role inside an organization, a project or an environment.

    An operator has no organization and reaches every one.
    """

    token_id: str
    role: Role
    organization: str | None
    project: str | None = None
    environment: str | None = None
    direct: bool = False
    """Whether a user of Redis belongs to its token."""

    @property
    def holder(self) -> Holder:
        """The holder of the fair share that its requests take."""
        return self.organization, self.project, self.environment

    @property
    def actor(self) -> str:
        """Its name in audit records."""
        return f"token:{self.token_id}"

    def demand(self, role: Role) -> None:
        """Raise Forbidden unless this principal's role includes `role`."""
        if self.role.rank < role.rank:
            raise Forbidden(f"this token has the role `{self.role}`; `{role}` is needed")

    def choose(
        self,
        *,
        organization: str | None = None,
        project: str | None = None,
        environment: str | None = None,
    ) -> EnvironmentRef:
        """The environment that a request is about.

        A name that the credential fixes may be left out. Another name is answered as not found, because this
        principal must not learn whether it exists.
        """
        return EnvironmentRef(
            organization=_agreed(self.organization, organization, what="organization"),
            project=_agreed(self.project, project, what="project"),
            environment=_agreed(self.environment, environment, what="environment"),
        )

    def narrowed(
        self,
        *,
        organization: str | None = None,
        project: str | None = None,
        environment: str | None = None,
    ) -> Principal:
        """The same caller, limited to these names; NotFound outside of its scope."""
        return replace(
            self,
            organization=_narrower(self.organization, organization, what="organization"),
            project=_narrower(self.project, project, what="project"),
            environment=_narrower(self.environment, environment, what="environment"),
        )

    def covers(self, *, organization: str | None, project: str | None, environment: str | None) -> bool:
        """Whether a scope lies inside this principal's own."""
        return (
            self.organization in (None, organization)
            and self.project in (None, project)
            and self.environment in (None, environment)
        )


def _agreed(fixed: str | None, asked: str | None, *, what: str) -> str:
    chosen = _narrower(fixed, asked, what=what)
    if chosen is None:
        raise InvalidInput(
            f"this token reaches several {what}s; choose one with the header `Weir-{what.title()}`"
        )
    return chosen


def _narrower(fixed: str | None, asked: str | None, *, what: str) -> str | None:
    if fixed is not None and asked not in (None, fixed):
        raise NotFound(f"there is no such {what} in the scope of this token")
    return asked if fixed is None else fixed
