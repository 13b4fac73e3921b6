"""For tests/ and examples/ alike."""

pytest_plugins = ["tests.lanes"]
