"""Prints the table of docs/bbob-accuracy.md: the largest relative error of every BBOB function on CPU.

    python benchmarks/bbob_accuracy.py

- float64 and float32 against COCO's values in tests/data/bbob_golden.npz (dimensions 2, 3, 5, 10, 20, two instances
  each), at points uniform in the box ("far") and at COCO's points nearer to the optimum ("near");
- float32 against our own float64 within 1e-3 of the optimum in every coordinate ("close"), on an instance that is
  exact in float32, so that only the arithmetic differs.
"""

import pathlib
import platform

import jax
import jax.numpy as jnp
import numpy as np

from lqd.tasks.bbob import functions as bbob

GOLDEN = pathlib.Path(__file__).parents[1] / "tests" / "data" / "bbob_golden.npz"
FAR, NEAR = slice(0, 8), slice(8, 12)


@jax.jit
def values(x, x_opt, R, Q, peaks):
    """(24, instances, points) from arrays whose leading axes are function and instance."""
    rows = []
    for i in range(24):
        mine = (x[i], x_opt[i], R[i], Q[i], peaks.get(i + 1))
        rows.append(jax.vmap(lambda *a, number=i + 1: bbob.value(number, *a))(*mine))
    return jnp.stack(rows)


def relative_error(value, reference):
    return np.abs(np.asarray(value, np.float64) - reference) / np.maximum(np.abs(reference), 1e-8)


def errors(golden, dim: int) -> np.ndarray:
    """(24, 5): float64 far, near; float32 far, near, close."""
    instance = [golden[f"d{dim}_{name}"] for name in ("x_opt", "R", "Q")]
    instance.append({number: tuple(golden[f"d{dim}_f{number}_peak_{k}"] for k in "ycw") for number in (21, 22)})
    single = jax.tree.map(np.float32, instance)
    rounded = jax.tree.map(np.float64, single)
    x = golden[f"d{dim}_x"]
    reference = golden[f"d{dim}_f"] - golden[f"d{dim}_f_opt"][..., None]
    error64 = relative_error(values(x, *instance), reference)
    error32 = relative_error(values(np.float32(x), *single), reference)
    step = np.random.default_rng(dim).uniform(-1e-3, 1e-3, x.shape)
    close = np.float32(single[0][:, :, None] + step)
    error_close = relative_error(values(close, *single), np.asarray(values(np.float64(close), *rounded)))
    picked = (error64[..., FAR], error64[..., NEAR], error32[..., FAR], error32[..., NEAR], error_close)
    return np.stack([error.max(axis=(1, 2)) for error in picked], axis=1)


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    golden = np.load(GOLDEN)
    worst = np.max([errors(golden, int(dim)) for dim in golden["dims"]], axis=0)
    print(f"{jax.default_backend().upper()} ({platform.machine()}), jax {jax.__version__}\n")
    print("| function | float64, far | float64, near | float32, far | float32, near | float32, close |")
    print("| --- | --- | --- | --- | --- | --- |")
    for i, row in enumerate(worst):
        print(f"| f{i + 1} {bbob.NAMES[i]} | " + " | ".join(f"{error:.0e}" for error in row) + " |")


if __name__ == "__main__":
    main()
