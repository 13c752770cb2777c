"""JAX: arrays that cannot be filled, keys, and optimizer states made of namedtuples."""

import child
import disk
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pitstop
import pytest
from safetensors import safe_open
from same import assert_same

pytestmark = pytest.mark.frameworks

DTYPES = [
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "bfloat16", "float32"),
    *("complex64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
]


def assert_same_array(expected, actual, where="array"):
    assert isinstance(actual, jax.Array), f"{where}: a JAX array came back as {type(actual)}"
    assert actual.dtype == expected.dtype, where
    assert actual.shape == expected.shape, where
    assert actual.weak_type == expected.weak_type or not actual.weak_type, where
    assert np.asarray(actual).tobytes() == np.asarray(expected).tobytes(), f"{where}: bits differ"


def assert_same_tree(expected, actual):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for (path, left), right in zip(jax.tree.leaves_with_path(expected), jax.tree.leaves(actual), strict=True):
        assert_same_array(left, right, jax.tree_util.keystr(path))


def values_of(name):
    dtype = jnp.dtype(name)
    data = np.random.default_rng(1).integers(0, 256, 24 * dtype.itemsize, dtype=np.uint8)
    return jnp.asarray((data & 1).astype(bool) if name == "bool" else data.view(dtype))


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype(round_trip, name):
    values = values_of(name)
    state = {"flat": values, "matrix": values.reshape(2, 3, 4), "scalar": values[0], "empty": values[:0]}
    assert_same_tree(state, round_trip(state))


def test_double_precision(round_trip):
    with jax.enable_x64(True):
        state = {name: jnp.arange(6).astype(name) for name in ("float64", "int64", "uint64", "complex128")}
        assert_same_tree(state, round_trip(state))


def test_bfloat16_opens_in_safetensors_as_itself(tmp_path):
    pitstop.save(tmp_path / "c", {"params": {"dense": {"kernel": values_of("bfloat16").reshape(4, 6)}}})
    with safe_open(tmp_path / "c" / "params.safetensors", "flax") as file:
        assert list(file.keys()) == ["dense.kernel"]
        assert_same_array(values_of("bfloat16").reshape(4, 6), file.get_tensor("dense.kernel"))


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"])
def test_numpy_arrays_of_extended_dtypes(round_trip, name):
    dtype = np.dtype(getattr(ml_dtypes, name))
    state = {"w": np.arange(256, dtype=np.uint8).view(dtype), "scalar": np.array([1, 2]).astype(dtype)[1]}
    assert_same(state, round_trip(state))


def test_a_structure_with_a_field_of_an_extended_dtype_is_refused(checkpointer):
    """The field came back as bare bytes."""
    dtype = np.dtype([("a", "i4"), ("b", ml_dtypes.bfloat16)])
    for value in (dtype, np.zeros(2, dtype), np.zeros(2, dtype)[0]):
        with pytest.raises(pitstop.UnsupportedTypeError, match=r'state\["value"\].*written down'):
            checkpointer.save(1, {"value": value})


@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg"])
def test_typed_keys(round_trip, shape, implementation):
    key = jax.random.key(7, impl=implementation)
    keys = jax.random.split(key, 3) if shape else key
    back = round_trip({"key": keys})["key"]
    assert back.dtype == keys.dtype
    assert back.shape == keys.shape
    first, again = (one.reshape(-1)[0] for one in (keys, back))
    assert (jax.random.normal(first, (5,)) == jax.random.normal(again, (5,))).all()


def test_raw_keys(round_trip):
    assert_same_tree({"key": jax.random.PRNGKey(3)}, round_trip({"key": jax.random.PRNGKey(3)}))


PARAMS = {"dense": {"kernel": jnp.arange(12.0).reshape(3, 4), "bias": jnp.zeros(4, jnp.bfloat16)}}
OPTIMIZERS = {
    "adamw": optax.adamw(1e-2),
    "sgd": optax.sgd(1e-2, momentum=0.9),
    "clipped and scheduled": optax.chain(
        optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(0.1, 100))
    ),
    "multi_steps": optax.MultiSteps(optax.adam(1e-2), 2),
    "injected": optax.inject_hyperparams(optax.sgd)(learning_rate=0.1),
}


