"""Health: the answers of a process to probes."""

from __future__ import annotations

from pydantic import BaseModel, Field


class Alive(BaseModel):
    status: str = Field(examples=["alive"])


class Readiness(BaseModel):
    ready: bool
    checks: dict[str, str] = Field(description="`ok`, or what is wrong, by name.")
