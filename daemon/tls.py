"""Certificate and key of a server, read when it starts."""

import ssl  # waits until TLS is spoken, hence the quotes around its types; see deferred
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Certificate and key files; with ``client_ca`` clients must present a certificate."""

    certificate: str
    key: str
    client_ca: str | None = None

    def context(self) -> "ssl.SSLContext":
        """Read the files; raises OSError or ssl.SSLError, the message names the file."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        for file in filter(None, (self.certificate, self.key, self.client_ca)):
            # OpenSSL's own message names none.
            with Path(file).open("rb"):
                pass
        try:
            context.load_cert_chain(self.certificate, self.key)
        except ssl.SSLError as error:
            raise _naming(error, f"{self.certificate} and {self.key}") from error
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except ssl.SSLError as error:
                raise _naming(error, self.client_ca) from error
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def _naming(error: "ssl.SSLError", files: str) -> "ssl.SSLError":
    return ssl.SSLError(f"{files}: not usable for TLS: {error.reason or error}")