def trained(optimizer, params, state, steps):
    for step in range(steps):
        gradients = jax.tree.map(lambda one, step=step: one * 0.1 + step, params)
        updates, state = optimizer.update(gradients, state, params)
        params = optax.apply_updates(params, updates)
    return params, state


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_states_come_back_as_themselves_with_like(round_trip, name):
    optimizer = OPTIMIZERS[name]
    params, state = trained(optimizer, PARAMS, optimizer.init(PARAMS), 3)
    like = {"params": PARAMS, "optimizer": optimizer.init(PARAMS)}
    back = round_trip({"params": params, "optimizer": state}, like=like)
    assert_same_tree({"params": params, "optimizer": state}, back)
    straight = trained(optimizer, params, state, 3)
    resumed = trained(optimizer, back["params"], back["optimizer"], 3)
    assert_same_tree(straight, resumed)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_resumed_run_continues_bit_identically(run, name):
    optimizer = OPTIMIZERS[name]
    straight = trained(optimizer, PARAMS, optimizer.init(PARAMS), 6)
    params, state = trained(optimizer, PARAMS, optimizer.init(PARAMS), 3)
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(3, {"params": params, "optimizer": state, "key": jax.random.key(1)})
    fresh = {"params": PARAMS, "optimizer": optimizer.init(PARAMS), "key": jax.random.key(0)}
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        assert checkpointer.resume(into=fresh) == 3
    assert (jax.random.key_data(fresh["key"]) == jax.random.key_data(jax.random.key(1))).all()
    params, state = fresh["params"], fresh["optimizer"]
    for step in range(3):  # the gradients of `trained` start at 0, so continue by its second half
        gradients = jax.tree.map(lambda one, step=step + 3: one * 0.1 + step, params)
        updates, state = optimizer.update(gradients, state, params)
        params = optax.apply_updates(params, updates)
    assert_same_tree(straight, (params, state))


def test_without_like_a_namedtuple_is_an_equal_one(round_trip):
    state = optax.adam(1e-2).init({"w": jnp.ones(3)})
    back = round_trip({"optimizer": state})["optimizer"]
    assert back[0]._fields == state[0]._fields
    assert_same_array(state[0].mu["w"], back[0].mu["w"])


def test_into_replaces_arrays_that_cannot_be_filled(tmp_path):
    pitstop.save(tmp_path / "c", {"params": {"w": jnp.ones(3)}, "step": 4})
    state = {"params": {"w": jnp.zeros(3)}, "step": 0}
    params = state["params"]
    pitstop.restore(tmp_path / "c", into=state)
    assert state["params"] is params
    assert_same_array(jnp.ones(3), params["w"])
    assert state["step"] == 4


def test_into_replaces_one_array_in_two_places_by_two(tmp_path):
    pitstop.save(tmp_path / "c", {"params": jnp.ones(3), "target": jnp.zeros(3)})
    array = jnp.full(3, 7.0)
    state = {"params": array, "target": array}
    pitstop.restore(tmp_path / "c", into=state)
    assert_same_array(jnp.ones(3), state["params"])
    assert_same_array(jnp.zeros(3), state["target"])


def test_a_mismatch_of_shape_or_dtype_is_named(tmp_path):
    pitstop.save(tmp_path / "c", {"params": {"first": jnp.ones(3), "second": jnp.ones(3)}})
    state = {"params": {"first": jnp.zeros(4), "second": jnp.zeros(3, jnp.bfloat16)}}
    with pytest.raises(pitstop.StateMismatchError, match=r"(?s)first.*second"):
        pitstop.restore(tmp_path / "c", into=state)
    assert (state["params"]["first"] == 0).all()


SIZE = 4 << 20  # elements: 16 MiB
DEFERRED = pytest.mark.parametrize("deferred", [None, True], ids=["copied", "deferred"])


@DEFERRED
def test_an_array_deleted_right_after_save_is_saved(checkpointer, deferred):
    """Its memory must stay alive until it is copied."""
    for step in range(1, 6):
        array = jnp.full(SIZE, step, jnp.float32)
        array.block_until_ready()
        checkpointer.save(step, {"w": array}, deferred=deferred)
        array.delete()
        jnp.full(SIZE, -1, jnp.float32).block_until_ready()  # likely to get the memory just freed
    for step in range(1, 6):
        assert (np.asarray(checkpointer.restore(step)["w"]) == step).all()


@DEFERRED
def test_a_donated_array_is_saved_as_it_was(checkpointer, deferred):
    """A jitted step that donates its input writes its result into the very memory being saved."""
    update = jax.jit(lambda array: array * -1.0, donate_argnums=0)
    array = jnp.full(SIZE, 1.0, jnp.float32)
    for step in range(1, 6):
        array = update(array) + step
        array.block_until_ready()
        expected = float(array[0])
        handle = checkpointer.save(step, {"w": array}, deferred=deferred)
        array = update(array)
        array.block_until_ready()
        assert handle.step == step
        back = np.asarray(checkpointer.restore(step)["w"])
        assert (back == expected).all()


def test_a_dropped_array_is_saved(checkpointer):
    checkpointer.save(1, {"w": jnp.full(SIZE, 3.0)})
    jnp.full(SIZE, -1.0).block_until_ready()
    assert (np.asarray(checkpointer.restore(1)["w"]) == 3.0).all()


def test_an_array_still_being_computed_is_saved_when_it_is_there(checkpointer):
    pending = jax.jit(lambda x: jnp.linalg.matrix_power(x, 8))(jnp.eye(400) * 1.5)
    checkpointer.save(1, {"w": pending})
    assert_same_array(pending, checkpointer.restore(1)["w"])


