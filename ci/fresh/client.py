"""How this machine reaches package registries, to be told to the guest when it runs.

Mirrors, proxies and certificates are the machine's administrator's business: they are read from
the machine's own configuration, given to one run and written nowhere else. Files with passwords
(apt's auth.conf, netrc) are not among them.
"""

import shlex
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ci import sources
from ci.fresh.image import SUITE

_VARIABLES: Final = frozenset(
    {
        *("http_proxy", "https_proxy", "no_proxy", "all_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
        *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_PROXY", "PIP_CERT"),
        *("PIP_DEFAULT_TIMEOUT", "PIP_RETRIES"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("GOPROXY", "GONOPROXY", "GOPRIVATE", "GOSUMDB", "GONOSUMDB", "GOINSECURE"),
    }
)
_APT_PREFIXES: Final = (
    *("Acquire::http::", "Acquire::https::", "Acquire::Check-", "Acquire::Retries"),
    *("Acquire::ForceIPv4", "Acquire::ForceIPv6"),
)
_CERTIFICATES: Final = Path("/usr/local/share/ca-certificates")
#: Path in the guest → where it may be on this machine, the first that exists.
_FILES: Final = {
    "etc/pip.conf": ("/etc/pip.conf", "/etc/xdg/pip/pip.conf"),
    "root/.config/pip/pip.conf": ("~/.config/pip/pip.conf", "~/.pip/pip.conf"),
    "root/.config/go/env": ("~/.config/go/env",),
}


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that say where registries are and whom to trust."""
    return {name: value for name, value in sorted(environment.items()) if name in _VARIABLES}


def script(values: Mapping[str, str]) -> str:
    """Return shell lines that export the variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())


def apt_settings(dump: str) -> str:
    """Return what of the output of ``apt-config dump`` says how archives are reached."""
    return "".join(f"{line}\n" for line in dump.splitlines() if line.startswith(_APT_PREFIXES))


def write(root: Path, environment: Mapping[str, str]) -> None:
    """Write below ``root`` the files that are to be copied over the guest's own."""
    for name, text in _texts(environment).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for path in sorted(_CERTIFICATES.rglob("*.crt")):
        copy = root / path.relative_to("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())


def _texts(environment: Mapping[str, str]) -> dict[str, str]:
    entries = sources.for_suite(sources.host_entries(), SUITE, sources.KEYRINGS[0])
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False)
    texts = {
        "etc/apt/sources.list.d/debian.sources": sources.render(entries),
        "etc/apt/apt.conf.d/99client": apt_settings(dump.stdout),
        "etc/profile.d/client.sh": script(variables(environment)),
    }
    for name, places in _FILES.items():
        found = _first(Path(place).expanduser() for place in places)
        if found is not None:
            texts[name] = found.read_text()
    return texts


def _first(paths: Iterable[Path]) -> Path | None:
    return next((path for path in paths if path.is_file()), None)
