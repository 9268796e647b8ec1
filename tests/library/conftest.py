"""Independent libraries to compare with: JAX always, PyTorch where it is installed."""

import jax
import pytest

jax.config.update("jax_enable_x64", True)


@pytest.fixture(scope="session")
def torch():
    return pytest.importorskip("torch")
