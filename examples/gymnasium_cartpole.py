"""Balance a pole in many places: policies for a Gymnasium environment, evolved in parallel processes.

    pip install lqd gymnasium
    python examples/gymnasium_cartpole.py

The environment is plain Python, not JAX: `optimize` only needs a function. A policy is the 18 weights of a small
network. Its fitness is the number of steps that the pole stays up (500 at most), and its descriptor is where the cart
was on average and how much the pole leaned. The run is kept in a folder: after an interruption, the same command
resumes it.
"""

import argparse
import functools

import gymnasium
import numpy as np

import lqd

NUM_HIDDEN, NUM_EPISODES = 3, 2
DIM = 4 * NUM_HIDDEN + NUM_HIDDEN + NUM_HIDDEN


@functools.cache  # once in each process
def environment():
    return gymnasium.make("CartPole-v1")


def evaluate(x):
    """Fitness (1,) and descriptor (1, 2) of one policy (1, DIM): what an executor asks for."""
    first, bias, second = np.split(x[0], [4 * NUM_HIDDEN, 5 * NUM_HIDDEN])
    first, env, states = first.reshape(4, NUM_HIDDEN), environment(), []
    for seed in range(NUM_EPISODES):
        state, _ = env.reset(seed=seed)
        done = False
        while not done:
            states.append(state)
            push = np.tanh(state @ first + bias) @ second
            state, _, fell, too_long, _ = env.step(int(push > 0))
            done = fell or too_long
    position, _, angle, _ = np.transpose(states)
    return np.array([len(states) / NUM_EPISODES]), np.array([[position.mean(), 10 * angle.mean()]])


def main(arguments=None) -> lqd.Result:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rule", default="lqd-fn")
    parser.add_argument("--num-evaluations", type=int, default=2048)
    parser.add_argument("--num-processes", type=int, default=2)
    parser.add_argument("--out", default="cartpole")
    given = parser.parse_args(arguments)
    result = lqd.optimize(
        evaluate,
        dim=DIM,
        bounds=(-3, 3),
        rule=given.rule,
        num_evaluations=given.num_evaluations,
        executor=given.num_processes,
        steady_state=True,
        checkpoint=given.out,
        resume=True,
    )
    where = result.descriptor[result.fitness >= 475, 0]
    print(result)
    if len(where):
        print(f"{len(where)} of them balance the pole, at places from {where.min():.2f} to {where.max():.2f}")
    result.plot().savefig(f"{given.out}/policies.png")
    print(f"Wrote {given.out}/policies.png")
    return result


if __name__ == "__main__":
    main()
