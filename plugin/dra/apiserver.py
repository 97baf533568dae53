"""Asks the API server which devices a claim was given: one GET, nothing else.

Only needed where a node has several devices of one driver; the kubelet names a claim and not what
was allocated for it. The account may read claims and has no other right.
"""

import http.client
import json
import os
import ssl
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from plugin.dra.prepared import Share
from plugin.dra.preparing import ClaimRef, PrepareError, UnreachableError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_SECONDS = 5.0
_LIMIT_BYTES = 2 << 20
_NOT_FOUND = 404
_TOO_MANY_REQUESTS = 429


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServer:
    """Reads claims with the token of the Pod's service account, read anew for each call."""

    account: Path = ACCOUNT
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def shares(self, claim: ClaimRef, *, driver: str, pool: str) -> tuple[Share, ...]:
        """Return the devices of ``pool`` that a claim was given."""
        return shares_in(self._read(claim), claim, driver=driver, pool=pool)

    def _read(self, claim: ClaimRef) -> object:
        host = self.environment.get("KUBERNETES_SERVICE_HOST", "")
        port = int(self.environment.get("KUBERNETES_SERVICE_PORT", "443"))
        namespace, name = (urllib.parse.quote(t, safe="") for t in (claim.namespace, claim.name))
        path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"
        try:
            token = (self.account / "token").read_text(encoding="ascii").strip()
            context = ssl.create_default_context(cafile=str(self.account / "ca.crt"))
            connection = http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=context)
            try:
                headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
                connection.request("GET", path, headers=headers)
                answer = connection.getresponse()
                status, body = answer.status, answer.read(_LIMIT_BYTES)
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise UnreachableError(f"{type(error).__name__}: {error}") from error
        if status == _NOT_FOUND:
            raise PrepareError("unknown_claim", f"there is no claim {claim.namespace}/{claim.name}")
        if status != http.client.OK:
            if status == _TOO_MANY_REQUESTS or status >= http.client.INTERNAL_SERVER_ERROR:
                raise UnreachableError(f"GET {path}: status {status}")
            raise PrepareError("api_refused", f"GET {path}: status {status}")
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise UnreachableError(f"GET {path}: {error}") from error


def shares_in(body: object, claim: ClaimRef, *, driver: str, pool: str) -> tuple[Share, ...]:
    """Return the devices in a ResourceClaim. Raises PrepareError."""
    if _at(body, "metadata", "uid") != claim.uid:
        raise PrepareError(
            "unknown_claim",
            f"the claim {claim.namespace}/{claim.name} is another one of the same name now",
        )
    results = _at(body, "status", "allocation", "devices", "results")
    found = tuple(
        # Of alternatives in a request the kubelet knows the request only.
        Share(device=str(_at(item, "device")), request=str(_at(item, "request")).partition("/")[0])
        for item in (results if isinstance(results, list) else [])
        if (_at(item, "driver"), _at(item, "pool")) == (driver, pool)
    )
    if not found:
        raise PrepareError(
            "no_device",
            f"the claim {claim.namespace}/{claim.name} was given no device of this node",
        )
    return found


def _at(value: object, *keys: str) -> object:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
