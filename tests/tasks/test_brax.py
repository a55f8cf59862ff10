"""Robots: what counts of an episode, by hand-made simulators; the real ones where brax is installed."""

import base64
import importlib.util
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lqd
from lqd import cli, tasks
from lqd.cli import run
from lqd.errors import InvalidInput
from lqd.report import robots_page
from lqd.tasks import brax as robots
from lqd.types import pytree

has_brax = importlib.util.find_spec("brax") is not None
needs_brax = pytest.mark.skipif(not has_brax, reason="needs brax: pip install 'lqd[brax]'")


@pytree
class State:
    """Of a simulator in which everything is known beforehand."""

    obs: jax.Array
    reward: jax.Array
    done: jax.Array
    number: jax.Array
    end: jax.Array


class Simulator:
    """Step i gives reward 10 + i; the foot touches at every second step; episode `k` is done after step k, for ever."""

    action_size = 1

    def reset(self, key):
        end = jax.random.key_data(key)[-1].astype(jnp.float32)
        return State(jnp.zeros(2), jnp.float32(0), jnp.float32(0), jnp.float32(0), end)

    def step(self, state, action):
        number = state.number + 1
        # Beyond its end a real simulator may give anything.
        reward = jnp.where(number > state.end, jnp.nan, 10 + number)
        return State(state.obs, reward, (number >= state.end).astype(jnp.float32), number, state.end)


def episode(ends, length):
    size = 2 * robots.HIDDEN + robots.HIDDEN + robots.HIDDEN + 1
    keys = jax.random.wrap_key_data(jnp.stack([jnp.array([0, end], jnp.uint32) for end in ends]))
    describe = lambda state: jnp.stack([state.number % 2, jnp.where(state.number > state.end, jnp.nan, state.number)])  # noqa: E731
    return robots.rollout(Simulator(), describe, keys, jnp.zeros((len(ends), size)), length)


def test_nothing_after_the_first_done_counts():
    fitness, descriptor, num_steps = episode([3, 4, 100], 6)
    np.testing.assert_array_equal(num_steps, [3, 4, 6])
    np.testing.assert_allclose(fitness, [11 + 12 + 13, 11 + 12 + 13 + 14, sum(range(11, 17))])
    np.testing.assert_allclose(descriptor[:, 0], [2 / 3, 0.5, 0.5])  # every second step
    np.testing.assert_allclose(descriptor[:, 1], [2.0, 2.5, 3.5])


def test_the_length_of_the_episode_is_the_end():
    fitness, *_ = episode([100], 1)
    np.testing.assert_allclose(fitness, [11])


def test_it_stops_when_all_are_done():
    """An episode of a billion steps takes no time if everybody falls at the third."""
    fitness, *_ = episode([3, 2], 10**9)
    np.testing.assert_allclose(fitness, [36, 23])


def test_contacts_are_of_the_links_that_touch():
    contact = types.SimpleNamespace(
        dist=jnp.array([0.1, -0.01, 0.0, -1.0]), link_idx=(jnp.array([-1, -1, 6, -1]), jnp.array([3, 3, -1, 5]))
    )
    np.testing.assert_array_equal(robots.contacts(contact, (3, 6, 5, 2)), [1, 1, 1, 0])


def test_the_policy_by_hand():
    rng = np.random.default_rng(0)
    first, bias, second, last = (0.3 * rng.normal(size=shape) for shape in ((2, 16), (16,), (16, 3), (3,)))
    x = np.concatenate([first.ravel(), bias, second.ravel(), last]).astype(np.float32)
    observation = np.array([0.5, -2.0], np.float32)
    expected = np.clip(np.tanh(observation @ first + bias) @ second + last, -1, 1)
    np.testing.assert_allclose(robots.act(jnp.asarray(x), jnp.asarray(observation), 3), expected, rtol=1e-5)


def test_robots_are_listed_and_bad_settings_are_said():
    assert {f"brax/{name}" for name in robots.ROBOTS} <= set(tasks.names())
    assert "contact" in tasks.summary("brax/walker2d")
    with pytest.raises(InvalidInput, match=r"task.*'brax/hoper'.*brax/hopper"):
        tasks.make("brax/hoper")
    with pytest.raises(InvalidInput, match=r"no setting 'dim'; it takes episode_length"):
        tasks.make("brax/hopper", dim=3)
    with pytest.raises(InvalidInput, match=r"episode_length must be"):
        tasks.make("brax/hopper", episode_length=0)
    with pytest.raises(InvalidInput, match=r"backend.*'springs'.*spring"):
        tasks.make("brax/hopper", backend="springs")
    with pytest.raises(InvalidInput, match=r"episode-length is for robots"):
        run.make_task(cli.parse(["run", "--task", "arm", "--episode-length", "3"]))
    with pytest.raises(InvalidInput, match=r"--noise is for function tasks; 'brax/hopper'"):
        run.make_task(cli.parse(["run", "--task", "brax/hopper", "--noise"]))


