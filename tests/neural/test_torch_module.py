"""A torch.nn.Module as a problem: the same numbers as the neural problems, to 1e-10, and as the loop, to 1e-12."""

from __future__ import annotations

import numpy as np
import pytest
from support.libraries import assert_close

import hgp_ref as hgp
from hgp_ref.problems import Problem, as_problem, from_torch

from .problem_cases import CLASSES, COUNTS, VAL_COUNTS, instances, make, network
from .stacks import to_torch

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'hgp_ref[torch]'")


class Several(torch.nn.Module):
    """Outputs of several networks beside each other, (N, components, C)."""

    def __init__(self, *nets):
        super().__init__()
        self.nets = torch.nn.ModuleList(nets)

    def forward(self, X):
        return torch.stack([net(X) for net in self.nets], 1)


def cross_entropy(z, y):
    return torch.nn.functional.cross_entropy(z, y, reduction="none")


def mixed(z, y, lam):
    chances = (torch.softmax(lam, 0)[:, None] * torch.softmax(z, -1)).sum(1)
    return -torch.log(chances.gather(1, y[:, None]))[:, 0]


LOSSES = {
    "weights": lambda z, y, lam: lam[y[:, 1]] * cross_entropy(z, y[:, 0]),  # y: label and number of the instance
    "mask": lambda z, y, lam: cross_entropy(CLASSES * torch.softmax(lam, 0) * z, y),
    "mixture": mixed,
}


def decay(x, lam):
    return 0.05 * (x @ x)


def on_lam(x, lam):
    return 0.1 * (lam @ lam)


def parts(kind):
    """What the problem of `kind` is made of: module, loss, data of training and, for "weights", of validation."""
    rng, model = np.random.default_rng(0), network(smooth=False)
    (X, y), val = instances(rng, COUNTS), instances(rng, VAL_COUNTS)
    module = Several(to_torch(model), to_torch(model)) if kind == "mixture" else to_torch(model)
    if kind != "weights":
        return module, LOSSES[kind], X, y
    return module, LOSSES[kind], X, [np.stack([a, np.arange(len(a))], 1) for a in y], *val


def by_module(kind, **options):
    module, *arguments = parts(kind)
    lam = {"weights": max(COUNTS), "mask": CLASSES, "mixture": 2}[kind]
    if kind == "weights":
        options |= {"outer_loss": lambda z, y, lam: cross_entropy(z, y), "outer_penalty": None}
    return from_torch(module, *arguments, dim_lam=lam, penalty=decay, **{"outer_penalty": on_lam, **options})


def by_loop(problem, kind):
    """The same costs in the form with a loop over clients."""
    module, loss, X, y, *val = parts(kind)
    named = dict(module.named_parameters())

    def mean(loss, i, x, lam, X, y, rows):
        own = x.split([p.numel() for p in named.values()])
        at = {name: a.reshape(p.shape) for (name, p), a in zip(named.items(), own, strict=True)}
        Xi, yi = torch.from_numpy(X[i]), torch.from_numpy(y[i])
        Xi, yi = (Xi, yi) if rows is None else (Xi[rows], yi[rows])
        return loss(torch.func.functional_call(module, at, (Xi,)), yi, lam).mean()

    def inner(i, x, lam, rows):
        return mean(loss, i, x, lam, X, y, rows) + decay(x, lam)

    def outer(i, x, lam):
        if val:
            return mean(lambda z, y, lam: cross_entropy(z, y), i, x, lam, *val, None)
        return mean(loss, i, x, lam, X, y, None) + on_lam(x, lam)

    return from_torch(inner, outer, 3, problem.dim_x, problem.dim_lam, counts=COUNTS)


def everything(problem, x, lam, u, batch):
    lin = problem.linearize(x, lam, batch)
    return [problem.inner_cost(x, lam, batch), problem.inner_grad(x, lam, batch), problem.outer_cost(x, lam),
            *problem.outer_grad(x, lam), lin.hvp(u), lin.cross(u), *lin.products(u)]  # fmt: skip


