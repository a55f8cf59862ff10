"""A cluster's executor: a local one of Dask, whose scheduler outlives its workers."""

import os

import numpy as np
import pool_functions as functions
import pytest

import lqd

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("default")  # Dask's own
GIVEN = {
    "dim": 3,
    "bounds": (-1, 1),
    "population_size": 8,
    "batch_size": 4,
    "num_evaluations": 20,
    "rule": "ga",
    "variation": "paper",
}


@pytest.fixture(scope="module")
def executor():
    import dask

    quick = {"distributed.scheduler.allowed-failures": 0, "distributed.worker.preload": []}
    with (
        dask.config.set(quick),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client.get_executor()


def test_the_result_is_that_of_one_after_the_other(executor):
    result = lqd.optimize(functions.slow_first, executor=executor, **GIVEN)
    np.testing.assert_array_equal(result.x, lqd.optimize(functions.slow_first, **GIVEN).x)


def test_steady_state(executor):
    result = lqd.optimize(functions.plain, executor=executor, steady_state=True, **GIVEN)
    assert result.num_evaluations == 20
    assert os.getpid() not in result.extras["pid"]


@pytest.mark.parametrize("function", [pytest.param(functions.deadly, marks=pytest.mark.long), functions.exits])
def test_who_kills_its_worker_fails_and_the_others_go_on(executor, function):
    x0 = np.linspace(-0.5, 0.5, 24).reshape(8, 3)
    x0[2, 0] = 1.0
    given = GIVEN | {"x0": x0, "iso_sigma": 0.0, "line_sigma": 0.0, "num_evaluations": 12}
    result = lqd.optimize(function, executor=executor, **given)
    assert result.num_failed == 1  # children are copies of the living
    assert len(result.x) == 8
    assert (result.extras["first"] <= functions.DEADLY).all()
