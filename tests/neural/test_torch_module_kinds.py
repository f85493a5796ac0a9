"""Kinds of torch.nn.Module: which parameters are trained, and that padding changes nothing or is refused."""

from __future__ import annotations

import numpy as np
import pytest
from support.libraries import assert_close

from hgp_ref.problems import from_torch

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'hgp_ref[torch]'")
nn = torch.nn

UNEQUAL, EQUAL = (3, 6, 4), (4, 4, 4)
LAM = torch.zeros(3, 1, dtype=torch.float64)


def loss(z, y, lam):
    return nn.functional.cross_entropy(z, y, reduction="none")


def data(counts):
    rng = np.random.default_rng(0)
    return [torch.from_numpy(rng.standard_normal((k, 4))) for k in counts], [
        torch.from_numpy(rng.integers(0, 3, k)) for k in counts
    ]


def one_by_one(net, X, y):
    """Costs with the module's own parameters."""
    with torch.no_grad():
        return torch.stack([nn.functional.cross_entropy(net(a), b) for a, b in zip(X, y, strict=True)])


class Tied(nn.Module):
    """One matrix in two places, and a way through an image."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.second.weight = self.first.weight

    def forward(self, X):
        image = torch.tanh(self.second(torch.tanh(self.first(X)))).view(len(X), 1, 2, 2)
        return self.last(image.flatten(1))


class Centred(nn.Module):
    """Outputs less their mean over the instances of the call."""

    def __init__(self):
        super().__init__()
        self.map = nn.Linear(4, 3)

    def forward(self, X):
        z = self.map(X)
        return z - z.mean(0)


def normalised(**options):
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, **options), nn.ReLU(inplace=True), nn.Linear(5, 3))


@pytest.mark.parametrize("net", [Tied(), normalised().eval()], ids=["tied", "normalised by buffers"])
def test_tied_parameters_buffers_and_views(net):
    net, (X, y) = net.double(), data(UNEQUAL)
    problem = from_torch(net, loss, X, y, dim_lam=1)
    x = problem.parameters()
    assert problem.dim_x == sum(p.numel() for p in net.parameters())
    assert_close(problem.inner_cost(x, LAM).numpy(), one_by_one(net, X, y).numpy(), 1e-12)
    rows = [torch.autograd.grad(nn.functional.cross_entropy(net(a), b), list(net.parameters())) for a, b in
            zip(X, y, strict=True)]  # fmt: skip
    expected = torch.stack([torch.cat([part.flatten() for part in row]) for row in rows])
    assert_close(problem.inner_grad(x, LAM).numpy(), expected.numpy(), 1e-12)


@pytest.mark.parametrize("net", [Centred(), normalised(track_running_stats=False)], ids=["centred", "batch statistics"])
def test_instances_that_depend_on_each_other_need_equal_clients(net):
    """Padding repeats an instance, and means over a call would count it twice."""
    net, (X, y) = net.double(), data(EQUAL)
    problem = from_torch(net, loss, X, y, dim_lam=1)
    assert_close(problem.inner_cost(problem.parameters(), LAM).numpy(), one_by_one(net, X, y).numpy(), 1e-12)
    batch = torch.tensor([[0, 1, 2], [3, 2, 1], [0, 1, -1]])
    with pytest.raises(
        ValueError,
        match="inner_cost: module and loss must .*, but the loss of an instance changes with the others of its call",
    ):
        problem.inner_cost(problem.parameters(), LAM, batch)
    uneven = from_torch(net, loss, *data(UNEQUAL), dim_lam=1)
    for call in (uneven.inner_cost, uneven.inner_grad, uneven.linearize, uneven.outer_cost, uneven.outer_grad):
        with pytest.raises(ValueError, match="module and loss must treat each instance by itself"):
            call(uneven.parameters(), LAM)


def test_a_loss_that_mixes_instances_is_seen_too():
    net = nn.Linear(4, 3).double()
    problem = from_torch(net, lambda z, y, lam: loss(z, y, lam) / loss(z, y, lam).sum(), *data(UNEQUAL), dim_lam=1)
    with pytest.raises(ValueError, match="the loss of an instance changes with the others"):
        problem.inner_grad(problem.parameters(), LAM)


def test_parameters_that_are_not_trained_stay_as_they_are():
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    net[0].requires_grad_(False)
    net.count = nn.Parameter(torch.tensor([3]), requires_grad=False)
    X, y = data(UNEQUAL)
    problem = from_torch(net, loss, X, y, dim_lam=1)
    assert problem.dim_x == 5 * 3 + 3 and problem.parameters().dtype == torch.float64
    assert torch.equal(problem.parameters()[0], nn.utils.parameters_to_vector(net[2].parameters()).detach())
    assert_close(problem.inner_cost(problem.parameters(), LAM).numpy(), one_by_one(net, X, y).numpy(), 1e-12)
    with pytest.raises(ValueError, match="module must have parameters to train, got Sequential, which has none"):
        from_torch(net.requires_grad_(False), loss, X, y, dim_lam=1)
    with pytest.raises(
        TypeError, match="module must have real floating-point parameters, got weight of torch.complex128"
    ):
        from_torch(nn.Linear(4, 3, dtype=torch.complex128), loss, X, y, dim_lam=1)


def test_short_integers_are_indices():
    problem = from_torch(nn.Linear(4, 3).double(), loss, *data(UNEQUAL), dim_lam=1)
    batch = torch.tensor([[0, 2], [5, -1], [3, 1]])
    expected = problem.inner_grad(problem.parameters(), LAM, batch)
    for dtype in (torch.int8, torch.int16, torch.int32):
        assert torch.equal(problem.inner_grad(problem.parameters(), LAM, batch.to(dtype)), expected)


class Shared(nn.Module):
    """One layer under two names, and one parameter in two layers."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.d = nn.Linear(4, 4), nn.Linear(4, 3), nn.Linear(4, 4)
        self.c, self.d.weight = self.a, self.a.weight

    def forward(self, X):
        return self.b(torch.tanh(self.d(self.c(torch.tanh(self.a(X))))))


