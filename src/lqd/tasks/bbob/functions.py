"""The 24 noiseless BBOB functions, minimised, with f_opt = 0.

Definitions: Hansen, Finck, Ros, Auger, "Real-Parameter Black-Box Optimization Benchmarking 2009: Noiseless Functions
Definitions" (INRIA RR-6829); values agree with COCO's to 1e-9 (`docs/bbob-accuracy.md`).

One code serves every dimension: a point may be padded to a width `W`, and only its first `num_dims` entries (which
may be traced) are live. What the padding of `x` holds never matters; `R` and `Q` hold their live block top-left and
are zero or the identity elsewhere. So a masked offset stays zero through rotations and transformations, and only
what maps zero to something else (neighbouring pairs, a second centre) is masked again.

In float32 the textbook formulas lose every digit near the optimum (`10 D - 10 sum(cos)`). What stands here is
algebraically equal, and written in the offset from the optimum.

More than 400 lines: the 24 functions belong side by side, and share their transformations.

Deliberately not here: noise (`noise.py`), instances and their sampling (`instances.py`), f_opt, gradients.
"""

import dataclasses
import math
import re
from typing import cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from lqd.errors import InvalidInput, unknown

NAMES = (
    "sphere",
    "ellipsoidal",
    "rastrigin",
    "bueche_rastrigin",
    "linear_slope",
    "attractive_sector",
    "step_ellipsoidal",
    "rosenbrock",
    "rosenbrock_rotated",
    "ellipsoidal_rotated",
    "discus",
    "bent_cigar",
    "sharp_ridge",
    "different_powers",
    "rastrigin_rotated",
    "weierstrass",
    "schaffers_f7",
    "schaffers_f7_ill_conditioned",
    "griewank_rosenbrock",
    "schwefel",
    "gallagher_101",
    "gallagher_21",
    "katsuura",
    "lunacek",
)
GALLAGHER = {21: 101, 22: 21}  # number of peaks

Peaks = tuple[Float[Array, "P W"], Float[Array, "P W"], Float[Array, " P"]]


def index(index_or_name: int | str) -> int:
    """The number 1..24 of a function given as `3`, `"f3"` or `"rastrigin"`."""
    text = str(index_or_name)
    if text in NAMES:
        return NAMES.index(text) + 1
    number = re.fullmatch(r"f?(\d{1,2})", text)
    if number and 1 <= int(number[1]) <= len(NAMES):
        return int(number[1])
    raise unknown("BBOB function (a name, or a number 1..24)", index_or_name, NAMES)


@dataclasses.dataclass(frozen=True)
class Point:
    """One point of an instance as the functions see it; everything is zero in the padding."""

    x: Float[Array, " W"]
    x_opt: Float[Array, " W"]
    R: Float[Array, "W W"]
    Q: Float[Array, "W W"]
    peaks: Peaks | None
    mask: Bool[Array, " W"]  # the live coordinates
    rank: Float[Array, " W"]  # 1, 2, ...
    n: Float[Array, ""]

    @property
    def offset(self) -> Float[Array, " W"]:
        return self.x - self.x_opt

    @property
    def ramp(self) -> Float[Array, " W"]:
        """From 0 for the first live coordinate to 1 for the last: the exponents of every scaling."""
        return jnp.where(self.mask, (self.rank - 1) / jnp.maximum(self.n - 1, 1), 0)

    def scaling(self, condition: float) -> Float[Array, " W"]:
        """Diagonal of BBOB's Lambda: a quadratic function of the scaled offset has this condition."""
        return jnp.power(condition, 0.5 * self.ramp)

    @property
    def penalty(self) -> Float[Array, ""]:
        return square_sum(jnp.maximum(jnp.abs(self.x) - 5, 0))


