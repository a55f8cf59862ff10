"""The suite compiles as it says it does."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import quick

PROGRAM = """
import jax, jax.numpy as jnp
print(jax.jit(lambda x: jnp.sum(2 * jnp.sin(x) + jnp.cos(x) * x)).lower(jnp.ones(100)).compile().as_text())
"""


def instructions(text):
    """Without names and places, which differ between processes."""
    return [line.partition(", metadata=")[0] for line in text.splitlines() if " = " in line]


def made_by_a_process(**environment):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=os.environ | environment
    )
    return instructions(done.stdout)


def test_the_settings_reach_the_compiler(request):
    """They are given by the environment, after JAX is imported; a process that begins with them must compile alike.

    If this fails, XLA has read its settings before `tests/conftest.py` gave them, or reads them no longer.
    """
    is_quick = not (request.config.getoption("--as-users") or request.config.getoption("--long"))
    assert jax.config.read("jax_disable_most_optimizations") == is_quick
    assert ("JAX_DISABLE_MOST_OPTIMIZATIONS" in os.environ) == is_quick
    program = jax.jit(lambda x: jnp.sum(2 * jnp.sin(x) + jnp.cos(x) * x)).lower(jnp.ones(100)).compile()
    here, alike = instructions(program.as_text()), made_by_a_process()
    assert len(here) == len(alike)
    if is_quick and quick.SETTINGS:
        as_users = made_by_a_process(XLA_FLAGS="", JAX_DISABLE_MOST_OPTIMIZATIONS="false")
        assert len(here) != len(as_users), "quick.SETTINGS make no difference to this program: find another one"