def point(c, mini):
    return [torch.from_numpy(a) for a in (c.x, c.lam, c.u)] + [torch.from_numpy(c.batch) if mini else None]


@pytest.mark.parametrize("mini", [False, True], ids=["full", "mini"])
@pytest.mark.parametrize("kind", LOSSES)
def test_the_same_as_the_neural_problem_and_as_the_loop(kind, mini):
    c, problem = make(kind, smooth=False), by_module(kind)
    assert isinstance(problem, Problem) and problem.counts.tolist() == list(COUNTS)
    assert (problem.dim_x, problem.dim_lam) == (c.problem.dim_x, c.problem.dim_lam)
    ours = everything(problem, *point(c, mini))
    assert not any(a.requires_grad for a in ours)
    expected = everything(c.problem, c.x, c.lam, c.u, c.batch if mini else None)
    looped = everything(by_loop(problem, kind), *point(c, mini))
    for value, built_in, loop in zip(ours, expected, looped, strict=True):
        assert_close(value.numpy(), built_in, 1e-10)
        assert_close(value.numpy(), loop.numpy(), 1e-12)


@pytest.mark.parametrize("mini", [False, True], ids=["full", "mini"])
def test_chunks_and_restrictions_have_the_same_numbers(mini):
    c = make("weights", smooth=False)
    x, lam, u, batch = point(c, mini)
    whole = everything(by_module("weights"), x, lam, u, batch)
    for value, expected in zip(everything(by_module("weights", chunk=2), x, lam, u, batch), whole, strict=True):
        assert_close(value.numpy(), expected.numpy(), 1e-12)
    for which in ([2, 0], slice(1, None)):
        some = by_module("weights").restrict(which)
        numbers = np.arange(3)[which]
        assert some.clients.tolist() == numbers.tolist() and some.counts.tolist() == np.array(COUNTS)[which].tolist()
        own = [None if a is None else a[numbers] for a in (x, lam, u, batch)]
        for value, expected in zip(everything(some, *own), whole, strict=True):
            assert_close(value.numpy(), expected[numbers].numpy(), 1e-12)


def test_a_batch_without_an_instance_has_no_data_term():
    c, problem = make("mask", smooth=False), by_module("mask")
    x, lam, _, batch = point(c, True)
    batch[1] = -1
    assert_close(problem.inner_grad(x, lam, batch).numpy()[1], 0.1 * c.x[1], 1e-12)


def test_padding_brings_no_nan():
    """The loss of instance 0 is infinite; batches without it have nothing of it, wherever they are padded."""
    net = torch.nn.Linear(1, 1, bias=False).double()
    X = [np.array([[0.0], [1.0], [2.0]]), np.array([[0.0], [4.0]])]
    problem = from_torch(net, lambda z, y, lam: torch.log(z[:, 0]), X, X, dim_lam=1)
    x = torch.tensor([[2.0], [3.0]], dtype=torch.float64)
    grad = problem.inner_grad(x, x, torch.tensor([[-1, 1, 2], [1, -1, -1]]))
    assert torch.allclose(grad, 1 / x)


def test_the_start_is_the_modules_own_parameters():
    problem = by_module("mask")
    flat = torch.nn.utils.parameters_to_vector(problem.module.parameters())
    before = flat.clone()
    assert torch.equal(problem.parameters(), flat.detach().repeat(3, 1)) and not problem.parameters().requires_grad
    problem.inner_grad(problem.parameters(), torch.ones(3, CLASSES, dtype=torch.float64))
    assert torch.equal(torch.nn.utils.parameters_to_vector(problem.module.parameters()), before)


def test_a_run_of_hgp_equals_that_of_the_neural_problem():
    c, problem = make("mask", smooth=False), by_module("mask")
    x, lam, _, _ = point(c, False)
    net = hgp.networks.RandomDirected(3, seed=1)
    runs = [
        hgp.hypergradient(
            p, a, b, hgp.PushSum(net, 5), eta=0.02, iterations=6, batches=hgp.MiniBatches(3, seed=2)
        ).value
        for p, a, b in ((problem, x, lam), (c.problem, c.x, c.lam))
    ]
    assert_close(runs[0].numpy(), runs[1], 1e-10)
    assert as_problem(problem).counts.tolist() == list(COUNTS)


