"""Steps per second of the simulated robots: `python benchmarks/robots.py [--num-policies 32 256 4096]`.

Random policies, an episode of 100 steps; simulated steps are those that count (a robot that fell is simulated on until
all have fallen, but its steps are not counted here). Median of several runs after compilation. Needs the extra `brax`.
"""

import argparse
import concurrent.futures
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lqd import tasks
from lqd.tasks.brax import ROBOTS, RobotTask


class Case(NamedTuple):
    """A robot, and how many policies walk at once."""

    robot: str
    num_policies: int

    def given(self, seed: int, task: RobotTask):
        x = task.init_sigma * jax.random.normal(jax.random.key(0), (self.num_policies, task.dim))
        return jax.random.split(jax.random.key(seed), self.num_policies), x


def compiled(case: Case, task: RobotTask) -> tuple[Callable, float]:
    """The program, and the seconds that it took to make it."""
    begun = time.perf_counter()
    program = jax.jit(task.measured).lower(*case.given(0, task)).compile()
    return program, time.perf_counter() - begun


def measure(case: Case, task: RobotTask, program: Callable, num_repeats: int) -> tuple[float, float]:
    """Simulated steps per second, and steps that count per second."""
    simulated, counted = [], []
    for seed in range(num_repeats + 1):
        given = jax.block_until_ready(case.given(seed, task))
        begun = time.perf_counter()
        *_, num_steps = jax.block_until_ready(program(*given))
        took = time.perf_counter() - begun
        if seed:  # the first one warms up
            simulated.append(float(jnp.max(num_steps)) * case.num_policies / took)
            counted.append(float(jnp.sum(num_steps)) / took)
    return statistics.median(simulated), statistics.median(counted)


def main() -> None:
    parser = argparse.ArgumentParser(description="Steps per second of the simulated robots.")
    parser.add_argument("--num-policies", type=int, nargs="*", default=[32, 256])
    parser.add_argument("--episode-length", type=int, default=100)
    parser.add_argument("--num-repeats", type=int, default=3)
    parser.add_argument("--robots", nargs="*", default=[robot for robot in ROBOTS if robot != "ant-feet"])
    arguments = parser.parse_args()
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, episodes of {arguments.episode_length} steps")
    print(f"{'':14}{'policies':>9}{'steps/s':>13}{'that count/s':>14}{'compiling':>11}")
    cases = [Case(robot, num) for robot in arguments.robots for num in arguments.num_policies]
    given = [(case, tasks.make(f"brax/{case.robot}", episode_length=arguments.episode_length)) for case in cases]
    with concurrent.futures.ThreadPoolExecutor() as pool:  # all are made before any is timed
        programs = list(pool.map(lambda one: compiled(*one), given))
    for (case, task), (program, compile_s) in zip(given, programs, strict=True):
        simulated, counted = measure(case, task, program, arguments.num_repeats)
        print(
            f"{case.robot:14}{case.num_policies:>9,}{simulated:>13,.0f}{counted:>14,.0f}{compile_s:>9.1f} s", flush=True
        )


if __name__ == "__main__":
    main()
