"""Imports that wait."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]


def run(code: str, *path: Path) -> str:
    """Run ``code`` after an installation, in an interpreter that has imported nothing yet."""
    search = [str(CHECKOUT), *map(str, path)]
    begin = f"import sys; sys.path[:0] = {search!r}; from daemon import deferred\n"
    done = subprocess.run(
        [sys.executable, "-I", "-c", begin + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        # Coverage would start in it, and bring modules of its own.
        env={name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """Two modules: one that says when it runs, one that imports it and reads a name of it."""
    (tmp_path / "heavy.py").write_text("print('runs', end=' ')\nLIMIT = 3\n")
    (tmp_path / "user.py").write_text(
        "import heavy\n"
        "def first(limit=heavy.LIMIT): return limit\n"
        "def later(): return heavy.LIMIT\n"
    )
    return tmp_path


def test_module_runs_when_it_is_used(modules: Path) -> None:
    """An import alone runs nothing, also a second one; the first access does, once."""
    code = """
    deferred.install({"heavy": {}})
    import heavy
    import heavy
    print("imported", end=" ")
    print(heavy.LIMIT, heavy.LIMIT, heavy.__spec__.loader.__class__.__name__)
    """

    assert run(code, modules) == "imported runs 3 3 SourceFileLoader"


def test_name_read_in_passing_does_not_run_the_module(modules: Path) -> None:
    """An import that reads a default gets a stand-in; a call of the function the real value."""
    code = """
    deferred.install({"heavy": {"user": {"LIMIT": 16}}})
    import user
    print(user.first(), end=" ")
    print(user.later())
    """

    assert run(code, modules) == "16 runs 3"


def test_missing_name_is_an_attribute_error(modules: Path) -> None:
    """A name that the module does not have is reported as ever, after it has run."""
    code = """
    deferred.install({"heavy": {}})
    import heavy
    print(hasattr(heavy, "NOTHING"))
    """

    assert run(code, modules) == "runs False"


def test_missing_module_is_an_import_error() -> None:
    """A module that does not exist is not found, as ever."""
    code = """
    deferred.install({"no_such_module": {}})
    try:
        import no_such_module
    except ModuleNotFoundError as error:
        print(error)
    """

    assert run(code) == "No module named 'no_such_module'"


def test_two_threads_see_a_whole_module(modules: Path) -> None:
    """A thread that comes while another runs the module's code waits for its end."""
    (modules / "heavy.py").write_text("import time\nFIRST = 1\ntime.sleep(0.2)\nLIMIT = 3\n")
    code = """
    deferred.install({"heavy": {}})
    import heavy, threading
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(heavy.LIMIT)) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(seen)
    """

    assert run(code, modules) == "[3, 3, 3, 3]"


def test_libraries_leave_out_what_nobody_uses() -> None:
    """gRPC, protobuf and the HTTP server are there, without what is not used, and TLS works."""
    code = """
    deferred.install()
    import grpc, google.protobuf.descriptor_pool, prometheus_client, daemon.http
    loaded = set(sys.modules)
    print(sorted({"_ssl", "asyncio.events", "html.entities"} & loaded), end=" ")
    import hashlib, hmac, secrets, ssl
    print(hashlib.new("sha256", b"").hexdigest()[:6], sys.modules["_hashlib"], end=" ")
    print(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).protocol.name, end=" ")
    print(grpc.aio.server.__name__, prometheus_client.start_http_server(0, "127.0.0.1")[1].name[:6])
    """

    assert run(code) == "[] e3b0c4 None PROTOCOL_TLS_SERVER server Thread"
