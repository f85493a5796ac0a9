"""mpi4py, imported where it is needed."""

from __future__ import annotations

from typing import Any


def load() -> Any:
    """The module mpi4py.MPI, which starts MPI where it is first asked for; ImportError names the extra."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError(
            "hgp_ref.mpi needs mpi4py and an MPI library: pip install 'hgp_ref[mpi]' and, on a machine without one, "
            f"pip install mpich ({error})"
        ) from error
    except RuntimeError as error:  # mpi4py is there, but finds no libmpi
        raise ImportError(
            f"mpi4py finds no MPI library: load your cluster's, or pip install mpich ({error})"
        ) from error
    return MPI
