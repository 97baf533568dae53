"""How the files of a release were made: an in-toto statement with SLSA's provenance predicate.

It is not signed: it says what the builder did, and proves nothing about who wrote it. Its worth is
that the build can be repeated from what it names, and its results be compared.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from images.lock import sha256_of

BUILD_TYPE: Final = "urn:npu-platform:release:1"
BUILDER: Final = "urn:npu-platform:make-release"


def statement(
    files: Mapping[str, str], *, version: str, revision: str, inputs: Mapping[str, Path]
) -> bytes:
    """Return the statement about ``files`` (name → SHA-256) made from ``revision`` and locks."""
    body = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": name, "digest": {"sha256": digest}} for name, digest in sorted(files.items())
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"version": version},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": revision}},
                    *(
                        {"name": name, "digest": {"sha256": sha256_of(path)}}
                        for name, path in sorted(inputs.items())
                    ),
                ],
            },
            "runDetails": {"builder": {"id": BUILDER}},
        },
    }
    return (json.dumps(body, indent=1) + "\n").encode()