def point(x, x_opt, R, Q, peaks=None, num_dims=None) -> Point:
    """Mask a padded point; `num_dims=None` means that all of it is live."""
    width = x.shape[0]
    rank = jnp.arange(1, width + 1, dtype=x.dtype)
    n = jnp.asarray(width if num_dims is None else num_dims).astype(x.dtype)
    mask = rank <= n
    if peaks is not None:
        centre, diagonal, height = peaks
        peaks = (jnp.where(mask, centre, 0), jnp.where(mask, diagonal, 0), height)
    return Point(jnp.where(mask, x, 0), jnp.where(mask, x_opt, 0), R, Q, peaks, mask, rank, n)


def value(
    index_or_name: int | str,
    x: Float[ArrayLike, "*B W"],
    x_opt: Float[ArrayLike, " W"],
    R: Float[ArrayLike, "W W"],
    Q: Float[ArrayLike, "W W"],
    peaks: Peaks | None = None,
    num_dims: Int[ArrayLike, ""] | None = None,
) -> Float[Array, "*B"]:
    """f(x) - f_opt, to be minimised, for one point `(n,)` or a batch `(B, n)`.

    Args:
        index_or_name: `3`, `"f3"` or `"rastrigin"`.
        x: Where to evaluate; also outside the box.
        x_opt: The argmin, in the form the definition uses (f8: already times 0.75; f9, f19: R^T 1/(2s), ...).
        R: The rotation that is applied first. Functions that do not rotate ignore it.
        Q: The second rotation, likewise.
        peaks: For f21 and f22: centres (P, n), diagonals of C_i (P, n), heights (P,).
        num_dims: The live dimension if x is padded; what lies beyond is ignored. May be traced.

    float64 where x is and JAX is in 64-bit mode (`jax.enable_x64`), float32 otherwise.
    """
    number = index(index_or_name)
    x, arrays = check_shapes(x, num_dims, x_opt=x_opt, R=R, Q=Q)
    if number in GALLAGHER:
        peaks = _check_peaks(number, x, peaks)

    def value_of_one(x: Float[Array, " W"]) -> Float[Array, ""]:
        return _FUNCTIONS[number - 1](
            point(x, **arrays, peaks=peaks if number in GALLAGHER else None, num_dims=num_dims)
        )

    return value_of_one(x) if x.ndim == 1 else jax.vmap(value_of_one)(x)


def check_shapes(x, num_dims, **arrays) -> tuple[Array, dict[str, Array]]:
    """Everything as arrays of x's float type, or an error that says which shape is wrong."""
    x = jnp.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.floating) or x.dtype.itemsize < 4:
        x = x.astype(jnp.float32)
    if x.ndim not in (1, 2) or x.shape[-1] < 2:
        raise InvalidInput(f"x must be one point (n,) or a batch (B, n) with n >= 2, got shape {x.shape}")
    width = x.shape[-1]
    if isinstance(num_dims, int) and not 2 <= num_dims <= width:
        raise InvalidInput(f"num_dims must be between 2 and the width of x ({width}), got {num_dims}")
    arrays = {name: jnp.asarray(array).astype(x.dtype) for name, array in arrays.items()}
    for name, array in arrays.items():
        expected = (width,) if name == "x_opt" else (width, width)
        if array.shape != expected:
            raise InvalidInput(f"{name} must have shape {expected} for points of shape {x.shape}, got {array.shape}")
    return x, arrays


def _check_peaks(number: int, x: Array, peaks: Peaks | None) -> Peaks:
    if peaks is None:
        raise InvalidInput(
            f"{NAMES[number - 1]} needs peaks=(centres (P, n), diagonals (P, n), heights (P,)), got None"
        )
    centre, diagonal, height = (jnp.asarray(array).astype(x.dtype) for array in peaks)
    if centre.shape != diagonal.shape or centre.shape != (*height.shape, x.shape[-1]):
        shapes = f"{centre.shape}, {diagonal.shape}, {height.shape}"
        raise InvalidInput(f"peaks must have shapes (P, n), (P, n), (P,) with n = {x.shape[-1]}, got {shapes}")
    return centre, diagonal, height


# Parts shared by several functions.


def matmul(a: Array, b: Array) -> Array:
    """In full float32: a GPU may otherwise multiply with 10 bits."""
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def square_sum(z: Array) -> Array:
    return jnp.sum(z * z)


