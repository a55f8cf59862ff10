"""CMA-ES in lockstep: budgets, restarts, and that every run has random numbers of its own."""

import jax
import numpy as np
import pytest

from lqd.bench import cma_es
from lqd.errors import InvalidInput
from lqd.tasks.bbob import instances

BOX = (-5.0, 5.0)


class Fake:
    """Stops after two generations; its points are numbered."""

    made: list = []  # noqa: RUF012

    def __init__(self, x0, sigma0, box, popsize, rng):
        self.x0, self.sigma0, self.popsize, self.told = x0, sigma0, popsize, []
        self.made.append(self)

    def ask(self):
        first = self.popsize * len(self.told)
        return [np.full(3, first + i) for i in range(self.popsize)]

    def tell(self, points, values):
        self.told.append((np.asarray(points)[:, 0].tolist(), values))

    def stop(self):
        return {"any": 1} if len(self.told) == 2 else {}


def test_restarts_double_the_population_and_ask_for_16_at_a_time(monkeypatch):
    monkeypatch.setattr(Fake, "made", [])
    run = cma_es.Run(3, BOX, np.random.default_rng(0), Fake)
    for _ in range(2 + 4 + 8):
        x = run.ask()
        assert x.shape == (16, 3)
        run.tell(10 * x[:, 0])
    assert [one.popsize for one in Fake.made] == [16, 32, 64, 128]
    for one in Fake.made[:3]:
        num = one.popsize
        assert one.told == [
            (list(map(float, range(first, first + num))), [10.0 * i for i in range(first, first + num)])
            for first in (0, num)
        ]
        assert one.sigma0 == 2.5  # a quarter of the box
        assert (np.abs(one.x0) <= 5).all()
    assert run.num_restarts == 3
    assert len({tuple(one.x0) for one in Fake.made}) == 4


def tasks_of(*functions: str, num: int = 2) -> instances.LandscapeBatch:
    return instances.sample_batch(jax.random.key(5), functions, num, width=4, min_dim=2, max_dim=4, noise=False)


@pytest.mark.parametrize("num", [100, 0])
def test_budgets_are_whole_generations(num):
    with pytest.raises(InvalidInput, match=f"16 points at a time, and {num} are not"):
        cma_es.best(tasks_of("sphere"), [[1], [2]], num)


def test_each_run_is_given_its_own_task_and_budget(monkeypatch):
    """With random points in place of CMA-ES: the best of exactly those, each on the task of its run."""
    asked = {}

    class Drawn(Fake):
        def __init__(self, x0, sigma0, box, popsize, rng):
            super().__init__(x0, sigma0, box, popsize, rng)
            self.draw = lambda: rng.uniform(-1, 1, (popsize, len(x0)))

        def ask(self):
            points = self.draw()
            asked.setdefault(points.shape[1], []).append(points)
            return list(points)

        def stop(self):
            return {}

    monkeypatch.setattr(cma_es.Run.__init__, "__defaults__", (Drawn,))
    tasks = instances.sample_batch(
        jax.random.key(5), ("sphere",), 2, width=4, min_dim=2, max_dim=4, dims=[2, 4], noise=False
    )
    found = cma_es.best(tasks, [[1], [2]], 48)
    for k, dim in enumerate((2, 4)):
        x = np.zeros((2, 48, 4), np.float32)
        x[k, :, :dim] = np.concatenate(asked[dim][:3])  # a fourth batch is asked for and never evaluated
        assert found[k] == np.asarray(tasks.noiseless(jax.numpy.asarray(x)))[k].max()


def test_pycma_finds_the_optimum_and_repeats_itself():
    pytest.importorskip("cma")
    tasks = tasks_of("sphere")
    first = cma_es.best(tasks, [[1, 2], [3, 4]], 1600)
    assert (first > -1e-6).all()
    np.testing.assert_array_equal(first, cma_es.best(tasks, [[1, 2], [3, 4]], 1600))
    early, other = (cma_es.best(tasks, [[1, 2], seed], 64) for seed in ([3, 4], [3, 5]))
    assert (early != other).tolist() == [False, True]


@pytest.mark.slow
def test_functions_run_in_processes_of_their_own():
    pytest.importorskip("cma")
    tasks, found = tasks_of("sphere", "rastrigin"), {}
    seeds = {"sphere": [[1, 2], [3, 4]]}
    cma_es.of_every_function(tasks, seeds, 1600, lambda name, best, seconds: found.update({name: best}))
    assert list(found) == ["sphere"]
    expected = cma_es.best(cma_es.by_function(tasks)["sphere"], seeds["sphere"], 1600)
    np.testing.assert_array_equal(np.log10(1e-8 - found["sphere"]).round(), np.log10(1e-8 - expected).round())
