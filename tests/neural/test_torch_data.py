"""Modules trained on Datasets and DataLoaders, with instance weights: the numbers of tensors and of λ in y."""

from __future__ import annotations

import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref.problems import from_torch

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'hgp_ref[torch]'")
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset  # noqa: E402

SIZES, VALIDATION = (5, 3, 6), (2, 4, 3)


def cross_entropy(outputs, y):
    return torch.nn.functional.cross_entropy(outputs, y, reduction="none")


def decay(x):
    return 0.1 * (x @ x)


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).double()


def whole(N, seed):
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.standard_normal((N, 4))), torch.tensor(rng.integers(0, 3, N))


TRAIN, VAL = whole(sum(SIZES), 0), whole(sum(VALIDATION), 1)
ORDER = np.random.default_rng(2).permutation(sum(SIZES))  # clients have scattered rows of one data set
PARTS = np.split(ORDER, np.cumsum(SIZES)[:-1])
VAL_PARTS = np.split(np.arange(sum(VALIDATION)), np.cumsum(VALIDATION)[:-1])


class Counted(Dataset):
    """Reads instance by instance, and counts."""

    def __init__(self, X, y):
        self.X, self.y, self.read = X, y, []

    def __len__(self):
        return len(self.X)

    def __getitem__(self, k):
        self.read.append(k)
        return self.X[k], int(self.y[k])


def tensors(**options):
    X, y = ([a[torch.as_tensor(part)] for part in PARTS] for a in TRAIN)
    X_val, y_val = ([a[torch.as_tensor(part)] for part in VAL_PARTS] for a in VAL)
    return from_torch(network(), cross_entropy, X, y, X_val, y_val, penalty=decay, **options)


def from_datasets(kind, **options):
    train, val = (Counted(*data) if kind == "own" else TensorDataset(*data) for data in (TRAIN, VAL))
    clients = [
        [Subset(Subset(data, range(len(data))), part.tolist()) for part in parts]
        for data, parts in ((train, PARTS), (val, VAL_PARTS))
    ]
    if kind == "loaders":
        clients = [[DataLoader(part, batch_size=2) for part in side] for side in clients]
    return from_torch(network(), cross_entropy, clients[0], X_val=clients[1], penalty=decay, **options), train


def point(problem, seed=3):
    rng = np.random.default_rng(seed)
    x = problem.parameters() + 0.1 * torch.tensor(rng.standard_normal((problem.n_clients, problem.dim_x)))
    return x, torch.tensor(0.5 + rng.random((problem.n_clients, problem.dim_lam))), torch.tensor(rng.random(x.shape))


BATCH = torch.tensor([[4, 0, -1], [2, 2, 1], [-1, 5, -1]])


def everything(problem, batch=None):
    x, lam, u = point(problem)
    at = problem.linearize(x, lam, batch)
    return (problem.inner_cost(x, lam, batch), problem.inner_grad(x, lam, batch), problem.outer_cost(x, lam),
            *problem.outer_grad(x, lam), at.hvp(u), at.cross(u), *at.products(u),
            problem.validation_grad(x, lam, torch.tensor([[1, 0], [3, -1], [-1, -1]])))  # fmt: skip


# ---- Weights of instances


