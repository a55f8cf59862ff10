"""Steps per second of the simulated robots: `python benchmarks/robots.py [--num-policies 32 256 4096]`.

Random policies, an episode of 100 steps; simulated steps are those that count (a robot that fell is simulated on until
all have fallen, but its steps are not counted here). Median of several runs after compilation. Needs the extra `brax`.
"""

import argparse
import statistics
import time

import jax
import jax.numpy as jnp

from lqd import tasks
from lqd.tasks.brax import ROBOTS, RobotTask


def measure(robot: str, num_policies: int, episode_length: int, num_repeats: int) -> tuple[float, float, float]:
    """Simulated steps per second, steps that count per second, seconds of compiling."""
    task = tasks.make(f"brax/{robot}", episode_length=episode_length)
    assert isinstance(task, RobotTask)
    x = task.init_sigma * jax.random.normal(jax.random.key(0), (num_policies, task.dim))
    begun = time.perf_counter()
    compiled = jax.jit(task.measured).lower(jax.random.split(jax.random.key(1), num_policies), x).compile()
    compile_s = time.perf_counter() - begun
    simulated, counted = [], []
    for seed in range(num_repeats + 1):
        keys = jax.random.split(jax.random.key(seed), num_policies)
        begun = time.perf_counter()
        *_, num_steps = jax.block_until_ready(compiled(keys, x))
        took = time.perf_counter() - begun
        if seed:  # the first one warms up
            simulated.append(float(jnp.max(num_steps)) * num_policies / took)
            counted.append(float(jnp.sum(num_steps)) / took)
    return statistics.median(simulated), statistics.median(counted), compile_s


def main() -> None:
    parser = argparse.ArgumentParser(description="Steps per second of the simulated robots.")
    parser.add_argument("--num-policies", type=int, nargs="*", default=[32, 256])
    parser.add_argument("--episode-length", type=int, default=100)
    parser.add_argument("--num-repeats", type=int, default=3)
    parser.add_argument("--robots", nargs="*", default=[robot for robot in ROBOTS if robot != "ant-feet"])
    arguments = parser.parse_args()
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, episodes of {arguments.episode_length} steps")
    print(f"{'':14}{'policies':>9}{'steps/s':>13}{'that count/s':>14}{'compiling':>11}")
    for robot in arguments.robots:
        for num in arguments.num_policies:
            simulated, counted, compile_s = measure(robot, num, arguments.episode_length, arguments.num_repeats)
            print(f"{robot:14}{num:>9,}{simulated:>13,.0f}{counted:>14,.0f}{compile_s:>9.1f} s", flush=True)


if __name__ == "__main__":
    main()