def sin2_pi(z: Array) -> Array:
    """sin(pi z)^2; the period is taken off first, where it is exact."""
    return jnp.square(jnp.sin(math.pi * (z - jnp.round(z))))


def _log_magnitude(z: Array) -> Array:
    return jnp.log(jnp.maximum(jnp.abs(z), jnp.finfo(z.dtype).tiny))


def _oscillate(z: Array) -> Array:
    """T_osz. As a factor on z, zero stays zero and tiny offsets keep their digits."""
    log_z = _log_magnitude(z)
    up = z > 0
    waves = jnp.sin(jnp.where(up, 10.0, 5.5) * log_z) + jnp.sin(jnp.where(up, 7.9, 3.1) * log_z)
    return z * jnp.exp(0.049 * waves)


def _asymmetric(p: Point, beta: float, z: Array) -> Array:
    """T_asy: z^(1 + beta ramp sqrt(z)) where z is positive."""
    positive = jnp.maximum(z, 0)
    return z * jnp.exp(beta * p.ramp * jnp.sqrt(positive) * _log_magnitude(positive))


def _rotate(p: Point) -> Array:
    return matmul(p.R, p.offset)


def _rotate_twice(p: Point, condition: float) -> Array:
    """Q Lambda R offset; the product of matrices does not depend on x, so that a batch forms it once."""
    return matmul(matmul(p.Q, p.scaling(condition)[:, None] * p.R), p.offset)


def _rastrigin_waves(z: Array) -> Array:
    """10 (n - sum cos(2 pi z)), without the cancellation."""
    return 20 * jnp.sum(sin2_pi(z))


def rosenbrock_scale(n: Array) -> Array:
    return jnp.maximum(1, jnp.sqrt(n) / 8)


def _rosenbrock_terms(p: Point, u: Array) -> Float[Array, " W-1"]:
    """100 (z_i^2 - z_{i+1})^2 + (z_i - 1)^2 of neighbours, in u = z - 1; zero for pairs that leave the live part."""
    first, second = u[:-1], u[1:]
    terms = 100 * jnp.square(first * (first + 2) - second) + jnp.square(first)
    return jnp.where(p.mask[1:], terms, 0)


# The functions, f1 to f24.


def _sphere(p: Point) -> Array:
    return square_sum(p.offset)


def _ellipsoidal(p: Point) -> Array:
    return square_sum(p.scaling(1e6) * _oscillate(p.offset))


def _rastrigin(p: Point) -> Array:
    z = p.scaling(10) * _asymmetric(p, 0.2, _oscillate(p.offset))
    return _rastrigin_waves(z) + square_sum(z)


def _bueche_rastrigin(p: Point) -> Array:
    z = p.scaling(10) * _oscillate(p.offset)
    z = jnp.where((p.rank % 2 == 1) & (z > 0), 10 * z, z)
    return _rastrigin_waves(z) + square_sum(z) + 100 * p.penalty


def _linear_slope(p: Point) -> Array:
    downhill = -jnp.sign(p.x_opt) * p.offset
    return jnp.sum(p.scaling(100) * jnp.maximum(downhill, 0))


def _attractive_sector(p: Point) -> Array:
    z = _rotate_twice(p, 10)
    total = square_sum(jnp.where(z * p.x_opt > 0, 100 * z, z))
    return jnp.where(total > 0, jnp.exp(0.9 * _log_magnitude(_oscillate(total))), 0)


def _step_ellipsoidal(p: Point) -> Array:
    z = p.scaling(10) * _rotate(p)
    steps = jnp.where(jnp.abs(z) > 0.5, jnp.floor(0.5 + z), jnp.floor(0.5 + 10 * z) / 10)
    quadratic = square_sum(p.scaling(100) * matmul(p.Q, steps))
    return 0.1 * jnp.maximum(jnp.abs(z[0]) / 1e4, quadratic) + p.penalty


def _rosenbrock(p: Point) -> Array:
    return jnp.sum(_rosenbrock_terms(p, rosenbrock_scale(p.n) * p.offset))


