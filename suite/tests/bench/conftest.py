import pytest


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch, request):
    """Each test has a cache of its own, but those that share the session's."""
    if "cache_dir" not in request.fixturenames:
        monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path / "cache"))
