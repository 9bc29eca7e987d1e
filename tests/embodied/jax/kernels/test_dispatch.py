"""Where the fast form of a function runs and where the plain one."""

import jax
import pytest

from embodied.jax.kernels import dispatch


@pytest.mark.parametrize(
    ("backend", "devices", "own_rows", "form"),
    [
        ("cpu", 1, False, "fast"),
        ("cpu", 2, True, "fast"),
        ("cpu", 2, False, "plain"),
        ("gpu", 1, False, "plain"),
        ("gpu", 2, True, "plain"),
    ],
)
def test_fast_forms_are_for_unsplit_arrays_on_a_cpu(
    monkeypatch, backend, devices, own_rows, form
):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(jax, "device_count", lambda: devices)
    monkeypatch.setattr(dispatch, "on_own_rows", lambda: own_rows)

    @dispatch.fast_on_cpu(lambda x: ("fast", x))
    def kernel(x):
        """What the plain form says."""
        return "plain", x

    assert kernel(3) == (form, 3)
    assert kernel.__doc__ == "What the plain form says."
