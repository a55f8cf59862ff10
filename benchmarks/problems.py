"""Problems as strangers bring them, for `benchmarks/defaults.py`: NumPy functions of a batch, each with its own units.

Two halves of like kinds and different functions. The first (`TUNING`) is what defaults of `lqd.optimize` are chosen on;
the second (`QUOTED`) is what results are quoted on, and is run once, when the choice is made. pyribs's sphere and
Rastrigin with linear projection and planar arms are in neither: benchmarks/community.py has them.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

Function = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Problem:
    """A function `x (N, dim) -> fitness (N,), descriptor (N, D)`, and what its owner knows of it.

    `bounds` of solutions, None where there are none: then a search begins around `start` with a spread of `spread`.
    `ranges` of descriptors; with `tells_ranges=False` only the opponents are told, and the archive that measures.
    A solution counts for its share of the way from `floor` to `ceiling`. `noise` is added to what a search sees.
    """

    name: str
    function: Function
    dim: int
    bounds: tuple[np.ndarray, np.ndarray] | None
    ranges: tuple[np.ndarray, np.ndarray]
    floor: float
    ceiling: float
    start: float = 0.0
    spread: float = 1.0
    noise: float = 0.0
    tells_ranges: bool = True

    @property
    def descriptor_dim(self) -> int:
        return len(self.ranges[0])

    def worth(self, fitness: np.ndarray) -> np.ndarray:
        """From 0 to 1; what is no number is worth nothing."""
        share = (np.nan_to_num(fitness, nan=-np.inf) - self.floor) / (self.ceiling - self.floor)
        return np.clip(share, 0.0, 1.0)


def box(dim: int, low, high) -> tuple[np.ndarray, np.ndarray]:
    return np.broadcast_to(np.asarray(low, float), dim).copy(), np.broadcast_to(np.asarray(high, float), dim).copy()


def _mixing(seed: int, dim: int, num: int) -> np.ndarray:
    """Directions of length 1."""
    matrix = np.random.default_rng(seed).normal(size=(dim, num))
    return matrix / np.linalg.norm(matrix, axis=0)


# --- the first half ---


def himmelblau(x):
    a, b = x[:, 0], x[:, 1]
    return -((a**2 + b - 11) ** 2) - (a + b**2 - 7) ** 2, x


INDICES = np.array([2.35, 1.46, 2.35, 1.46, 2.35, 1.46])  # of refraction, layer by layer


def _reflectance(thickness, wavelength):
    """Of layers on glass, light from above: characteristic matrices."""
    phase = 2 * np.pi * INDICES * thickness[:, None, :] / wavelength[None, :, None]
    one = np.ones(phase.shape[:2], complex)
    a, b, c, d = one, 0 * one, 0 * one, one
    for i, n in enumerate(INDICES):
        cos, sin = np.cos(phase[..., i]), 1j * np.sin(phase[..., i])
        a, b, c, d = a * cos + b * n * sin, a * sin / n + b * cos, c * cos + d * n * sin, c * sin / n + d * cos
    glass = 1.52
    front, back = a + b * glass, c + d * glass
    return np.abs((front - back) / (front + back)) ** 2


def coating(x):
    """Six layers in metres: little reflection in the visible; how thick it is, and what it reflects in the infrared."""
    visible = _reflectance(x, np.linspace(400e-9, 700e-9, 7)).mean(axis=1)
    infrared = _reflectance(x, np.linspace(900e-9, 1100e-9, 3)).mean(axis=1)
    return -visible, np.stack([x.sum(axis=1), infrared], axis=1)


RETURNS = np.random.default_rng(11).uniform(0.5, 3.0, size=10)
SATURATION = np.random.default_rng(12).uniform(5e4, 8e5, size=10)


def spending(x):
    """Ten projects with diminishing returns: the gain; what all cost, and how concentrated it is."""
    gain = (RETURNS * SATURATION * (1 - np.exp(-np.maximum(x, 0) / SATURATION))).sum(axis=1)
    total = x.sum(axis=1)
    share = x / np.maximum(total, 1e-9)[:, None]
    return gain - 0.6 * total, np.stack([total, (share**2).sum(axis=1)], axis=1)


def spring(x):
    """Wire diameter, coil diameter, number of coils: light, with penalties; its stiffness and its free length."""
    d, big, num = x[:, 0], x[:, 1], x[:, 2]
    mass = (num + 2) * big * d**2
    stress = 8 * 1000 * big / (np.pi * d**3) / 1e5
    stiffness = 1.15e7 * d**4 / (8 * big**3 * num)
    return -mass - np.maximum(0, stress - 30) / 10, np.stack([np.log10(stiffness), num * d * 1.1], axis=1)


def rosenbrock(x):
    valley = (100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1 - x[:, :-1]) ** 2).sum(axis=1)
    return -np.log1p(valley), np.tanh(x[:, [0, 5]])


GRIEWANK = _mixing(21, 60, 2)


def griewank(x):
    index = np.sqrt(np.arange(1, x.shape[1] + 1))
    value = (x**2).sum(axis=1) / 4000 - np.prod(np.cos(x / index), axis=1) + 1
    return -value, x @ GRIEWANK


def ackley(x):
    mean = (x**2).mean(axis=1)
    value = 20 + np.e - 20 * np.exp(-0.2 * np.sqrt(mean)) - np.exp(np.cos(2 * np.pi * x).mean(axis=1))
    return -value, x[:, :3].sum(axis=1, keepdims=True)


LEGS = _mixing(31, 16, 4)


def four_ways(x):
    """Ellipsoid of condition 1e4 with four descriptors that bend."""
    scale = 100 ** np.linspace(0, 1, x.shape[1])
    return -np.log10(1e-6 + (scale * (x - 0.3) ** 2).sum(axis=1)), np.sin(2 * x @ LEGS)


SIX = _mixing(41, 12, 6)


def six_ways(x):
    valleys = (x**2 + 2 * np.sin(3 * x) ** 2).sum(axis=1)
    return -valleys, np.tanh(x @ SIX)


def unlike(x):
    """One descriptor of a millionth, one of a million: what is heavy in one is light in the other."""
    inner, outer = (x[:, :4] ** 2).sum(axis=1), (x[:, 4:] ** 2).sum(axis=1)
    return -np.abs(inner - outer) - 0.1 * np.abs(x).sum(axis=1), np.stack(
        [1e-6 * inner, 1e6 * x[:, 4:].mean(axis=1)], axis=1
    )


def logarithms(x):
    """No number where a logarithm has none: half of the box."""
    with np.errstate(all="ignore"):
        value = np.log(x[:, 0] + 0.5 * x[:, 1]) - 0.3 * (x[:, 2:] ** 2).sum(axis=1)
    return value, x[:, :2]


def hills(x):
    """Ten Gaussian hills; what is seen is noisy."""
    rng = np.random.default_rng(51)
    centre, height = rng.uniform(-0.8, 0.8, size=(10, 5)), rng.uniform(0.4, 1.0, size=10)
    distance = ((x[:, None] - centre) ** 2).sum(axis=-1)
    return (height * np.exp(-distance / 0.3)).max(axis=1), x[:, :2]


def throw(x):
    """A ball over a wall into a yard, 0 or 1: angle, speed, spin, height; where it lands and how high it went."""
    angle, speed, spin, height = np.radians(x[:, 0]), x[:, 1], x[:, 2], x[:, 3]
    lift = 9.81 - 0.02 * spin
    up, forward = speed * np.sin(angle), speed * np.cos(angle)
    time = (up + np.sqrt(up**2 + 2 * lift * height)) / lift
    land, apex = forward * time, height + up**2 / (2 * lift)
    at_wall = 8.0 / np.maximum(forward, 1e-9)
    over = height + up * at_wall - lift * at_wall**2 / 2 > 3.0
    return (over & (land > 9) & (land < 30)).astype(float), np.stack([land, apex], axis=1)


def swing(x):
    """A pendulum by a policy of nine weights, 100 steps: upright and calm; mean speed and mean torque."""
    angle, speed = np.full(len(x), np.pi), np.zeros(len(x))
    reward, fast, strong = np.zeros(len(x)), np.zeros(len(x)), np.zeros(len(x))
    for _ in range(100):
        seen = np.stack([np.cos(angle), np.sin(angle), speed / 8], axis=1)
        hidden = np.tanh(np.einsum("nij,nj->ni", x[:, :6].reshape(-1, 2, 3), seen))
        torque = 2 * np.tanh(x[:, 6] * hidden[:, 0] + x[:, 7] * hidden[:, 1] + x[:, 8])
        speed = np.clip(speed + 0.05 * (15 * np.sin(angle) + 3 * torque), -8, 8)
        angle = angle + 0.05 * speed
        wrapped = (angle + np.pi) % (2 * np.pi) - np.pi
        reward -= wrapped**2 + 0.1 * speed**2 + 0.001 * torque**2
        fast, strong = fast + np.abs(speed), strong + np.abs(torque)
    return reward / 100, np.stack([fast, strong], axis=1) / 100


WORTH, WEIGHT = np.random.default_rng(61).uniform(1, 10, size=(2, 30))


def knapsack(x):
    """Thirty things, taken where the number is above one half: worth; how many, and what they weigh."""
    taken = (x > 0.5).astype(float)
    weight = taken @ WEIGHT
    return taken @ WORTH - 2 * np.maximum(weight - 90, 0), np.stack([taken.sum(axis=1), weight], axis=1)


TUNING = {
    problem.name: problem
    for problem in (
        Problem("himmelblau", himmelblau, 2, box(2, -5, 5), box(2, -5, 5), -200, 0),
        Problem("coating", coating, 6, box(6, 10e-9, 300e-9), (np.array([60e-9, 0]), np.array([1.8e-6, 1])), -0.5, 0),
        Problem("spending", spending, 10, box(10, 0, 1e6), (np.array([0, 0.1]), np.array([1e7, 1])), 0, 4e6),
        Problem("spring", spring, 3, (np.array([0.05, 0.25, 2]), np.array([2, 1.3, 15])),
                (np.array([-2, 0]), np.array([8, 30])), -40, 0),
        Problem("rosenbrock, unbounded", rosenbrock, 10, None, box(2, -1, 1), -12, 0),
        Problem("griewank 60", griewank, 60, box(60, -100, 100), box(2, -200, 200), -60, 0),
        Problem("ackley, 1 descriptor", ackley, 8, box(8, -30, 30), box(1, -90, 90), -22, 0),
        Problem("4 descriptors", four_ways, 16, box(16, -1, 1), box(4, -1, 1), -4, 2),
        Problem("6 descriptors, not told", six_ways, 12, box(12, -3, 3), box(6, -1, 1), -60, 0, tells_ranges=False),
        Problem("unlike descriptors", unlike, 8, box(8, -2, 2),
                (np.array([0, -1.6e6]), np.array([1.6e-5, 1.6e6])), -6, 0),
        Problem("NaN in half", logarithms, 6, box(6, -2, 2), box(2, -2, 2), -5, 1.1),
        Problem("hills, noisy", hills, 5, box(5, -1, 1), box(2, -1, 1), 0, 1, noise=0.1),
        Problem("throw, 0 or 1", throw, 4, (np.array([5, 1, -50, 0.5]), np.array([85, 25, 50, 2.5])),
                (np.array([0, 0]), np.array([60, 35])), -1, 1),
        Problem("pendulum policy", swing, 9, None, (np.array([0, 0]), np.array([8, 2])), -14, 0),
        Problem("knapsack, rounded", knapsack, 30, box(30, 0, 1), (np.array([0, 0]), np.array([30, 180])), 0, 130),
    )
}  # fmt: skip


# --- the second half ---


def eggholder(x):
    a, b = x[:, 0], x[:, 1] + 47
    value = -b * np.sin(np.sqrt(np.abs(x[:, 0] / 2 + b))) - a * np.sin(np.sqrt(np.abs(a - b)))
    return -value, np.stack([a + x[:, 1], a - x[:, 1]], axis=1)


def heat_sink(x):
    """Fins in metres: number, thickness, height, length, gap. Little resistance; mass and area."""
    num, thick, high, long, gap = np.round(x[:, 0]), x[:, 1], x[:, 2], x[:, 3], x[:, 4]
    speed = 25.0
    coefficient = speed / np.sqrt(np.maximum(long, 1e-9)) * gap / (gap + 2e-3)
    m = np.sqrt(2 * coefficient / (200 * thick))
    efficiency = np.tanh(m * high) / (m * high)
    area = 2 * num * high * long
    resistance = 1 / (coefficient * area * efficiency + 1e-3)
    return -np.log10(resistance), np.stack([2700 * num * thick * high * long, num * (thick + gap)], axis=1)


def vessel(x):
    """A pressure vessel: shell, head, radius, length. Cheap; no number where it would burst or hold too little."""
    shell, head, radius, length = x.T
    cost = 0.6224 * shell * radius * length + 1.7781 * head * radius**2 + 3.1661 * shell**2 * length
    cost = cost + 19.84 * shell**2 * radius
    volume = np.pi * radius**2 * length + 4 / 3 * np.pi * radius**3
    bad = (shell < 0.0193 * radius) | (head < 0.00954 * radius) | (volume < 3e5)
    return np.where(bad, np.nan, -np.log10(cost)), np.stack([volume, shell], axis=1)


def levy(x):
    w = 1 + (x - 1) / 4
    middle = ((w[:, :-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:, :-1] + 1) ** 2)).sum(axis=1)
    value = np.sin(np.pi * w[:, 0]) ** 2 + middle + (w[:, -1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[:, -1]) ** 2)
    return -np.log1p(value), np.stack([np.arctan(x[:, 0]), np.arctan(x[:, 1:].mean(axis=1))], axis=1)


def styblinski(x):
    value = (x**4 - 16 * x**2 + 5 * x).mean(axis=1) / 2
    half = x.shape[1] // 2
    return -value, np.stack([np.abs(x[:, :half]).mean(axis=1), np.cos(x[:, half:]).mean(axis=1)], axis=1)


def schwefel(x):
    value = 418.9829 - (x * np.sin(np.sqrt(np.abs(x)))).mean(axis=1)
    return -value, np.stack([x[:, ::2].mean(axis=1), x[:, 1::2].mean(axis=1)], axis=1)


def michalewicz(x):
    index = np.arange(1, x.shape[1] + 1)
    value = (np.sin(x) * np.sin(index * x**2 / np.pi) ** 20).sum(axis=1)
    return value, x[:, :4].mean(axis=1, keepdims=True)


FOUR, EIGHT = _mixing(131, 20, 4), _mixing(141, 24, 8)


def bent_four(x):
    distance = np.sqrt((x**2).sum(axis=1))
    return -np.abs(distance - 2.0) - 0.05 * np.cos(8 * x).sum(axis=1), np.arctan(2 * x @ FOUR)


def bent_eight(x):
    powers = (np.abs(x) ** (2 + 4 * np.arange(x.shape[1]) / (x.shape[1] - 1))).sum(axis=1)
    return -np.sqrt(powers), np.cos(x @ EIGHT + 0.5)


def ledger(x):
    """In euros and shares: twelve positions from 1e2 to 1e6 at most; expected gain less risk; what all is worth, and
    how much of it is in the first third."""
    scale = 10 ** np.linspace(2, 6, 12)
    part = x / scale
    rng = np.random.default_rng(151)
    gain, risk = rng.uniform(-0.2, 1.0, size=12), rng.normal(size=(12, 12)) / 6
    value = part @ gain - ((part @ risk) ** 2).sum(axis=1) - 0.3 * (part**2).sum(axis=1)
    return value, np.stack([x.sum(axis=1), part[:, :4].sum(axis=1) / np.maximum(part.sum(axis=1), 1e-9)], axis=1)


def ripples(x):
    """Rings around three centres; what is seen is noisy."""
    centre = np.random.default_rng(161).uniform(-0.6, 0.6, size=(3, 8))
    distance = np.sqrt(((x[:, None] - centre) ** 2).sum(axis=-1))
    return (np.cos(6 * distance) * np.exp(-distance)).max(axis=1), np.stack(
        [x[:, 0] * x[:, 1], x[:, 2:].mean(axis=1)], axis=1
    )


def maze(x):
    """Eight turns of a walker in a room with two walls, 1 if it never bumps into one; where it ends."""
    place, heading = np.full((len(x), 2), 0.1), np.zeros(len(x))
    bumped = np.zeros(len(x), bool)
    for turn in range(x.shape[1]):
        heading = heading + x[:, turn]
        for _ in range(4):
            new = place + 0.05 * np.stack([np.cos(heading), np.sin(heading)], axis=1)
            walls = ((np.abs(new[:, 0] - 0.4) < 0.03) & (new[:, 1] < 0.7)) | (
                (np.abs(new[:, 0] - 0.7) < 0.03) & (new[:, 1] > 0.3)
            )
            stuck = walls | (new < 0).any(axis=1) | (new > 1).any(axis=1)
            place, bumped = np.where(stuck[:, None], place, new), bumped | stuck
    return (~bumped).astype(float), place


def double_pendulum(x):
    """No fitness at all: where the tip is after being let go, by angles and lengths."""
    a, b, va, vb = x[:, 0].copy(), x[:, 1].copy(), np.zeros(len(x)), np.zeros(len(x))
    one, two = x[:, 2], x[:, 3]
    for _ in range(60):
        delta = a - b
        below = 3 - np.cos(2 * delta)
        first = (
            -3 * 9.81 * np.sin(a)
            - 9.81 * np.sin(a - 2 * b)
            - 2 * np.sin(delta) * (vb**2 * two + va**2 * one * np.cos(delta))
        )
        second = 2 * np.sin(delta) * (2 * va**2 * one + 2 * 9.81 * np.cos(a) + vb**2 * two * np.cos(delta))
        va, vb = va + 0.02 * first / (one * below), vb + 0.02 * second / (two * below)
        a, b = a + 0.02 * va, b + 0.02 * vb
    tip = np.stack([one * np.sin(a) + two * np.sin(b), -one * np.cos(a) - two * np.cos(b)], axis=1)
    return np.zeros(len(x)), tip


def cart_pole(x):
    """gymnasium's CartPole by a linear policy, 200 steps: how long it stands; where the cart is and how it leans."""
    from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

    env = CartPoleVectorEnv(num_envs=len(x), max_episode_steps=200)
    env.reset(seed=7)
    env.state = np.tile([[0.02], [-0.03], [0.01], [0.04]], len(x))  # the same for everybody
    seen = env.state.T
    alive, steps = np.ones(len(x), bool), np.zeros(len(x))
    where, leans = np.zeros(len(x)), np.zeros(len(x))
    for _ in range(200):
        seen, _, ended, cut, _ = env.step(((seen * x[:, :4]).sum(axis=1) + x[:, 4] > 0).astype(int))
        alive &= ~(ended | cut)
        steps, where, leans = steps + alive, where + alive * seen[:, 0], leans + alive * np.abs(seen[:, 2])
    env.close()
    steps = np.maximum(steps, 1)
    return steps, np.stack([where / steps, leans / steps], axis=1)