@pytest.mark.skipif(has_brax, reason="brax is installed")
def test_without_brax_it_says_what_to_install():
    with pytest.raises(InvalidInput, match=r"pip install 'lqd\[brax\]'"):
        tasks.make("brax/hopper")


@needs_brax
@pytest.mark.parametrize(
    ("name", "dim"),
    [("hopper", 243), ("walker2d", 390), ("halfcheetah", 390), ("ant-velocity", 584), ("ant-feet", 584)],
)
def test_genotypes_are_the_papers(name, dim):
    task = tasks.make(f"brax/{name}")
    assert task.dim == dim
    assert task.descriptor_dim == len(task.descriptor_names) == 2
    low, high = task.descriptor_bounds
    assert ((high - low) > 0).all()
    names = task.simulator.sys.link_names
    feet = [names[link] for link in robots.ROBOTS[name].feet]
    assert all("foot" in foot or name.startswith("ant") for foot in feet)


@needs_brax
def test_the_whole_path(tmp_path, capsys):
    """A run, what it found, and pages to watch it; chunks change nothing but the last bits."""
    out = tmp_path / "run"
    command = ["run", "--task", "brax/hopper", "--rule", "lqd-f", "--num-evaluations", "24", "--episode-length", "12"]
    cli.main(
        [*command, "--population-size", "8", "--batch-size", "8", "--archive-cells", "8", "--out", str(out), "--quiet"]
    )
    result = lqd.Result.load(out / "result_0.safetensors")
    assert np.isfinite(result.fitness).all()
    assert ((result.descriptor[:, 0] >= 0) & (result.descriptor[:, 0] <= 1)).all()
    cli.main(["show", str(out), "--num", "2"])
    assert "index.html" in capsys.readouterr().out
    assert len(list((out / "show").glob("policy_*.html"))) == 2
    assert "brax/hopper, rule lqd-f" in (out / "show" / "index.html").read_text()
    task = tasks.make("brax/hopper", episode_length=12)
    chunked = tasks.make("brax/hopper", episode_length=12, chunk_size=3)
    x, keys, evaluate = jnp.asarray(result.x), jax.random.split(jax.random.key(0)), jax.jit(task.evaluate)
    parts = jax.jit(jax.vmap(chunked.evaluate, in_axes=(0, None)))(keys, x)
    for i, key in enumerate(keys):
        whole = evaluate(key, x)
        np.testing.assert_allclose(parts.fitness[i], whole.fitness, rtol=1e-3)
        np.testing.assert_allclose(parts.descriptor[i], whole.descriptor, rtol=1e-3, atol=1e-3)
    assert len(robots_page.different(result.population, task, 3)) <= 3


@needs_brax
def test_what_is_shown_is_what_was_measured():
    """The same episode; a foot that is shown as touching is on the ground."""
    task = tasks.make("brax/hopper", episode_length=30)
    x = 0.25 * jax.random.normal(jax.random.key(2), (1, task.dim))
    keys = jax.random.key(0)[None]
    _, descriptor, num_steps = jax.jit(task.measured)(keys, x)
    (episode,) = robots_page.episodes(task, np.asarray(x))
    assert len(episode.touching) == int(num_steps[0]) + 1
    (foot,) = robots.ROBOTS["hopper"].feet
    np.testing.assert_allclose(episode.touching[1:, foot].mean(), descriptor[0, 0], rtol=1e-5)
    shown = robots_page.movement(task, episode, "")
    num, parts = len(shown["times"]), len(shown["radius"])
    points = np.frombuffer(base64.b64decode(shown["points"]), "<f4").reshape(num, parts, 2, 3)
    root = np.frombuffer(base64.b64decode(shown["root"]), "<f4").reshape(num, 1, 1, 3)
    touching = np.frombuffer(base64.b64decode(shown["touching"]), np.uint8).reshape(num, parts)
    lowest = (points + root)[:, -1, :, 2].min(axis=1) - shown["radius"][-1]
    assert touching[:, -1].any()
    assert shown["part"] == [0, 1, 1, 1]
    assert (np.abs(lowest[touching[:, -1] > 0]) < 0.03).all()
    assert (lowest[touching[:, -1] == 0] > -0.001).all()


def test_show_is_for_robots(tmp_path):
    with pytest.raises(InvalidInput, match=r"no manifest.json"):
        robots_page.write(tmp_path)
    (tmp_path / "manifest.json").write_text('{"config": {"task": "arm", "seed": 0}}')
    with pytest.raises(InvalidInput, match=r"'arm', and there is nothing to watch"):
        robots_page.write(tmp_path)