def simple(loss=None, **options):
    net = torch.nn.Linear(2, 1).double()
    X = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(2, 3, 2)
    loss = loss or (lambda z, y, lam: lam[0] * (z[:, 0] - y) ** 2)
    problem = from_torch(net, loss, X, X[..., 0], dim_lam=1, **options)
    return problem, torch.tensor([[0.3, 1.0, -0.2], [0.5, 0.1, 0.7]]).double(), torch.ones(2, 1).double()


def test_costs_without_a_graph_are_errors_not_zeros():
    cut, x, lam = simple(lambda z, y, lam: ((z[:, 0] - y) ** 2).detach())
    for call in (cut.inner_grad, cut.linearize, cut.outer_grad):
        with pytest.raises(RuntimeError, match="changes with x, but carries no graph .* its derivative would be zero"):
            call(x, lam)
    half, x, lam = simple(lambda z, y, lam: lam[0].detach() * (z[:, 0] - y) ** 2)
    half.linearize(x, lam).hvp(x)
    with pytest.raises(RuntimeError, match="inner_cost: the cost changes with lam, .* its second derivative"):
        half.linearize(x, lam).products(x)
    none, x, lam = simple(lambda z, y, lam: z[:, 0] + lam[0])  # linear: these second derivatives are zero
    hvp, cross = none.linearize(x, lam).products(x)
    assert torch.equal(hvp, torch.zeros_like(x)) and torch.equal(cross, torch.zeros_like(lam))


def test_inference_mode_is_refused_with_its_name():
    problem, x, lam = simple()
    with torch.inference_mode():
        for name, call in (
            ("inner_cost", problem.inner_grad), ("inner_cost", problem.linearize), ("outer_cost", problem.outer_grad),
        ):  # fmt: skip
            with pytest.raises(RuntimeError, match=rf"{name} must be .* outside of torch.inference_mode\(\)"):
                call(x, lam)
        made_inside = x.clone()
        assert problem.inner_cost(x, lam).shape == (2,)
    assert torch.equal(problem.inner_grad(made_inside, lam), problem.inner_grad(x, lam))
    with torch.no_grad():
        assert not torch.equal(problem.linearize(x, lam).hvp(x), torch.zeros_like(x))


def test_a_module_that_is_itself_a_cost_keeps_its_form():
    class Cost(torch.nn.Module):
        def forward(self, i, x, lam, batch=None):
            return (lam * x * x).sum()

    problem = from_torch(Cost(), Cost(), 2, 3, 3)
    x = torch.ones(2, 3)
    assert torch.equal(problem.inner_grad(x, 2 * x), 4 * x)
    assert torch.equal(from_torch(Cost(), Cost(), n_clients=2, dim_x=3, dim_lam=3).inner_grad(x, x), 2 * x)


def test_random_modules_are_refused():
    net = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(2, 1)).double()
    X = torch.ones(2, 3, 2).double()
    problem = from_torch(net, lambda z, y, lam: z[:, 0], X, X, dim_lam=1)
    with pytest.raises(RuntimeError, match="random"):
        problem.inner_cost(problem.parameters(), X[:, 0, :1])
    net.eval()
    assert problem.inner_cost(problem.parameters(), X[:, 0, :1]).shape == (2,)


