"""CuPy on the device of its arguments, numbers that do not change a dtype, and results across host and device."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from fuzz import small, table
from support.libraries import assert_close, identity_rtol, open_library

import hgp_ref as hgp
from hgp_ref import backend
from hgp_ref.mixing import WeightRule
from hgp_ref.problems import LogisticRegression, Quadratic

pytestmark = pytest.mark.cupy

NET = hgp.networks.RandomDirected(4, seed=1)
P = Quadratic.random(4, 3, 2, seed=1)
X, LAM = np.full((4, 3), 0.5), np.full((4, 2), 0.3)
PROBLEMS = {"quadratic": small.quadratic, "logistic": small.logistic, "weights": small.weights, "mask": small.mask}


@pytest.fixture
def lib():
    return open_library("cupy")


@pytest.fixture
def cupy(lib):
    return pytest.importorskip("cupy")


@pytest.fixture
def elsewhere(cupy):
    """A device that is not CuPy's current one."""
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs: RIG_DEVICES=2 on the rig")
    return cupy.cuda.Device(1 - cupy.cuda.Device().id)


def estimate(problem, x, lam, **options):
    return hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 3), eta=0.3, iterations=5, **options)


# The device of the arguments ------------------------------------------------------------------------------------------


def devices(value, depth=3) -> set:
    """The devices of all arrays in a result."""
    if backend.compat.is_cupy_array(value):
        return {value.device.id}
    if depth == 0 or isinstance(value, np.ndarray | str):
        return set()
    if isinstance(value, list | tuple):
        parts = list(value)
    elif isinstance(value, dict):
        parts = list(value.values())
    else:
        parts = list(getattr(value, "__dict__", {}).values())
    return set().union(*(devices(part, depth - 1) for part in parts))


def moved(arguments: dict) -> dict:
    """Floating-point arrays and problems among the arguments on CuPy's current device."""
    there = {}
    for name, value in arguments.items():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            value = backend.get_backend("cupy").asarray(value)
        elif hasattr(value, "to") and hasattr(value, "n_clients"):
            value = value.to("cupy")
        there[name] = value
    return there


@pytest.mark.filterwarnings("ignore")  # of unmet tolerances: the runs are short
def test_every_public_function_computes_on_the_device_of_its_arguments(elsewhere):
    """As inside `with device:`, where the current device is that of the arguments."""
    compared, wrong = 0, []
    for name, target in table.full().items():
        good = target.good()
        if not any(isinstance(value, np.ndarray) or hasattr(value, "to") for value in good.values()):
            continue
        with elsewhere:
            arguments = moved(good)
            try:
                expected = devices(target.function(dict(arguments)))
            except (TypeError, ValueError, AttributeError):  # a function for arrays on the host
                continue
        try:
            found = devices(target.function(dict(arguments)))
        except Exception as error:  # whatever CuPy raises is the result of this function
            found = error
        compared += 1
        if found != expected:
            wrong.append((name, expected, found))
    assert not wrong
    assert compared > 60


@pytest.mark.parametrize("kind", PROBLEMS)
def test_methods_of_problems_compute_on_the_device_of_x(elsewhere, kind):
    host = PROBLEMS[kind]()
    with elsewhere:
        problem, (x, lam) = host.to("cupy"), moved(small.point(host)).values()
    results = [problem.inner_cost(x, lam), problem.inner_grad(x, lam), problem.outer_cost(x, lam)]
    results += problem.outer_grad(x, lam)
    assert {a.device.id for a in results} == {elsewhere.id}


def test_values_do_not_depend_on_the_current_device(elsewhere):
    with elsewhere:
        given = moved({"problem": P, "x": X, "lam": LAM})
    assert_close(backend.to_host(estimate(**given).value), estimate(P, X, LAM).value, identity_rtol("float64"))


@pytest.mark.parametrize("mode", ["stepping", "composed"])
def test_unreliable_links_are_drawn_on_the_device_of_the_vectors(elsewhere, mode):
    net = hgp.networks.Unreliable(NET, loss=0.2, delay=2, sleep=[(1, 2, 3)], seed=1)
    u = np.arange(8.0).reshape(4, 2)
    with elsewhere:
        there = moved({"u": u})["u"]
    average = hgp.RobustPushSum(net, 6, mode=mode).apply(there)
    assert average.device.id == elsewhere.id
    assert_close(backend.to_host(average), hgp.RobustPushSum(net, 6, mode=mode).apply(u), identity_rtol("float64"))


