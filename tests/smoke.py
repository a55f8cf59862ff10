"""What must work wherever lqd is installed: `python -W error tests/smoke.py`, from anywhere. Prints what it saw.

Run by `make test-oldest` and `make test-newest` on a wheel in an empty environment; `--checkout` allows another one.
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import lqd


def main() -> None:
    where = pathlib.Path(lqd.__file__).parent
    checkout = pathlib.Path(__file__).parents[1]
    assert checkout / "src" not in where.parents or "--checkout" in sys.argv, f"{where} is not an installed lqd"
    assert (where / "py.typed").exists()
    for name in ("lqd-f", "lqd-n", "lqd-fn", "lqd-f-paper", "lqd-imitates-ns", "lqd-imitates-dns"):
        assert lqd.load(name).architecture.descriptor_dim == 2
        assert lqd.card(name)["sha256"]

    def evaluate(x):
        return -np.abs(x).sum(axis=1), x[:, :2]

    with tempfile.TemporaryDirectory() as folder:
        given = {"dim": 3, "bounds": (-1, 1), "population_size": 16, "batch_size": 8, "num_evaluations": 64, "seed": 1}
        path = pathlib.Path(folder) / "result.safetensors"
        for rule in ("lqd-fn", "dns"):
            result = lqd.optimize(evaluate, rule=rule, **given)
            assert len(result.population) == 16
            assert np.isfinite(result.fitness).all()
            result.save(path)
            np.testing.assert_array_equal(lqd.Result.load(path).x, result.x)
        arm = lqd.optimize(lqd.tasks.make("arm"), rule="lqd-f", num_evaluations=64, population_size=16)
        assert arm.best_fitness <= 0
        command = [sys.executable, "-m", "lqd", "run", "--task", "bbob/rastrigin", "--rule", "lqd-f"]
        sizes = ["--num-evaluations", "96", "--population-size", "32", "--quiet", "--out", f"{folder}/run"]
        subprocess.run([*command, *sizes], check=True, cwd=folder)
        assert (pathlib.Path(folder) / "run" / "manifest.json").exists()
        done = subprocess.run([sys.executable, "-m", "lqd", "rules"], check=True, capture_output=True, text=True)
        assert "lqd-fn" in done.stdout
    import jax

    print(f"lqd {lqd.__version__} from {where.parent.name}, jax {jax.__version__}, numpy {np.__version__}: fine")


if __name__ == "__main__":
    main()
