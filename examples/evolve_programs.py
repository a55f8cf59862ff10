"""Programs that evolve: formulas that fit data, short ones and long ones, in a `lqd.Pool`.

    pip install lqd
    python examples/evolve_programs.py

A pool holds objects of any kind; here they are formulas, as nested lists. You say how a new one is made of others
(`vary`) and what it is worth (`evaluate`); the pool decides who stays. To let a language model write the programs, make
`vary` a call to it, with the parents in the prompt: nothing else changes.
"""

import argparse
import math
import random

import lqd

LEAVES = ("x", "x", 0.5, 1.0, 2.0, 3.0)
FUNCTIONS = {"sin": math.sin, "cos": math.cos, "gauss": lambda a: math.exp(-a * a), "square": lambda a: a * a}
OPERATORS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}
DATA = [(0.1 * i, math.sin(0.3 * i) + 0.02 * i * i * math.exp(-0.05 * i)) for i in range(60)]
MOST_PARTS, MOST_X = 40, 12


def new_program(rng: random.Random, depth: int):
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(LEAVES)
    name = rng.choice([*FUNCTIONS, *OPERATORS])
    return [name, *(new_program(rng, depth - 1) for _ in range(1 + (name in OPERATORS)))]


def parts(program) -> list:
    """The program, and everything that it is made of."""
    inner = program[1:] if isinstance(program, list) else []
    return [program, *(part for below in inner for part in parts(below))]


def with_part(program, number: int, new):
    """The program with another part in the place of that number, as `parts` counts them."""
    if number == 0:
        return new
    found, number = [program[0]], number - 1
    for below in program[1:]:
        size = len(parts(below))
        found.append(with_part(below, number, new) if 0 <= number < size else below)
        number -= size
    return found


def vary(rng: random.Random, mother, father):
    """The mother with one part replaced: by a part of the father, by something new, or by a term around it."""
    number = rng.randrange(len(parts(mother)))
    around = [rng.choice([*OPERATORS]), parts(mother)[number], rng.choice(LEAVES)]
    return with_part(mother, number, rng.choice([rng.choice(parts(father)), new_program(rng, 2), around]))


def run(program, x: float) -> float:
    if isinstance(program, list):
        function = FUNCTIONS.get(program[0]) or OPERATORS[program[0]]
        return function(*(run(part, x) for part in program[1:]))
    return x if program == "x" else program


def evaluate(program) -> tuple[float, list[float]]:
    """How well it fits, and what kind of program it is: its size, and how often it uses x."""
    all_parts = parts(program)
    kind = [len(all_parts), all_parts.count("x")]
    if len(all_parts) > MOST_PARTS:
        return -math.inf, kind  # too large: infeasible
    try:
        error = sum((run(program, x) - y) ** 2 for x, y in DATA) / len(DATA)
    except OverflowError:
        return math.nan, kind  # it failed: counted, and gone
    return -math.log10(error + 1e-9), kind


def text(program) -> str:
    if not isinstance(program, list):
        return str(program)
    name, *inner = program[0], *map(text, program[1:])
    return f"({inner[0]} {name} {inner[1]})" if name in OPERATORS else f"{name}({inner[0]})"


def evolve(rule="lqd-fn", num_evaluations: int = 3_000, capacity: int = 64, seed: int = 0, look=lambda *_: None):
    rng = random.Random(seed)
    pool = lqd.Pool(capacity, rule=rule, descriptor_bounds=([0, 0], [MOST_PARTS, MOST_X]), seed=seed)
    while pool.num_added < num_evaluations:
        if pool.num_added < capacity:
            program = new_program(rng, 3)
        else:
            program = vary(rng, *(parent.item for parent in pool.sample(2)))
        fitness, kind = evaluate(program)
        look(fitness, kind)
        pool.add(program, fitness, kind)
    return pool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--evaluations", type=int, default=3_000)
    parser.add_argument("--rule", default="lqd-fn")
    arguments = parser.parse_args()
    pool = evolve(arguments.rule, arguments.evaluations)
    print(pool)
    for member in sorted(pool, key=lambda member: member.descriptor[0])[:: max(1, len(pool) // 12)]:
        print(f"{member.descriptor[0]:3.0f} parts, fit {member.fitness:5.2f}   {text(member.item):.80}")


if __name__ == "__main__":
    main()