def _rosenbrock_rotated(p: Point) -> Array:
    # z = s R x + 1/2 is 1 at x_opt = R^T 1/(2s), hence z - 1 = s R (x - x_opt).
    return jnp.sum(_rosenbrock_terms(p, rosenbrock_scale(p.n) * _rotate(p)))


def _ellipsoidal_rotated(p: Point) -> Array:
    return square_sum(p.scaling(1e6) * _oscillate(_rotate(p)))


def _discus(p: Point) -> Array:
    return square_sum(jnp.where(p.rank == 1, 1e3, 1) * _oscillate(_rotate(p)))


def _bent_cigar(p: Point) -> Array:
    z = matmul(p.R, _asymmetric(p, 0.5, _rotate(p)))
    return square_sum(jnp.where(p.rank == 1, 1, 1e3) * z)


def _sharp_ridge(p: Point) -> Array:
    z = _rotate_twice(p, 10)
    return jnp.square(z[0]) + 100 * jnp.sqrt(square_sum(z[1:]))


def _different_powers(p: Point) -> Array:
    powers = jnp.exp((2 + 4 * p.ramp) * _log_magnitude(_rotate(p)))
    return jnp.sqrt(jnp.sum(powers))


def _rastrigin_rotated(p: Point) -> Array:
    z = _asymmetric(p, 0.2, _oscillate(_rotate(p)))
    z = matmul(matmul(p.R, p.scaling(10)[:, None] * p.Q), z)
    return _rastrigin_waves(z) + square_sum(z)


def _weierstrass(p: Point) -> Array:
    z = matmul(matmul(p.R, p.scaling(0.01)[:, None] * p.Q), _oscillate(_rotate(p)))
    # sum_k 2^-k (1 - cos(2 pi 3^k z)), k = 0..11. Three times the angle costs no sine: sin(3a)^2 = s (3 - 4 s)^2 with
    # s = sin(a)^2; an error grows up to ninefold in such a step, so each third wave starts afresh.
    waves = jnp.zeros_like(z)
    for k in range(12):
        if k % 3 == 0:
            z = z - jnp.round(z)
            sin2 = sin2_pi(z)
            z = 27 * z
        else:
            sin2 = sin2 * jnp.square(3 - 4 * sin2)
        waves = waves + 2.0 ** (1 - k) * sin2
    return 10 * (jnp.sum(waves) / p.n) ** 3 + 10 / p.n * p.penalty


def _schaffers(p: Point, condition: float) -> Array:
    z = _asymmetric(p, 0.5, _rotate(p))
    z = matmul(p.scaling(condition)[:, None] * p.Q, z)
    square = jnp.where(p.mask[1:], jnp.square(z[:-1]) + jnp.square(z[1:]), 0)
    fifth_root = jnp.exp(0.1 * _log_magnitude(square))  # of the distance
    terms = jnp.sqrt(jnp.sqrt(square)) * (1 + jnp.square(jnp.sin(50 * fifth_root)))
    return jnp.square(jnp.sum(terms) / (p.n - 1)) + 10 * p.penalty


def _schaffers_f7(p: Point) -> Array:
    return _schaffers(p, 10)


def _schaffers_f7_ill_conditioned(p: Point) -> Array:
    return _schaffers(p, 1000)


def _griewank_rosenbrock(p: Point) -> Array:
    terms = _rosenbrock_terms(p, rosenbrock_scale(p.n) * _rotate(p))
    return 10 / (p.n - 1) * jnp.sum(terms / 4000 + 2 * jnp.square(jnp.sin(terms / 2)))


SCHWEFEL_OPTIMUM = 4.2096874637


def _schwefel_series(num_terms: int) -> list[float]:
    """Taylor coefficients of z sin(sqrt z) at its maximum, from 4 z y'' + 2 y' + y = 0 for y = sin(sqrt z)."""
    z = 100 * SCHWEFEL_OPTIMUM
    y = [math.sin(math.sqrt(z)), math.cos(math.sqrt(z)) / (2 * math.sqrt(z))]
    for k in range(num_terms):
        y.append(-((4 * k + 2) * (k + 1) * y[k + 1] + y[k]) / (4 * z * (k + 2) * (k + 1)))
    return [z * y[k] + y[k - 1] for k in range(1, num_terms + 1)]


