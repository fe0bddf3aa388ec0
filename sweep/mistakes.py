"""Published figures that mean something else than the input they are written into, refused with the right number.

A rate with sparsity for a dense one, both directions of a link for one, a node's ports for a GPU's, bits for bytes, GiB for GB:
each is a round number of a data sheet, so it is known from the accelerator's preset and refused only where it equals the wrong
figure exactly. What is swept is never refused (an axis over ports may well pass the node's total), nor is an accelerator of one's
own; so a list, ``link_gbps: [3200]``, insists, and for ports the word ``rails`` does.
"""

from ._kernels import quantities
from .errors import SpecError

TOLERANCE = 1e-3  # of the figure: 1978 and 1979 are the same peak
GIB = 2.0**30 / 1e9
ELEMENTS = ("grad_bytes", "param_bytes", "dispatch_bytes", "combine_bytes")
WIDTHS = (16.0, 32.0, 64.0)
"""Bits of the numbers that training uses, none of which is as many bytes wide (8 is: fp64)."""


def refuse(written, tables):
    """Raise SpecError where a constant equals a figure of the accelerator that means something else."""
    for name in ELEMENTS:
        if name in written and not written[name].dims and written[name].values in WIDTHS:
            bits = written[name].values
            raise SpecError(f"{written[name].place}: no element has {bits:g} bytes. Write {bits / 8:g} if these are its bits.")
    entries, dims, _ = tables.get("accelerator", ((), ("none",), ""))
    if dims:
        return  # several accelerators, or none
    for name, wrong in WRONG.items():
        said = written.get(name)
        if said is None or said.dims:
            continue
        for figure, right, words in wrong(entries[0], written):
            if abs(said.values - figure) <= TOLERANCE * figure:
                raise SpecError(f"{said.place}: {said.values:g} {words}. Write {right}; a list, {name}: [{said.values:g}], insists.")


def _peak(preset, written):
    """Sparse tensor cores count twice the FLOP."""
    dtypes = quantities.INPUTS["dtype"]
    dtype = dtypes.choices[int(written["dtype"].values)] if "dtype" in written and not written["dtype"].dims else "bf16"
    peaks = preset.numbers.get("peak_tflops", {})
    dense = peaks.get(dtype) if isinstance(peaks, dict) else peaks
    if not dense:
        return
    same = [word for word, other in peaks.items() if abs(other - 2 * dense) <= 2 * TOLERANCE * dense] if isinstance(peaks, dict) else []
    also = f", or dtype: {same[0]} for its dense {same[0]} peak" if same else ""
    yield 2 * dense, f"{dense:g}{also}", f"is the {dtype} peak of {preset.name} with sparsity, twice the dense one"


def _scaleup(preset, written):
    rate = preset.numbers.get("scaleup_gbytes_per_s")
    if rate:
        yield 2 * rate, f"{rate:g}", f"is what the scale-up link of {preset.name} does in both directions together, in GB/s"
        yield 8 * rate, f"{rate:g}", f"is one direction of the scale-up link of {preset.name} in Gb/s, not GB/s"


def _port(preset, written):
    """A node's ports together; with ``rails`` said, how ports are shared is known."""
    port, domain = (preset.numbers.get(name) for name in ("link_gbps", "scaleup_domain"))
    if port and domain and domain > 1 and "rails" not in written:
        words = f"is what the {domain:g} ports of a {preset.name} domain do together, and link_gbps is one accelerator's"
        yield port * domain, f"{port:g} (or rails: all, if each has {port * domain:g})", words


def _memory(preset, written):
    size = preset.numbers.get("hbm_gb")
    if size:
        yield size / GIB, f"{size:g}", f"is the memory of {preset.name} in GiB, and hbm_gb is in GB"
        yield 1024.0 * size, f"{size:g}", f"is the memory of {preset.name} in MB, and hbm_gb is in GB"


WRONG = {"peak_tflops": _peak, "scaleup_gbytes_per_s": _scaleup, "link_gbps": _port, "hbm_gb": _memory}
"""Of each input, the figures it is taken for: (figure, what to write, what the figure is)."""
