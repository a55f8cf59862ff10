"""Networks and populations that the kernel is checked on, with and without a GPU."""

import functools

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np

from lqd.meta.imitation import populations
from lqd.meta.imitation.settings import Imitation
from lqd.rules.learned import layers, network, recipe2, recipe3
from lqd.rules.learned.network import Architecture
from lqd.rules.learned.rule import Learned

ARCHITECTURES = {
    "paper": Architecture(),
    "padded": Architecture(num_features=12, num_heads=3, num_hidden=20, num_layers=2, descriptor_dim=1),
    "wide": Architecture(num_features=32, num_heads=2, num_hidden=40, num_layers=1, descriptor_dim=5),
    "one head": Architecture(num_features=16, num_heads=1, num_hidden=16, num_layers=1),
    "distances": Architecture(recipe=2),
    "distances, padded": Architecture(recipe=2, num_features=24, num_heads=8, num_hidden=20, descriptor_dim=1),
    "distances, many dimensions": Architecture(recipe=2, num_layers=1, descriptor_dim=8),
    "leading": Architecture(recipe=3, num_layers=2),
    "leading, padded": Architecture(recipe=3, num_layers=1, num_features=24, num_heads=8, num_hidden=20),
}


PAPER, DISTANCES, LEADING = (ARCHITECTURES[name] for name in ("paper", "distances", "leading"))
# Relative errors that the fast and the exact kernel keep to. Recipe 2 speaks of logarithms of distances, which the
# fast one knows to 21 bits of the squared distance from the centre.
LIMITS = {1: (3e-4, 1e-5), 2: (3e-3, 1e-5), 3: (3e-3, 1e-5)}


_init = jax.jit(network.init_params, static_argnums=1)  # one program, not one for each operation
_features = jax.jit(recipe2.features)
_features_of_leading = jax.jit(recipe3.features)


def noisy(architecture: Architecture, seed: int = 0, sharpness: float = 1.0) -> layers.Params:
    """Random weights everywhere, so that none is forgotten unnoticed; sharp attention ranks by small differences."""
    rng = np.random.default_rng(seed + 1)

    def with_noise(leaf):
        return np.asarray(leaf) + np.float32(0.3) * rng.standard_normal(leaf.shape, np.float32)

    params = jax.tree.map(with_noise, _init(jax.random.key(seed), architecture))
    if architecture.recipe in network.OF_DISTANCES:
        params["layers"]["sharpness"] += np.log(np.float32(sharpness))
    else:
        for name in ("query", "key"):
            params["layers"][name] = jax.tree.map(lambda leaf: leaf * np.float32(sharpness), params["layers"][name])
    return jax.tree.map(jnp.asarray, params)


def inputs(num: int, architecture: Architecture, seed: int = 0, num_empty: int = 2):
    x = np.random.default_rng(seed).standard_normal((num, 1 + architecture.descriptor_dim), np.float32)
    filled = np.arange(num) >= min(num_empty, num - 1)
    if architecture.recipe in network.OF_DISTANCES:
        fitness = np.round(4 * x[:, 0]) / 4  # there are equals
        given = jnp.asarray(np.where(filled, fitness, -np.inf)), jnp.asarray(x[:, 1:])
        found = _features(*given) if architecture.recipe == 2 else _features_of_leading(*given, carried(num, seed))
        return found, jnp.asarray(filled)
    return jnp.asarray(np.where(filled[:, None], x, np.float32(0))), jnp.asarray(filled)


def carried(num: int, seed: int = 0):
    """Steps and ages."""
    rng = np.random.default_rng(seed)
    steps = np.asarray(recipe3.NEUTRAL) + rng.standard_normal((num, len(recipe3.STEPS)), np.float32)
    return jnp.asarray(np.column_stack([steps, rng.integers(0, 50, num)]), jnp.float32)


def tied(num: int, order=None):
    """Features of recipe 2 of a population whose fitness is 0 or 1, stored in some order."""
    descriptor = np.random.default_rng(3).standard_normal((num, 2), np.float32)
    order = np.arange(num) if order is None else order
    fitness = (np.arange(num) % 2).astype(np.float32)
    return _features(jnp.asarray(fitness[order]), jnp.asarray(descriptor[order])), jnp.ones(num, bool)


@functools.cache
def of_runs(recipe: int = 1, num_generations: int = 24):
    """Features and filled slots of populations of 160 out of runs of a sharp rule on several functions."""
    functions = ("sphere", "rastrigin", "katsuura")
    config = Imitation(num_generations=num_generations, num_snapshots=6, num_per_function=2, functions=functions)
    rule = Learned(noisy(Architecture(), sharpness=3.0))  # of recipe 1 also for the features of recipe 2
    run = jax.jit(lambda key: populations.populations_of_runs(key, rule, config, 2))
    fitness, descriptor = run(jax.random.key(5))
    features = functools.partial(network.features, recipe=recipe)
    return jax.vmap(features)(fitness, descriptor), fitness > -jnp.inf


def relative_error(found, expected, filled) -> float:
    found, expected = (np.asarray(array, np.float64)[np.asarray(filled)] for array in (found, expected))
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def num_other_survivors(found, expected, filled, num_survivors: int = 128):
    """For each population, how many would survive by one and not by the other."""

    def survivors(scores):
        order = np.argsort(-np.where(filled, scores, -np.inf), axis=-1, kind="stable")
        return [set(row[:num_survivors]) for row in order]

    return np.array([len(a - b) for a, b in zip(survivors(found), survivors(expected), strict=True)])


def is_program(value) -> bool:
    return isinstance(value, jax.extend.core.Jaxpr | jax.extend.core.ClosedJaxpr)


def largest_array(function, *arguments) -> int:
    """Entries of the largest array that a program makes, kernels aside."""
    sizes = []

    def visit(jaxpr):
        for equation in jaxpr.eqns:
            sizes.extend(variable.aval.size for variable in equation.outvars)
            if equation.primitive.name != "pallas_call":
                for value in jax.tree.leaves(list(equation.params.values()), is_leaf=is_program):
                    if is_program(value):
                        visit(getattr(value, "jaxpr", value))

    visit(jax.make_jaxpr(function)(*arguments).jaxpr)
    return max(sizes)