@pytest.mark.parametrize("batch", [None, BATCH], ids=["full", "batch"])
@pytest.mark.parametrize("curvature", ["hessian", "gauss-newton"])
def test_without_dim_lam_every_instance_has_a_weight(batch, curvature):
    """The same as a loss that looks its weight up by a number in y."""
    X, y = ([a[torch.as_tensor(part)] for part in PARTS] for a in TRAIN)
    X_val, y_val = ([a[torch.as_tensor(part)] for part in VAL_PARTS] for a in VAL)
    numbered = [torch.stack([a, torch.arange(len(a))], 1) for a in y]
    by_number = from_torch(
        network(), lambda z, y, lam: lam[y[:, 1]] * cross_entropy(z, y[:, 0]), X, numbered, X_val, y_val,
        dim_lam=max(SIZES), outer_loss=lambda z, y, lam: cross_entropy(z, y), penalty=lambda x, lam: decay(x),
        curvature=curvature)  # fmt: skip
    problem = tensors(curvature=curvature)
    assert (problem.dim_lam, problem.weighs_instances) == (max(SIZES), True) and not by_number.weighs_instances
    for ours, theirs in zip(everything(problem, batch), everything(by_number, batch), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


def test_derivatives_agree_with_differences():
    problem = tensors()
    x, lam, _ = point(problem)
    result = hgp.problems.check_derivatives(problem, x, lam)
    assert result.ok, result
    padding = np.arange(max(SIZES)) >= np.array(SIZES)[:, None]
    assert not problem.linearize(x, lam).cross(x).numpy()[padding].any()


def test_influence_is_that_of_the_linear_model():
    """A linear module with two logits differs from binary regression by a redundant logit alone."""
    rng = np.random.default_rng(0)
    X, X_val = rng.standard_normal((2, 3, 12, 4))
    y, y_val = rng.integers(0, 2, (2, 3, 12))
    module = torch.nn.Linear(4, 2, bias=False).double()
    theirs = from_torch(module, cross_entropy, X, y, X_val, y_val, penalty=lambda x: 0.15 * (x @ x))
    ours = hgp.problems.InstanceWeights(X, y, X_val, y_val, loss="softmax", n_classes=2, l2=0.3)
    lam, avg = np.ones((3, 12)), hgp.ExactAverage(3)
    x = hgp.exact.inner_solution(ours, lam)
    as_module = x.reshape(3, 4, 2).swapaxes(1, 2).reshape(3, 8)  # rows are the logits in PyTorch
    for on in ("total", "instances", "self"):
        found = [
            hgp.influence(problem, z, weights, avg, eta=0.5, iterations=10, on=on).per_instance
            for problem, z, weights in ((ours, x, lam), (theirs, torch.tensor(as_module), torch.tensor(lam)))
        ]
        np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": lambda z, y, lam: z}, r"^loss must be a function of \(outputs, y\) where lam weighs instances"),
        ({"penalty": lambda x, lam: x}, r"^penalty must be a function of \(x\) where lam weighs instances, or dim_lam"),
        ({"outer_loss": lambda z: z}, r"^outer_loss must be a function of \(outputs, y\) where lam weighs instances"),
    ],
)  # fmt: skip
def test_functions_with_lam_need_dim_lam(options, message):
    with pytest.raises(TypeError, match=message):
        from_torch(network(), **{"loss": cross_entropy, "X": [TRAIN[0]], "y": [TRAIN[1]], **options})


def test_missing_and_unknown_arguments_are_those_of_from_torch():
    with pytest.raises(TypeError, match=r"^from_torch\(module, loss, X, y, ...\): missing a required argument: 'X'"):
        from_torch(network(), cross_entropy)
    with pytest.raises(TypeError, match=r"^from_torch\(module, .*got an unexpected keyword argument 'dim_lamda'"):
        from_torch(network(), cross_entropy, *TRAIN, dim_lamda=3)
    with pytest.raises(TypeError, match=r"^from_torch\(inner_cost, .*: missing a required argument: 'dim_lam'"):
        from_torch(lambda i, x, lam, batch=None: x.sum(), lambda i, x, lam: x.sum(), 2, 3)


def test_a_loss_that_is_reduced_is_named():
    problem = from_torch(network(), torch.nn.CrossEntropyLoss(), [TRAIN[0]], [TRAIN[1]])
    with pytest.raises(
        ValueError, match=r"^inner_cost.loss must return shape \(14,\), got \(\): .* with reduction='none'"
    ):
        problem.inner_cost(*point(problem)[:2])


def test_outputs_that_do_not_fit_the_labels_are_named():
    """Without `Flatten`, a network with one output returns (N, 1) for labels (N,)."""
    X, y = torch.ones(2, 5, 4).double(), torch.ones(2, 5).double()
    problem = from_torch(torch.nn.Linear(4, 1).double(), torch.nn.BCEWithLogitsLoss(reduction="none"), X, y)
    with pytest.raises(RuntimeError, match=r"^inner_cost: module and loss must .* labels \(5,\) .*: Target size"):
        problem.inner_cost(problem.parameters(), torch.ones(2, 5).double())


# ---- Datasets


@pytest.mark.parametrize("batch", [None, BATCH], ids=["full", "batch"])
@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("kind", ["tensors", "own", "loaders"])
def test_datasets_give_the_numbers_of_tensors(kind, chunk, batch):
    problem, _ = from_datasets(kind, chunk=chunk)
    assert problem.counts.tolist() == list(SIZES) and problem.validation_counts.tolist() == list(VALIDATION)
    for ours, theirs in zip(everything(problem, batch), everything(tensors(chunk=chunk), batch), strict=True):
        assert torch.equal(ours, theirs)


