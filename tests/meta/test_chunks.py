"""How many members run at once: chosen by the number of devices where nobody says so, and kept."""

import dataclasses

import pytest

from lqd.errors import InvalidInput
from lqd.meta import chunks, presets
from lqd.meta.config import Stage, check_division


def staged(sizes, chunk_size):
    stages = tuple(Stage(1, size, 22, 8) for size in sizes)
    return dataclasses.replace(presets.preset("smoke"), stages=stages, chunk_size=chunk_size)


@pytest.mark.parametrize("name", presets.PRESETS)
@pytest.mark.parametrize("num_devices", [1, 2, 4, 8])
def test_every_preset_runs_on_a_node_of_any_size(name, num_devices):
    config = presets.preset(name)
    found = chunks.fitted(config, num_devices)
    assert dataclasses.replace(found, chunk_size=config.chunk_size) == config
    for stage in found.stages:
        assert check_division(stage.meta_population_size, found.chunk_size, num_devices) >= 1
    if num_devices == 1:
        assert found == config


@pytest.mark.parametrize(
    ("sizes", "chunk_size", "num_devices", "expected"),
    [
        ((128,), 128, 8, 16),
        ((256,), 32, 8, 32),  # it divides already
        ((256,), 32, 3, None),
        ((24,), 8, 3, 8),
        ((24,), 8, 4, 6),
        ((16, 24), 8, 2, 4),  # of both stages
        ((16, 8), 8, 4, 2),
        ((4,), 8, 2, 2),  # of a chunk that no stage fills
        ((), 8, 2, 8),
    ],
)
def test_the_largest_chunk_that_divides(sizes, chunk_size, num_devices, expected):
    config = staged(sizes, chunk_size)
    if expected is None:
        with pytest.raises(InvalidInput, match="=256 cannot be shared by 3 devices; 255 or 258 can"):
            chunks.fitted(config, num_devices)
        return
    assert chunks.fitted(config, num_devices).chunk_size == expected
    for larger in range(expected + 1, chunk_size + 1):
        for size in sizes:
            if size % (min(larger, size) * num_devices):
                break
        else:
            assert not sizes, larger


def test_a_run_keeps_the_chunks_in_which_it_was_begun():
    begun = staged((16,), 4)
    assert chunks.kept(staged((16,), 8), begun) == begun
    other = staged((30,), 10)  # which 4 do not divide: another run
    assert chunks.kept(other, begun) == other


def test_a_run_that_cannot_go_on_here_says_where_it_can():
    chunks.check_begun(staged((16,), 4), 4)
    with pytest.raises(InvalidInput, match=r"16 members are 4 chunks, and 3 devices cannot .* with 1, 2 or 4 of them"):
        chunks.check_begun(staged((16,), 4), 3)
    with pytest.raises(InvalidInput, match=r"16 members are 1 chunk, and 2 devices cannot .* Continue with 1 of them"):
        chunks.check_begun(staged((16,), 16), 2)