def test_bad_input():
    problem, x, lam = simple()
    X = torch.ones(2, 3, 2).double()
    net = problem.module

    def loss(outputs, y, lam):
        return outputs[:, 0]

    with pytest.raises(ValueError, match=r"inner_cost.loss must return shape \(3,\), got \(\)"):
        simple(lambda z, y, lam: z.sum())[0].inner_cost(x, lam)
    with pytest.raises(ValueError, match=r"outer_cost.penalty must return shape \(\), got \(3,\)"):
        simple(outer_penalty=lambda x, lam: x)[0].outer_cost(x, lam)
    with pytest.raises(TypeError, match="inner_cost.loss must return torch.float64 like x, got torch.int64"):
        simple(lambda z, y, lam: (z[:, 0] > 0).long())[0].inner_cost(x, lam)
    with pytest.raises(TypeError, match="mixed dtypes: x is torch.float32, X is torch.float64"):
        problem.inner_grad(x.float(), lam.float())
    with pytest.raises(ValueError, match=r"x must have shape \(2, 3\), got \(2, 2\)"):
        problem.inner_grad(x[:, :2], lam)
    with pytest.raises(ValueError, match=r"u must have shape \(2, 3\), got \(2, 2\)"):
        problem.linearize(x, lam).hvp(x[:, :2])
    with pytest.raises(ValueError, match=r"batch must have shape \(..., 2, b\) .*, got \(3, 1\)"):
        problem.inner_cost(x, lam, torch.zeros(3, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match="batch must hold indices from 0 to 2 or -1 for padding for client 1, got 3"):
        problem.inner_cost(x, lam, torch.tensor([[0], [3]]))
    with pytest.raises(TypeError, match="loss must be a function, got int"):
        from_torch(net, 3, X, X, dim_lam=1)
    with pytest.raises(ValueError, match="X_val and y_val must be passed together, got y_val=None"):
        from_torch(net, loss, X, X, X, dim_lam=1)
    with pytest.raises(ValueError, match="X_val must have 2 clients like X, got 1"):
        from_torch(net, loss, X, X, X[:1], X[:1], dim_lam=1)
    with pytest.raises(ValueError, match=r"X\[1\] and y\[1\] must have shapes .* got \(3, 2\) and \(2, 2\)"):
        from_torch(net, loss, X, [X[0], X[1][:2]], dim_lam=1)
    with pytest.raises(ValueError, match="X must have the same shape, dtype and device for all clients"):
        from_torch(net, loss, [X[0], X[1].float()], X, dim_lam=1)
    with pytest.raises(ValueError, match="module must have parameters to train, got ReLU, which has none"):
        from_torch(torch.nn.ReLU(), loss, X, X, dim_lam=1)
    with pytest.raises(ValueError, match="module must have initialised parameters, got weight without a shape"):
        from_torch(torch.nn.LazyLinear(2), loss, X, X, dim_lam=1)
    with pytest.raises(TypeError, match=r"^loss must be a function of \(outputs, y, lam\) with dim_lam, got MSELoss\("):
        from_torch(net, torch.nn.MSELoss(reduction="none"), X, X, dim_lam=1)
    with pytest.raises(TypeError, match=r"^penalty must be a function of \(x, lam\) with dim_lam, got <lambda>\(x\)"):
        from_torch(net, loss, X, X, dim_lam=1, penalty=lambda x: x @ x)
    with pytest.raises(ValueError, match="chunk must be .*, got 0"):
        simple(chunk=0)


def test_gradients_of_single_validation_losses_leave_out_the_penalty():
    """`check_derivatives` compares them with the outer gradient, unless that has a penalty too."""
    X, X_val = torch.randn(2, 4, 3).double(), [torch.randn(size, 3).double() for size in (2, 5)]
    for penalty in (None, lambda x: x @ x):
        problem = from_torch(
            torch.nn.Linear(3, 2).double(), lambda z, y: ((z - y) ** 2).sum(1), X, X[..., :2], X_val,
            [a[:, :2] for a in X_val], outer_penalty=penalty)  # fmt: skip
        for kind in (problem, hgp.problems.Damped(problem, 0.1)):
            result = hgp.problems.check_derivatives(kind, problem.parameters(), torch.ones(2, 4).double())
            assert result.ok, str(result)
            assert [row.verdict for row in result.rows if row.quantity == "validation_grad"] == ["ok"]