def test_a_mini_batch_reads_its_own_instances_alone():
    problem, data = from_datasets("own")
    assert len(data.read) == 2 * 3  # the first instance of each client, twice
    data.read.clear()
    x, lam, _ = point(problem)
    problem.inner_grad(x, lam, BATCH)
    drawn = {int(PARTS[i][k]) for i, row in enumerate(BATCH.tolist()) for k in row if k >= 0}
    assert set(data.read) == drawn


def test_clients_share_one_dataset_without_copies():
    problem, data = from_datasets("tensors")
    sources = problem._data["inner_cost"].sources
    assert all(source.dataset is data for source in sources)
    assert [source.numbers.tolist() for source in sources] == [part.tolist() for part in PARTS]


def test_restricted_problems_and_digests():
    (problem, _), plain = from_datasets("tensors"), tensors()
    part, same = problem.restrict([2, 0]), plain.restrict([2, 0])
    x, lam, _ = point(part)
    assert torch.equal(part.inner_grad(x, lam), same.inner_grad(x, lam)) and part.dim_lam == max(SIZES)
    assert problem.data_digest() == plain.data_digest() != part.data_digest() == same.data_digest()


def test_training_and_influence_of_datasets():
    (problem, _), plain = from_datasets("own"), tensors()
    net = hgp.networks.RandomDirected(n=3, seed=0)
    lam = torch.ones(3, max(SIZES)).double()
    ran = []
    for one in (problem, plain):
        fit = hgp.sgp(one, lam, net, steps=5, lr=0.2, batches=2, x0=one.parameters())
        found = hgp.influence(one, fit.x, lam, hgp.PushSum(net, 5), eta=0.2, iterations=5, batches=2, on="self")
        ran.append((fit.x, torch.tensor(found.per_instance)))
    assert all(torch.equal(a, b) for a, b in zip(*ran, strict=True))


@pytest.mark.parametrize("kind", ["arrays", "tensors"])
def test_to_another_dtype_moves_data_and_module(kind):
    problem = tensors() if kind == "arrays" else from_datasets(kind)[0]
    single = problem.to("torch", dtype="float32", device="cpu")
    for ours, theirs in zip(everything_in_float32(single), everything(problem), strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-3, atol=1e-5)
    assert problem.module[0].weight.dtype == torch.float64 and single.module[0].weight.dtype == torch.float32
    assert single.parameters().dtype == torch.float32
    with pytest.raises(TypeError, match="^target must be 'torch' or a tensor, since the module runs in PyTorch, got"):
        problem.to("numpy")
    with pytest.raises(ValueError, match="^device must"):
        problem.to("torch", device="cuda:7")


def everything_in_float32(problem):
    x, lam, u = (a.float() for a in point(problem))
    at = problem.linearize(x, lam)
    return (problem.inner_cost(x, lam), problem.inner_grad(x, lam), problem.outer_cost(x, lam),
            *problem.outer_grad(x, lam), at.hvp(u), at.cross(u), *at.products(u),
            problem.validation_grad(x, lam, torch.tensor([[1, 0], [3, -1], [-1, -1]])))  # fmt: skip


class Noisy(Counted):
    def __getitem__(self, k):
        return self.X[k] + torch.randn(4), int(self.y[k])


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(*TRAIN, strict=True))


DATA = TensorDataset(*TRAIN)
SHUFFLED = r"^X\[1\] must be a DataLoader with shuffle=False, got one with a RandomSampler: instances have fixed"


