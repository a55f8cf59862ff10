"""Families of tasks on which the second generation of rules is trained: `--tasks wide_families:NAME` in this folder.

None of them holds what the second generation is measured on: sphere and Rastrigin with linear projection, arms of 10 to
14 and of more than 80 joints. BBOB's own functions stay, with random projections and instances of training's keys.
"""

from lqd.meta.families import Clipped, Distribution

bbob_noiseless = Distribution(noise=False)
clipped_wide = Clipped(max_dim=100)