_SCHWEFEL_SERIES = _schwefel_series(9)


def _schwefel(p: Point) -> Array:
    # All in d = z - z_opt. The first derivative vanishes there, so only a series keeps digits for small d.
    shift = 2 * jnp.sign(p.x_opt) * p.offset
    shift = jnp.where(p.mask, shift.at[1:].add(0.25 * shift[:-1]), 0)
    d = 100 * p.scaling(10) * shift
    z = 100 * SCHWEFEL_OPTIMUM + d
    best = 100 * SCHWEFEL_OPTIMUM * math.sin(math.sqrt(100 * SCHWEFEL_OPTIMUM))
    far = best - z * jnp.sin(jnp.sqrt(jnp.abs(z)))
    near = jnp.zeros_like(d)
    for coefficient in reversed(_SCHWEFEL_SERIES):
        near = (near - coefficient) * d
    loss = jnp.where(jnp.abs(d) < 8, near, jnp.where(p.mask, far, 0))
    return jnp.sum(loss) / (100 * p.n) + 100 * square_sum(jnp.maximum(jnp.abs(z / 100) - 5, 0))


def _gallagher(p: Point) -> Array:
    """10 - max_i w_i exp(-q_i) = -10 expm1(max_i(log(w_i / 10) - q_i)): one exponential, exact at the best peak."""
    centre, diagonal, height = cast(Peaks, p.peaks)  # `value` refuses a point without
    # Relative to the first peak, the optimum: there all digits count. The rotated distances between peaks do not
    # depend on x, so that a batch forms them once.
    between = matmul(centre - centre[0], p.R.T)
    z = matmul(p.R, p.x - centre[0]) - between
    q = jnp.sum(diagonal * z * z, axis=1) / (2 * p.n)
    depth = -10 * jnp.expm1(jnp.max(jnp.log(height / 10) - q))
    return jnp.square(_oscillate(depth)) + p.penalty


def _katsuura(p: Point) -> Array:
    z = _rotate_twice(p, 100)
    # |2^j z - round(2^j z)| / 2^j for j = 1..32 by folding: the next is the smaller of the last and 2^-j minus it,
    # exactly, in any precision.
    fold = jnp.abs(z - jnp.round(2 * z) / 2)
    total = fold
    for j in range(2, 33):
        fold = jnp.minimum(fold, 2.0**-j - fold)
        total = total + fold
    exponent = 10 * p.n**-1.2 * jnp.sum(jnp.log1p(p.rank * total))
    return 10 / p.n**2 * jnp.expm1(exponent) + p.penalty


def _lunacek(p: Point) -> Array:
    z = 2 * jnp.sign(p.x_opt) * p.offset  # from the centre of the first funnel, 2.5
    s = 1 - 1 / (2 * jnp.sqrt(p.n + 20) - 8.2)
    second = jnp.where(p.mask, z + 2.5 + jnp.sqrt((2.5**2 - 1) / s), 0)
    funnels = jnp.minimum(square_sum(z), p.n + s * square_sum(second))
    waves = _rastrigin_waves(matmul(matmul(p.Q, p.scaling(100)[:, None] * p.R), z))
    return funnels + waves + 1e4 * p.penalty


_FUNCTIONS = (
    _sphere,
    _ellipsoidal,
    _rastrigin,
    _bueche_rastrigin,
    _linear_slope,
    _attractive_sector,
    _step_ellipsoidal,
    _rosenbrock,
    _rosenbrock_rotated,
    _ellipsoidal_rotated,
    _discus,
    _bent_cigar,
    _sharp_ridge,
    _different_powers,
    _rastrigin_rotated,
    _weierstrass,
    _schaffers_f7,
    _schaffers_f7_ill_conditioned,
    _griewank_rosenbrock,
    _schwefel,
    _gallagher,
    _gallagher,
    _katsuura,
    _lunacek,
)