@pytest.mark.parametrize(
    ("X", "y", "error", "message"),
    [
        ([DATA, DataLoader(DATA, shuffle=True)], None, ValueError, SHUFFLED),
        ([DATA, DataLoader(DATA, sampler=torch.utils.data.RandomSampler(DATA))], None, ValueError, SHUFFLED),
        ([DATA, DataLoader(DATA, batch_size=None, shuffle=True)], None, ValueError, SHUFFLED),
        ([DATA, DataLoader(DATA, batch_sampler=torch.utils.data.BatchSampler(
            torch.utils.data.RandomSampler(DATA), 2, False))], None, ValueError, SHUFFLED),
        ([DataLoader(DATA, batch_sampler=[[0, 1], [3]])], None, ValueError, "shuffle=False, got one with a list"),
        ([DataLoader(DATA, batch_size=3, drop_last=True)], None, ValueError, r"^X\[0\] must be .*drop_last=False"),
        ([DataLoader(Stream())], None, TypeError, r"^X\[0\] must be a Dataset with a length .*, got Stream"),
        ([Stream()], None, TypeError, r"^X\[0\] must be a Dataset with a length and numbered instances, got Stream"),
        ([DATA, TRAIN[0]], None, TypeError, r"^X\[1\] must be a Dataset or a DataLoader like .* got Tensor"),
        ([DATA], [TRAIN[1]], TypeError, "^y must be None, the Datasets of X have labels, got list"),
        (DATA, None, TypeError, "^X must be .*, got one TensorDataset; give each client a Subset of it"),
        (DataLoader(DATA), None, TypeError, "^X must be .*, got one DataLoader; give each client a Subset"),
        ([Noisy(*TRAIN)], None, ValueError, r"^X\[0\] must have the same instance 0 at each access, got two different"),
        ([Subset(DATA, [])], None, ValueError, r"^X\[0\] must have at least one instance, got none"),
        ([Subset(DATA, [0, 50])], None, ValueError, r"^X\[0\] must have indices from 0 to \d+ of its Dataset, got 50"),
        ([DataLoader(DATA, sampler=torch.utils.data.SequentialSampler(range(2)))], None, ValueError,
         r"^X\[0\] must be a DataLoader of all \d+ instances of its Dataset, got a sampler of 2; take a Subset"),
        ([TensorDataset(TRAIN[0])], None, TypeError, r"^X\[0\] must have instances \(input, label\), got list"),
        ([DATA, TensorDataset(TRAIN[0][:, :3], TRAIN[1])], None, ValueError, "^X must have the same shape, dtype"),
        ([DataLoader(DATA, collate_fn=lambda pairs: (pairs, 3))], None, TypeError, r"^X\[0\] must collate 1 inst"),
        (TRAIN[0][None], None, TypeError, "^y must be an array .*, got NoneType"),
    ],
)  # fmt: skip
def test_data_without_fixed_instances_are_refused(X, y, error, message):
    with pytest.raises(error, match=message):
        from_torch(network(), cross_entropy, X, y)


class Growing(Dataset):
    """Instances whose number and shapes may change."""

    def __init__(self):
        self.items = list(zip(*TRAIN, strict=True))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, k):
        return self.items[k]


@pytest.mark.parametrize("wrap", [lambda a: a, DataLoader, lambda a: Subset(a, range(len(a)))])
def test_a_dataset_that_changes_later_is_refused(wrap):
    data = Growing()
    problem = from_torch(network(), cross_entropy, [wrap(data)])
    x, lam, size = problem.parameters(), torch.ones(1, problem.dim_lam, dtype=torch.float64), len(data)
    problem.inner_grad(x, lam)
    data.items.pop()
    with pytest.raises(
        ValueError, match=rf"^X\[0\] must keep the {size} instances of its Dataset, got {size - 1} later"
    ):
        problem.inner_grad(x, lam)
    data.items.append((TRAIN[0][0][:2], TRAIN[1][0]))
    with pytest.raises(
        ValueError, match=r"^X\[0\] must have instances that can be collated, got this error: stack exp"
    ):
        problem.inner_grad(x, lam)


@pytest.mark.parametrize(("X", "y"), [(TRAIN[0][None, :, :3], TRAIN[1]), (TRAIN[0][None], TRAIN[1] + 9)])
def test_an_error_of_the_module_or_loss_names_what_they_were_given(X, y):
    problem = from_torch(network(), cross_entropy, X, y[None])
    message = (
        rf"^inner_cost: module and loss must take .*, got inputs \({X.shape[1]}, {X.shape[2]}\) torch.float64, labels"
    )
    with pytest.raises(RuntimeError, match=message):
        problem.inner_cost(problem.parameters(), torch.ones(1, problem.dim_lam, dtype=torch.float64))


def test_a_loader_collates_as_its_user_says():
    """drop_last without anything to drop, a loader without batches, and a function that scales inputs."""

    def scaled(pairs):
        X, y = torch.utils.data.default_collate(pairs)
        return 2 * X, y

    plain = from_torch(network(), cross_entropy, [2 * TRAIN[0], 2 * TRAIN[0]], [TRAIN[1], TRAIN[1]])
    loaders = [DataLoader(DATA, 2, drop_last=True, collate_fn=scaled),
               DataLoader(TensorDataset(2 * TRAIN[0], TRAIN[1]), batch_size=None)]  # fmt: skip
    problem = from_torch(network(), cross_entropy, loaders)
    x, lam, _ = point(problem)
    assert torch.equal(problem.inner_grad(x, lam), plain.inner_grad(x, lam))