def picture(x):
    """A little network paints 12 x 12 points: smooth and symmetric; how bright, and how much contrast."""
    second, first = np.meshgrid(np.linspace(-1, 1, 12), np.linspace(-1, 1, 12))
    seen = np.stack([first.ravel(), second.ravel(), np.hypot(first, second).ravel(), np.ones(144)])
    hidden = np.sin(np.einsum("nij,jp->nip", x[:, :24].reshape(-1, 6, 4), seen))
    image = 1 / (1 + np.exp(-np.einsum("ni,nip->np", x[:, 24:30], hidden) - x[:, 30:31]))
    grid = image.reshape(-1, 12, 12)
    rough = np.abs(np.diff(grid, axis=1)).mean(axis=(1, 2)) + np.abs(np.diff(grid, axis=2)).mean(axis=(1, 2))
    lopsided = np.abs(grid - grid[:, ::-1]).mean(axis=(1, 2))
    return -rough - lopsided, np.stack([image.mean(axis=1), image.std(axis=1)], axis=1)


QUOTED = {
    problem.name: problem
    for problem in (
        Problem("eggholder", eggholder, 2, box(2, -512, 512), box(2, -1024, 1024), -1000, 960),
        Problem("heat sink", heat_sink, 5,
                (np.array([2, 5e-4, 5e-3, 1e-2, 5e-4]), np.array([40, 5e-3, 8e-2, 0.3, 1e-2])),
                (np.array([0, 0]), np.array([2, 0.5])), -2, 2),
        Problem("pressure vessel, NaN", vessel, 4, (np.array([0.0625, 0.0625, 10, 10]), np.array([6, 6, 200, 240])),
                (np.array([3e5, 0]), np.array([3e7, 6])), -6, -3),
        Problem("levy, unbounded", levy, 10, None, box(2, -1.6, 1.6), -6, 0, tells_ranges=False),
        Problem("styblinski 200", styblinski, 200, box(200, -5, 5), (np.array([0, -1]), np.array([5, 1])), -100, 40),
        Problem("schwefel 100", schwefel, 100, box(100, -500, 500), box(2, -300, 300), -800, 0),
        Problem("michalewicz, 1 descriptor", michalewicz, 12, box(12, 0, np.pi), box(1, 0, np.pi), 0, 10),
        Problem("4 bent descriptors", bent_four, 20, box(20, -2, 2), box(4, -1.6, 1.6), -8, 1),
        Problem("8 descriptors", bent_eight, 24, box(24, -4, 4), box(8, -1, 1), -30, 0),
        Problem("ledger, mixed units", ledger, 12, (np.zeros(12), 10 ** np.linspace(2, 6, 12)),
                (np.array([0, 0]), np.array([1.8e6, 1])), -3, 2),
        Problem("ripples, noisy", ripples, 8, box(8, -1, 1), box(2, -1, 1), -0.5, 1, noise=0.1),
        Problem("maze, 0 or 1", maze, 8, box(8, -np.pi, np.pi), box(2, 0, 1), -1, 1),
        Problem("double pendulum, constant", double_pendulum, 4,
                (np.array([-3, -3, 0.5, 0.5]), np.array([3, 3, 1.5, 1.5])),
                box(2, -3, 3), -1, 1),
        Problem("cart pole policy", cart_pole, 5, None, (np.array([-2.4, 0]), np.array([2.4, 0.21])), 0, 200),
        Problem("picture", picture, 31, None, (np.array([0, 0]), np.array([1, 0.5])), -1.5, 0),
    )
}  # fmt: skip
# Also with 200,000 evaluations: three of each half.
LONG = (
    "griewank 60",
    "4 descriptors",
    "pendulum policy",
    "styblinski 200",
    "4 bent descriptors",
    "ledger, mixed units",
)
