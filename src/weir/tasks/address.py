"""Where the API of an app is: given, set in the environment, or found over a data directory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from weir.client.core import AsyncWeir
from weir.client.sync import Weir
from weir.errors import Misconfigured
from weir.serve.address import OPERATOR_FILE, find_address, read_token
from weir.settings import load_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAddress:
    """An API, the token for it, and the names of an environment. `find_api` fills in what is None."""

    url: str | None = None
    token: str | None = None
    organization: str | None = None
    project: str | None = None
    environment: str | None = None

    def client(self) -> AsyncWeir:
        return AsyncWeir(
            self.url or "",
            token=self.token or "",
            organization=self.organization,
            project=self.project,
            environment=self.environment,
        )

    def blocking_client(self) -> Weir:
        return Weir(
            self.url or "",
            token=self.token or "",
            organization=self.organization,
            project=self.project,
            environment=self.environment,
        )


def find_api(given: ApiAddress) -> ApiAddress:
    """The whole address. The settings or the data directory supply what is not given.

    The operator's token of a data directory belongs to no environment. With that token the environment is
    `default`, unless one is named.
    """
    settings = load_settings()
    folder = settings.embedded.data_dir
    found = given.url or settings.url or find_address(folder)
    if found is None:
        raise Misconfigured(
            f"no API runs over `{folder}` and WEIR_URL is not set; start one with `weir up`, set it, or give "
            "the app its `url`"
        )
    token = given.token or (settings.token.get_secret_value() if settings.token is not None else "")
    if token:
        return replace(given, url=found, token=token)
    operator = read_token(folder / OPERATOR_FILE)
    if not operator:
        raise Misconfigured("there is no token; set WEIR_TOKEN, or give the app its `token`")
    return replace(
        given,
        url=found,
        token=operator,
        organization=given.organization or "default",
        project=given.project or "default",
        environment=given.environment or "default",
    )