@pytest.mark.parametrize(
    "rule", [hgp.mixing.WeightRule.RESET, hgp.mixing.WeightRule.CARRY], ids=lambda rule: rule.value
)
@pytest.mark.parametrize("mode", ["stepping", "composed"])
@pytest.mark.parametrize(
    "net",
    [
        hgp.networks.RandomOut(40, 3, seed=1),
        hgp.networks.RandomDirected(40, seed=1),
        hgp.networks.OnePeerExponential(40),
        hgp.networks.Thinned(hgp.networks.RandomOut(40, 3, seed=1)),
        hgp.networks.Unreliable(hgp.networks.RandomOut(40, 3, seed=1), loss=0.2, delay=2, seed=2),
    ],
    ids=lambda net: type(net).__name__,
)
def test_a_channel_computes_on_the_device_of_each_vector(elsewhere, net, mode, rule):
    """Whichever device is current; graphs that are kept belong to the device of the vectors, too."""
    if isinstance(net, hgp.networks.Unreliable) and (mode, rule) == ("composed", WeightRule.CARRY):
        pytest.skip("such calls are refused")
    z = np.random.default_rng(0).standard_normal((40, 2))
    channel, host = (hgp.mixing.connect(net, mode) for _ in range(2))
    for each in (channel, host):
        each.use_running_sums()
    for there in (backend.get_backend("cupy").asarray(z), moved_to(elsewhere, {"z": z})["z"]):
        for _ in range(3):
            mixed, expected = channel.average(there, 3, rule), host.average(z, 3, rule)
            assert mixed.device == channel.weights.device == there.device
            assert_close(backend.to_host(mixed), expected, identity_rtol("float64"))
            np.testing.assert_allclose(channel.omega, host.omega, rtol=identity_rtol("float64"))
        assert channel.traffic == host.traffic
        for each in (channel, host):
            each.drop_in_flight()


def test_devices_by_number(elsewhere):
    k = elsewhere.id
    for name in (k, np.int32(k), str(k), f"cuda:{k}", elsewhere):
        assert backend.get_backend("cupy", name).asarray(np.ones(2)).device == elsewhere
        assert P.to("cupy", device=name)._like().device == elsewhere
    scaled = hgp.problems.LogRates(small.logistic())
    assert (
        scaled.to("cupy", device=k).inner_grad(*moved_to(elsewhere, small.point(scaled)).values()).device == elsewhere
    )


def moved_to(device, arguments: dict) -> dict:
    with device:
        return moved(arguments)


@pytest.mark.parametrize("name", [-1, 99, "cuda:99", "cpu", 1.5, True])
def test_devices_that_do_not_exist_are_refused(lib, name):
    with pytest.raises(ValueError, match="device must be a device of cupy, got"):
        backend.get_backend("cupy", name)
    with pytest.raises(ValueError, match="device must be a device of cupy, got"):
        P.to("cupy", device=name)


