"""Candidates for the second generation on the tables of `lqd bench --suite second`, with other random numbers.

    python benchmarks/second_validation.py --rule lqd2-f=training/starts/lqd2-f.safetensors --table fitness --seeds 8
    python benchmarks/second_validation.py --rule lqd2-f.a=A.safetensors --rule lqd2-f.b=B.safetensors --table fitness

A rule that is chosen by numbers looks better on those than it is. So candidates are compared here, on the tasks and
random numbers of `runner.VALIDATION`; the suite itself runs on those of `runner.TEST`, once, on what was chosen.
`lqd2-f=FILE` stands for the rule of that name, `lqd2-f.NAME=FILE` is one more beside it. Pieces are kept in `--out`.
"""

import argparse
import dataclasses
import pathlib

from lqd.bench import second
from lqd.bench.runner import VALIDATION
from lqd.bench.second_tables import TABLES, shown
from lqd.errors import InvalidInput
from lqd.rules import trained
from lqd.rules.learned.rule import Learned


def rules(given: list[str]) -> dict[str, Learned]:
    """`NAME=FILE`, read."""
    found: dict[str, Learned] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or not path:
            raise InvalidInput(f"--rule is NAME=FILE, such as lqd2-f=rule.safetensors; got {text!r}.")
        if name in found:
            raise InvalidInput(f"--rule {name} is given twice; others beside it are {name}.NAME=FILE.")
        found[name] = trained.read(path)
    return found


def main(arguments=None) -> dict:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rule", action="append", default=[], metavar="NAME=FILE", help="a candidate")
    parser.add_argument("--table", action="append", default=[], help=f"one of {', '.join(TABLES)}; several times")
    parser.add_argument("--without", action="append", default=[], help="leave out an opponent, such as lqd-f+paper")
    parser.add_argument("--preset", choices=second.PRESETS, default="full", help="how large the tables are")
    parser.add_argument("--seeds", type=int, help="instead of the preset's, of BBOB and of the grid")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/second-validation"))
    given = parser.parse_args(arguments)
    size = second.PRESETS[given.preset]
    if given.seeds is not None:
        size = dataclasses.replace(size, num_seeds=given.seeds, num_grid_seeds=given.seeds)

    def progress(label: str, done: int, total: int) -> None:
        print(f"{done} of {total}: {label}", flush=True)

    words = [f"--preset {given.preset}", *(f"--table {name}" for name in given.table)]
    words += [] if given.seeds is None else [f"--seeds {given.seeds}"]
    words += [f"--without {name}" for name in given.without]
    content = second.run(
        given.preset, given.out, progress, given.table, which=VALIDATION, own=rules(given.rule), without=given.without,
        size=size, command=" ".join(["python benchmarks/second_validation.py", *words]),
    )  # fmt: skip
    for name, table in content["tables"].items():
        print(f"\n{table['title']}")
        for header, rows in shown(name, table):
            print("\n".join(" | ".join(row) for row in [header, *rows]))
    print(f"\nWrote {given.out / 'second.md'}")
    return content


if __name__ == "__main__":
    try:
        main()
    except InvalidInput as error:
        raise SystemExit(f"second_validation: {error}") from None
