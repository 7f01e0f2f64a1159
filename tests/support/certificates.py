"""Certificates for tests, made by OpenSSL's command."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class CertificatePair:
    certificate: Path
    key: Path


def make_certificate(folder: Path, name: str) -> CertificatePair:
    """Make a self-signed certificate for 127.0.0.1, with `name` as its subject."""
    pair = CertificatePair(certificate=folder / f"{name}.pem", key=folder / f"{name}.key")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", pair.key, "-out", pair.certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    return pair
