"""Weights to begin with, whose advice on breeding is partly set by hand: `python training/start.py RULE OUT`.

What `benchmarks/leading_by_search.py` found, in the weights that go straight from what an individual carries to what is
said of it: parents are among the best few, and steps are pulled back to where they begin, each by a share of the way
in each generation. RULE is a name, a file or the folder of a run. Of what it says of breeding itself, `--keep` is the
share that stays.
"""

import argparse
import dataclasses

import jax
import numpy as np

from lqd.rules import trained
from lqd.rules.learned import recipe3
from lqd.rules.learned.recipe3 import NUM_ADVICE, NUM_CARRIED, STEPS, UNIT
from lqd.rules.learned.rule import Learned

PULL = {"iso": 0.03, "line": 0.0, "difference": 0.9, "shape": 0.3, "trail": 0.15}
PARENT, FIRST_STEP = 0, NUM_ADVICE - len(STEPS)  # columns of the advice


def by_hand(rank: float) -> np.ndarray:
    """Weights of rank and of what is carried; with `rank` as that of the first, about 40 / rank are parents."""
    direct = np.zeros((1 + NUM_CARRIED, NUM_ADVICE), np.float32)
    direct[0, PARENT] = rank
    for i, step in enumerate(STEPS):
        direct[1 + i, FIRST_STEP + i] = -PULL[step] * UNIT
    return direct


def started(rule: Learned, keep: float, rank: float) -> Learned:
    if rule.architecture.recipe == 2:
        rule = Learned(recipe3.from_recipe2(rule.params), dataclasses.replace(rule.architecture, recipe=3))
    breeding = jax.tree.map(lambda leaf: keep * np.asarray(leaf, np.float32), rule.params["breeding"])
    whole = by_hand(rank)
    whole[0] *= 1 - keep  # the rank counts once; the pull is whole, as hardly any was learned
    return Learned(rule.params | {"breeding": breeding | {"direct": breeding["direct"] + whole}}, rule.architecture)


def main() -> None:
    parser = argparse.ArgumentParser(description="Weights to begin with, with breeding partly by hand.")
    parser.add_argument("rule")
    parser.add_argument("out")
    parser.add_argument("--keep", type=float, default=0.0, help="share of what the rule says of breeding")
    parser.add_argument("--rank", type=float, default=4.7, help="0: everybody is as likely to be a parent")
    given = parser.parse_args()
    rule = started(trained.load(given.rule), given.keep, given.rank)
    about = {"made_by": f"python training/start.py {given.rule} {given.out} --keep {given.keep} --rank {given.rank}"}
    trained.save_rule(given.out, rule, about)
    print(f"Wrote {given.out}, fingerprint {rule.fingerprint()}.")


if __name__ == "__main__":
    main()