# Numbers and types ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["momentum", "weight_decay"])
@pytest.mark.parametrize("number", [np.float64(0.25), Fraction(1, 4), np.float32(0.25)], ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("name", ["numpy", "cupy"])
def test_numbers_of_other_types_do_not_change_the_dtype(name, option, number):
    library = open_library(name)
    lam = library.asarray(LAM, "float32")
    problem = P.to(lam, dtype="float32")
    method = hgp.training.SGP(steps=3, lr=0.1, **{option: number})
    same = hgp.training.SGP(steps=3, lr=0.1, **{option: 0.25})
    found, expected = (library.to_numpy(hgp.train(problem, lam, NET, m).x) for m in (method, same))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("batch", [np.array([["a"]] * 4), np.array([[None]] * 4), np.full((4, 1), 1.5)], ids=str)
@pytest.mark.parametrize("function", [hgp.exact.hessians, hgp.exact.jacobians])
def test_batches_of_other_types_are_named(lib, function, batch):
    with pytest.raises(TypeError, match="batch must hold integers"):
        function(P.to("cupy", device=lib.device), lib.asarray(X), lib.asarray(LAM), batch=batch)


@pytest.mark.parametrize(
    "a", [np.ones(3, np.longdouble), np.array(["a"]), np.array([None])], ids=lambda a: str(a.dtype)
)
def test_dtypes_that_cupy_lacks_are_named(lib, a):
    message = f"a must have a dtype that cupy supports, got {a.dtype}"
    with pytest.raises(TypeError, match=message):
        backend.from_host(a, like=lib.asarray(X))
    with pytest.raises(TypeError, match=message):
        backend.get_backend("cupy").asarray(a)


# Results across host and device ---------------------------------------------------------------------------------------


def place(library):
    return P.to(library.asarray(X)), library.asarray(X), library.asarray(LAM)


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize(("first", "second"), [("numpy", "cupy"), ("cupy", "numpy"), ("cupy", "cupy")])
def test_runs_continue_across_host_and_device(first, second, saved, tmp_path):
    one, other = open_library(first), open_library(second)
    earlier = estimate(*place(one))
    if saved:
        earlier.save(tmp_path / "estimate.npz")
        earlier = hgp.load(tmp_path / "estimate.npz")
    after = hgp.PushSum(NET.after(15), 3)
    problem, x, lam = place(other)
    options = {"eta": 0.3, "iterations": 5}
    continued = hgp.hypergradient(problem, x, lam, after, resume=earlier, **options)
    whole = hgp.hypergradient(P, X, LAM, hgp.PushSum(NET, 3), eta=0.3, iterations=10)
    assert_close(other.to_numpy(continued.value), whole.value, identity_rtol("float64"))
    started = hgp.hypergradient(problem, x, lam, after, w0=earlier.w, **options)
    assert backend.array_namespace(started.w) is other.xp


def test_mixed_libraries_say_what_to_do(lib):
    with pytest.raises(TypeError, match=r"mixed array libraries: .*; move one with hgp.backend.from_host"):
        estimate(P, X, lib.asarray(LAM))


@pytest.mark.parametrize("name", ["w0", "resume"])
def test_an_earlier_run_in_another_dtype_is_refused_for_its_dtype(lib, name):
    earlier = estimate(P, X, LAM)
    problem = P.to("cupy", "float32", device=lib.device)
    x, lam = (lib.asarray(a.astype("float32")) for a in (X, LAM))
    part = "w0" if name == "w0" else "resume.w"
    with pytest.raises(TypeError, match=f"mixed dtypes: x is float32, {part} is float64"):
        estimate(problem, x, lam, **{name: earlier.w if name == "w0" else earlier})


@pytest.mark.parametrize(
    "call",
    [
        lambda problem, lam: hgp.sgp(problem, lam, NET, steps=3, lr=0.1),
        lambda problem, lam: hgp.train(problem, lam, NET, hgp.training.NewtonTracking(3)),
        lambda problem, lam: hgp.exact.inner_solution(problem, lam),
        lambda problem, lam: hgp.bilevel.optimise(problem, lam, NET),
    ],
    ids=["sgp", "train", "inner_solution", "optimise"],
)
def test_lam_of_another_library_or_dtype_is_named(lib, call):
    problem = P.to("cupy", device=lib.device)
    with pytest.raises(TypeError, match=r"lam must be a cupy.ndarray as the problem's data, got numpy.ndarray"):
        call(problem, LAM)
    with pytest.raises(TypeError, match="lam must have the problem's dtype float64, got float32"):
        call(problem, lib.asarray(LAM.astype("float32")))


# What is copied and sent ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs", [(), (2,)], ids=["one run", "two runs"])
def test_products_do_not_copy_the_features(lib, counted, runs):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((3, 8, 30)), rng.integers(0, 2, (3, 8)).astype(float)
    problem, x = LogisticRegression(X, y, X, y).to("cupy", device=lib.device), lib.asarray(np.ones((3, 30)))
    u = lib.asarray(rng.standard_normal((*runs, 3, 30)))
    linearization = problem.linearize(x, x)
    linearization.hvp(u)
    counted.reset()
    linearization.hvp(u)
    problem.inner_grad(x, x)
    copies = {name: number for name, number in counted.kernels.items() if "copy" in name}
    assert sum(copies.values()) <= 3 * len(runs), copies  # of vectors, where runs are columns of one product
    assert bool(runs) or not copies


def test_certificates_make_unit_vectors_on_the_device(lib, counted):
    numbers = {}
    for d in (5, 50):
        host = Quadratic.random(4, d, 2, seed=1)
        problem, x, lam = host.to("cupy", device=lib.device), lib.asarray(np.ones((4, d))), lib.asarray(LAM)
        est = hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 3), eta=0.1, iterations=5)
        counted.reset()
        hgp.certify(problem, x, lam, est)
        numbers[d] = counted.to_device, counted.to_host
    for many, few in zip(numbers[50], numbers[5], strict=True):
        assert many <= few + 5  # iterations of some bounds, not one for each of 45 unit vectors more