def aligned(count):
    """Floats that JAX takes as they lie: from a multiple of 64 bytes on."""
    room = np.empty(4 * count + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + 4 * count].view(np.float32)


@pytest.mark.parametrize("share", [jax.device_put, jnp.from_dlpack], ids=["device_put", "from_dlpack"])
def test_an_array_on_memory_that_numpy_changes_right_after_save_is_saved_as_it_was(checkpointer, share):
    """It was borrowed as something that nobody can change: later values were saved, or damage."""
    memory = aligned(SIZE)
    memory[:] = 1
    array = share(memory).block_until_ready()
    assert np.may_share_memory(np.asarray(array), memory)
    checkpointer.save(1, {"w": array})
    memory[:] = 2
    assert (np.asarray(checkpointer.restore(1)["w"]) == 1).all()


def test_framework_chooses_what_arrays_become(tmp_path):
    pitstop.save(tmp_path / "c", {"jax": jnp.arange(3), "numpy": np.arange(3, dtype=np.float32), "n": 1})
    as_it_was = pitstop.restore(tmp_path / "c")
    assert isinstance(as_it_was["jax"], jax.Array)
    assert isinstance(as_it_was["numpy"], np.ndarray)
    as_numpy = pitstop.restore(tmp_path / "c", framework="numpy")
    assert_same(np.arange(3, dtype=np.int32), as_numpy["jax"])
    as_jax = pitstop.restore(tmp_path / "c", framework="jax")
    assert_same_array(jnp.arange(3, dtype=jnp.float32), as_jax["numpy"])
    assert [back["n"] for back in (as_it_was, as_numpy, as_jax)] == [1, 1, 1]


def test_a_jax_checkpoint_is_read_as_numpy_without_jax(tmp_path):
    pitstop.save(tmp_path / "c", {"w": jnp.arange(3.0)})
    output = child.run(
        """
        import sys, pitstop
        back = pitstop.restore(sys.argv[1], framework="numpy")
        print(type(back["w"]).__name__, back["w"].tolist(), "jax" in sys.modules)
        """,
        tmp_path / "c",
    )
    assert output.strip() == "ndarray [0.0, 1.0, 2.0] False"


def test_the_same_array_twice_is_stored_once(tmp_path):
    array = jnp.ones(1 << 16)
    pitstop.save(tmp_path / "c", {"a": array, "b": {"c": array}})
    assert sum(file.stat().st_size for file in disk.files(tmp_path / "c")) < 1.5 * array.nbytes
    back = pitstop.restore(tmp_path / "c")
    assert_same_array(array, back["a"])
    assert_same_array(array, back["b"]["c"])


SHARDED = """
    import os, sys
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    import jax, jax.numpy as jnp, pitstop
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(jax.devices(), "x")
    array = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, PartitionSpec("x")))
    try:
        pitstop.save(sys.argv[1], {"params": {"w": array}})
    except pitstop.UnsupportedTypeError as error:
        print("refused", 'state["params"]["w"]' in str(error))
    else:
        print("right", (pitstop.restore(sys.argv[1])["params"]["w"] == jnp.arange(8.0)).all())
"""


def test_a_sharded_array_is_refused_by_its_path_or_comes_back_right(tmp_path):
    assert child.run(SHARDED, tmp_path / "c").strip() in ("refused True", "right True")


def test_a_deleted_array_is_refused_before_anything_is_written(tmp_path):
    array = jnp.ones(3)
    array.delete()
    with pytest.raises((RuntimeError, ValueError, pitstop.CheckpointError)):
        pitstop.save(tmp_path / "c", {"w": array})
    assert list(tmp_path.iterdir()) == []


def test_a_dict_in_two_places_that_were_saved_apart_becomes_two(tmp_path):
    # `params` and `ema` start as one dict; both got the last value, in silence.
    def new():
        params = {"w": jnp.zeros(2)}
        return {"params": params, "ema": params}

    with pitstop.AsyncCheckpointer(tmp_path / "run") as checkpointer:
        checkpointer.save(1, {"params": {"w": jnp.ones(2)}, "ema": {"w": jnp.full(2, 3.0)}})
        checkpointer.wait()
        state = new()
        assert checkpointer.resume(into=state) == 1
    assert state["params"]["w"].tolist() == [1, 1]
    assert state["ema"]["w"].tolist() == [3, 3]


def test_an_optimizer_state_by_itself_is_not_filled_in_part(tmp_path):
    optimizer = optax.adam(0.1)
    with pitstop.AsyncCheckpointer(tmp_path / "run") as checkpointer:
        checkpointer.save(1, optimizer.init({"w": jnp.ones(2)}))
        with pytest.raises(TypeError, match="put it into a dict"):
            checkpointer.resume(into=optimizer.init({"w": jnp.ones(2)}))
