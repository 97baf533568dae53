"""Where images go, and who is asked for the login."""

from pathlib import Path

import pytest

from images.registry import place, stored_login


@pytest.mark.parametrize(
    ("text", "base", "repository"),
    [
        ("r.example/npu-platform", "https://r.example", "npu-platform/plugin"),
        ("https://r.example/a/b/", "https://r.example", "a/b/plugin"),
        ("r.example:5000", "https://r.example:5000", "plugin"),
        ("localhost:5000/x", "http://localhost:5000", "x/plugin"),
        ("127.0.0.1:5000", "http://127.0.0.1:5000", "plugin"),
        ("localhost.example/x", "https://localhost.example", "x/plugin"),
    ],
)
def test_place(text: str, base: str, repository: str) -> None:
    """Only this machine is spoken to without TLS."""
    where = place(text)
    assert where.base == base
    assert where.repository(f"{text}/plugin:1.2.3") == repository


@pytest.mark.parametrize("content", ["", "{", "[]", '{"auths": {"other": {"auth": "x"}}}'])
def test_nobody_logged_in(tmp_path: Path, content: str) -> None:
    """A file that is no help is no failure."""
    (tmp_path / "config.json").write_text(content)
    assert stored_login("r.example", {"DOCKER_CONFIG": str(tmp_path)}) is None