def test_a_layer_under_two_names_is_one_layer_and_the_module_is_left_as_it_is():
    torch.manual_seed(0)
    net, (X, y) = Shared().double(), data(EQUAL)
    before, identity = {name: a.clone() for name, a in net.state_dict().items()}, [id(p) for p in net.parameters()]
    problem = from_torch(net, loss, X, y, dim_lam=1)
    x = problem.parameters()
    assert problem.dim_x == sum(p.numel() for p in net.parameters()) == x.shape[1]
    lin = problem.linearize(x, LAM)
    slopes = problem.inner_grad(x, LAM), lin.hvp(torch.ones_like(x))
    problem.inner_cost(x, LAM), problem.outer_grad(x, LAM)
    assert [id(p) for p in net.parameters()] == identity and all(p.requires_grad for p in net.parameters())
    assert all(torch.equal(before[name], a) for name, a in net.state_dict().items())
    assert torch.equal(problem.parameters(), x)
    assert_close(problem.inner_cost(x, LAM).numpy(), one_by_one(net, X, y).numpy(), 1e-12)
    for a, b, slope, Hu in zip(X, y, *slopes, strict=True):
        rows = torch.autograd.grad(nn.functional.cross_entropy(net(a), b), list(net.parameters()), create_graph=True)
        first = torch.cat([row.flatten() for row in rows])
        second = torch.autograd.grad(first.sum(), list(net.parameters()))
        assert_close(slope.numpy(), first.detach().numpy(), 1e-12)
        assert_close(Hu.numpy(), torch.cat([row.flatten() for row in second]).numpy(), 1e-10)


def test_a_module_in_training_mode_that_cannot_run_is_named_and_keeps_its_buffers():
    net, (X, y) = normalised().double(), data(EQUAL)
    problem = from_torch(net, loss, X, y, dim_lam=1)
    with pytest.raises(RuntimeError, match=r"module must be in evaluation mode, .*use module.eval\(\)"):
        problem.inner_cost(problem.parameters(), LAM)
    assert int(net[1].num_batches_tracked) == 0 and not net[1].running_mean.any()
    with pytest.raises(TypeError, match=r"module must be a torch.nn.Module with data X, got function"):
        from_torch(loss, loss, X, y, dim_lam=1)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # no rule of vmap for it
@pytest.mark.parametrize("form", ["module", "costs"])
def test_a_second_derivative_that_is_not_symmetric_is_refused(form):
    """An operation with a right first derivative and a wrong second one, as PyTorch's weight_norm has."""

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return (a**2).sum(-1, keepdim=True) * a

        @staticmethod
        def backward(ctx, grad):
            (a,) = ctx.saved_tensors
            first = grad * (a**2).sum(-1, keepdim=True)
            return first + 2 * a * (grad * a.detach()).sum(-1, keepdim=True)  # detached: half of the second derivative

    def cost(i, x, lam, batch=None):
        return Square.apply(x).sum() + lam.sum()

    x, lam = torch.tensor([[0.3, -0.7, 1.1]]).double(), torch.zeros(1, 1).double()
    if form == "costs":
        problem = from_torch(cost, cost, 1, 3, 1)
        with pytest.raises(RuntimeError, match="the Hessian from PyTorch is not symmetric"):
            problem.linearize(x, lam).hvp(x)
        good = from_torch(lambda i, x, lam, batch=None: (x**3).sum(), cost, 1, 3, 1)
        assert torch.allclose(good.linearize(x, lam).hvp(x), 6 * x * x)
        return
    net = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)).double()
    X, y = data(EQUAL)
    problem = from_torch(net, loss, X, y, dim_lam=1)
    start = problem.parameters()
    u = torch.linspace(-1, 1, start.numel()).reshape(start.shape).double()
    step, at = 1e-5, problem.inner_grad
    differences = (at(start + step * u, LAM) - at(start - step * u, LAM)) / (2 * step)
    try:
        Hu = problem.linearize(start, LAM).products(u)[0]
    except RuntimeError as error:
        assert "not symmetric" in str(error)  # PyTorch 2.13
    else:
        assert_close(Hu.numpy(), differences.numpy(), 1e-6)
