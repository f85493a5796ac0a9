"""Windows of images with channels last, and the adjoint: array API standard operations only, nothing in place.

A window of kh x kw pixels slides in steps of `stride` over images (n, N, H, W, C); piece (i, j) holds pixel (i, j) of
every window, so that piece_ij[h, w] = image[h stride + i, w stride + j]. `scatter` is the adjoint of `gather`:
<gather(a), pieces> = <a, scatter(pieces)>.
"""

from __future__ import annotations

from dataclasses import dataclass

from hgp_ref.backend import Array, Namespace, device


@dataclass(frozen=True)
class Windows:
    """Where windows lie on images of (H, W): size, steps, and rows and columns of zeros around the image."""

    size: tuple[int, int]
    stride: tuple[int, int]
    image: tuple[int, int]  # H, W without the zeros
    before: tuple[int, int] = (0, 0)  # zeros above and to the left
    after: tuple[int, int] = (0, 0)  # zeros below and to the right

    @property
    def padded(self) -> tuple[int, int]:
        (h, w), (top, left), (bottom, right) = self.image, self.before, self.after
        return h + top + bottom, w + left + right

    @property
    def output(self) -> tuple[int, int]:
        """How many windows fit: rows and columns."""
        (h, w), (kh, kw), (sh, sw) = self.padded, self.size, self.stride
        return (h - kh) // sh + 1, (w - kw) // sw + 1

    def gather(self, a: Array, xp: Namespace) -> list[Array]:
        """The pieces of all windows, in row-major order of the window.  # kh kw arrays (n, N, Ho, Wo, C)"""
        for axis in (0, 1):
            a = pad(a, axis + 2, self.before[axis], self.after[axis], xp)
        (kh, kw), (sh, sw), (ho, wo) = self.size, self.stride, self.output
        return [
            a[:, :, i : i + (ho - 1) * sh + 1 : sh, j : j + (wo - 1) * sw + 1 : sw, :]
            for i in range(kh)
            for j in range(kw)
        ]

    def scatter(self, pieces: list[Array], xp: Namespace) -> Array:
        """The sum of all pieces, each put back where it came from.  # (n, N, H, W, C)"""
        kh, kw = self.size
        total: Array = 0
        for i in range(kh):
            row: Array = 0
            for j in range(kw):
                row = row + self._place(pieces[i * kw + j], 1, j, xp)
            total = total + self._place(row, 0, i, xp)
        (top, left), (h, w) = self.before, self.image
        return total[:, :, top : top + h, left : left + w, :]

    def _place(self, piece: Array, axis: int, offset: int, xp: Namespace) -> Array:
        """Spread an axis by the stride and set it at `offset` in the padded length."""
        spread = dilate(piece, axis + 2, self.stride[axis], xp)
        return pad(spread, axis + 2, offset, self.padded[axis] - offset - spread.shape[axis + 2], xp)


def pad(a: Array, axis: int, before: int, after: int, xp: Namespace) -> Array:
    """`a` with zeros before and after along `axis`."""

    def zeros(count: int) -> list[Array]:
        shape = (*a.shape[:axis], count, *a.shape[axis + 1 :])
        return [xp.zeros(shape, dtype=a.dtype, device=device(a))] if count else []

    parts = [*zeros(before), a, *zeros(after)]
    return a if len(parts) == 1 else xp.concat(parts, axis=axis)


def dilate(a: Array, axis: int, step: int, xp: Namespace) -> Array:
    """`step` - 1 zeros between neighbours along `axis`: length (L - 1) step + 1."""
    length = a.shape[axis]
    if step == 1 or length == 1:
        return a
    spread = pad(xp.expand_dims(a, axis=axis + 1), axis + 1, 0, step - 1, xp)
    spread = xp.reshape(spread, (*a.shape[:axis], length * step, *a.shape[axis + 1 :]))
    index = (slice(None),) * axis + (slice(0, (length - 1) * step + 1),)
    return spread[(*index, ...)]
