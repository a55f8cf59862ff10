"""How many members run at once on a device: chosen unless the user says, and from then on part of the run.

The size of a chunk affects the last bits of results. So it is fixed once, when a run begins, and written into its
config; the run keeps it, on whatever number of devices it continues.
"""

import dataclasses

from lqd.errors import InvalidInput
from lqd.meta.config import Config, check_division


def fitted(config: Config, num_devices: int) -> Config:
    """The config with the largest chunk, no larger than its own, that divides over the devices in every stage."""
    sizes = [stage.meta_population_size for stage in config.stages]
    for chunk in range(config.chunk_size, 0, -1):
        if all(size % (min(chunk, size) * num_devices) == 0 for size in sizes):
            return config if chunk == config.chunk_size else dataclasses.replace(config, chunk_size=chunk)
    size = next(size for size in sizes if size % num_devices)
    below, above = size // num_devices * num_devices, -(-size // num_devices) * num_devices
    would = f"{below} or {above}" if below >= 4 else f"{above}"
    raise InvalidInput(f"meta_population_size={size} cannot be shared by {num_devices} devices; {would} can.")


def kept(wanted: Config, begun: Config) -> Config:
    """The wanted config of a run, in the chunks in which it was begun."""
    try:
        return dataclasses.replace(wanted, chunk_size=begun.chunk_size)
    except InvalidInput:  # then it is another run, which is reported elsewhere
        return wanted


def check_begun(config: Config, num_devices: int) -> None:
    """An error if a run cannot continue, in its chunks, on this many devices: it says how many would do."""
    for stage in config.stages:
        size, chunk = stage.meta_population_size, min(config.chunk_size, stage.meta_population_size)
        try:
            check_division(size, config.chunk_size, num_devices)
        except InvalidInput:
            num = size // chunk
            fits = [str(devices) for devices in range(1, num + 1) if num % devices == 0]
            would = " or ".join(filter(None, (", ".join(fits[:-1]), fits[-1])))
            raise InvalidInput(
                f"this run works in chunks of {chunk} members, on which its results depend: {size} members are {num} "
                f"chunk{'s' * (num > 1)}, and {num_devices} devices cannot share them. Continue with {would} of them "
                f"(CUDA_VISIBLE_DEVICES selects which)."
            ) from None
