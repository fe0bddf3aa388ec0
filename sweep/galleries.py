"""Every figure that a dataset can fill, chosen by names alone: ``sweep gallery STORE``.

Axes of a layout (tp, pp, ...) that a figure does not show are searched for the best; any other axis is fixed at a usual
label: the dictionary's default, a 400 Gb/s port, an H100, Llama 3 70B, else the middle one.
"""

from pathlib import Path

import numpy as np

from . import barplots, lineplots, maps, selections
from ._kernels import quantities
from .errors import SweepError

LAYOUT = ("tp", "cp", "pp", "vpp", "ep", "zero_stage", "micro_batch", "recompute", "schedule", "bucket_bytes")
USUAL = {
    "link_gbps": 400.0,
    "accelerator": "h100",
    "model": "llama-3-70b",
    "tp": 8,
    "dp": 256,
    "gpus": 1024,
    "seq_len": 8192,
}
GOALS = ("mfu", "tokens_per_s_per_gpu", "step_time_s")
COLORS = ("required_link_gbps", "link_gbps_at_tolerance", "exposed_fraction", "mfu", "step_time_s")
FORMATS = ("png", "pdf")


def gallery(ds, folder, at=None, allow=None, caption="below", interval=None, width=None):
    """Draw what ``ds`` can fill into ``folder``; returns ``(name, path or reason)`` of each figure.

    ``interval``: per cent of measured runs that a band around each line holds (see intervals.py), where the line has one.
    ``width``: ``column`` or ``page``, in place of each figure's own.

    Each is written as PNG and PDF; ``captions.txt`` holds the captions.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise SweepError(f"{folder}: cannot be made ({problem.strerror}). Choose another folder.") from None
    results, captions = [], []
    for name, drawing in drawings_of(ds, at, allow, caption, interval, width):
        if isinstance(drawing, str):
            results.append((name, drawing))
            continue
        for kind in FORMATS:
            drawing.save(folder / f"{name}.{kind}")
        captions.append(f"{name}: {drawing.caption}")
        results.append((name, str(folder / f"{name}.png")))
    (folder / "captions.txt").write_text("\n\n".join(captions) + "\n", encoding="utf-8")
    return results


def drawings_of(ds, at=None, allow=None, caption="below", interval=None, width=None):
    """``(name, Drawing)`` of every figure, or ``(name, reason)`` where the dataset cannot fill it."""
    view = selections.select(ds, at)
    plain = {"caption": caption} | ({"width": width} if width else {})
    options = {"allow": allow, "caption": caption} | ({"width": width} if width else {})
    numeric = [
        str(dim) for dim in view.dims if dim in view.coords and view[dim].dtype.kind in "fiu" and view.sizes[dim] > 1
    ]
    worded = [str(dim) for dim in view.dims if dim in view.coords and view[dim].dtype.kind in "OUST"]
    along = [name for name in ("link_gbps", "gpus", "dp", *numeric) if name in numeric]
    few = [
        dim
        for dim in ("accelerator", "model", *worded, *numeric)
        if dim in view.dims and 1 < view.sizes[dim] <= lineplots.MOST
    ]

    longest = sorted(numeric, key=lambda dim: -view.sizes[dim])

    def need(found, what):
        if not found:
            raise SweepError(f"needs {what}")
        return found[0]

    def goal(*dims):
        return need(
            [name for name in GOALS if name in view and set(dims) <= set(view[name].dims)],
            f"{' or '.join(GOALS)} along {', '.join(dims)}",
        )

    def rest(name, shown):
        """at and over for the axes of ``name`` that are not shown; status stands on some of them too."""
        dims = dict.fromkeys((*view[name].dims, *(view["status"].dims if "status" in view else ())))
        left = [str(dim) for dim in dims if dim not in shown]
        over = tuple(dim for dim in left if dim in LAYOUT)
        return usual_slice(view, [dim for dim in left if dim not in over], allow), over

    def headline():
        if {"tokens_per_domain", "achieved_tflops", "required_link_gbps"} <= set(view):
            try:
                return maps.draw_map(view, "tokens_per_domain", "achieved_tflops", "required_link_gbps", **options)
            except SweepError:
                pass
        color, x, y = need(
            [
                (c, a, b)
                for c in COLORS
                if c in view
                for a in longest
                for b in longest
                if a != b and {a, b} <= set(view[c].dims)
            ],
            "two axes of numbers",
        )
        shown = (x, y)
        dims = dict.fromkeys((*view[color].dims, *(view["status"].dims if "status" in view else ())))
        fixed = usual_slice(view, [str(dim) for dim in dims if dim not in shown], allow)
        return maps.draw_map(view, x, y, color, fixed, **options)

    def lines(draw=lineplots.draw_lines, candidates=("link_gbps",), goals=None, **more):
        x = need([name for name in candidates if name in numeric], f"an axis {' or '.join(candidates)}")
        y = goals or goal(x)
        each = next((dim for dim in few if dim != x and dim in view[y].dims), None)
        fixed, over = rest(y, (x, each))
        return draw(view, x, y, each, fixed, over=over, **options, **more)

    def scaling():
        per_gpu = need(
            [name for name in ("tokens_per_s_per_gpu", "mfu") if name in view], "tokens_per_s_per_gpu or mfu"
        )
        return lines(lineplots.draw_scaling, ("gpus", "dp"), per_gpu)

    def grid():
        small = [
            dim
            for dim in ("tp", "pp", "dp", "ep", "cp", *worded, *numeric)
            if dim in view.dims and 1 < view.sizes[dim] <= 12
        ]
        small = list(dict.fromkeys(small))
        if len(small) < 2:
            raise SweepError("needs two axes of at most 12 labels")
        x, y = small[:2]
        color = goal(x, y)
        fixed, over = rest(color, (x, y))
        return barplots.draw_grid(view, x, y, color, fixed, over=over, **options)

    def breakdown():
        axis = need([dim for dim in (*worded, *few) if view.sizes[dim] <= barplots.LONGEST], "an axis of few labels")
        return barplots.draw_breakdown(
            view, axis, usual_slice(view, [dim for dim in view.dims if dim != axis], allow), **options
        )

    def distribution():
        x = need(along, "an axis of numbers")
        y = goal(x)
        fixed = {
            dim: label
            for dim, label in rest(y, (x,))[0].items()
            if dim in ("model", "accelerator", "link_gbps", "seq_len")
        }
        return lineplots.draw_distribution(view, x, y, fixed, **options)

    def requirements():
        facet = next((dim for dim in worded if view.sizes[dim] <= 6), None)
        fixed = usual_slice(view, [dim for dim in view.dims if dim != facet], allow)
        return barplots.draw_requirements(_by_tier(view, facet, fixed, at), fixed, facet=facet, **options)

    def busbw():
        if "size_bytes" in view.dims and "busbw_gbytes_per_s" in view:
            return lineplots.draw_busbw(view, lines=next((dim for dim in few if dim != "size_bytes"), None), **plain)
        inputs = inputs_of(view, {**usual_slice(view, list(view.dims), allow), **(at or {})})
        if inputs is None:
            raise SweepError("needs an axis size_bytes, or the spec that a store carries")
        from . import buses, points

        found = buses.all_reduce(**inputs)
        if found.attrs["ranks"] < 2:
            raise SweepError("needs more than one data-parallel rank")
        x = points.Point.of(**inputs).x
        said = f"All-reduce over {found.attrs['ranks']} data-parallel ranks, {inputs.get('accelerator', 'accelerators')} with a port of {x.link_gbps * 8e-9:g} Gb/s. "
        return lineplots.draw_busbw(found, lines="algorithm", said=said, **plain)

    def timeline():
        inputs = inputs_of(view, {**usual_slice(view, list(view.dims), allow), **(at or {})})
        if inputs is None:
            raise SweepError("needs the spec that a store carries")
        from . import points, timelines

        return timelines.draw_timeline(points.Point.of(**inputs))

    for name, draw in (
        ("map", headline), ("lines", lambda: lines(interval=interval)), ("scaling", scaling), ("grid", grid), ("distribution", distribution),
        ("breakdown", breakdown), ("requirements", requirements), ("busbw", busbw), ("timeline", timeline),
    ):  # fmt: skip
        try:
            yield name, draw()
        except SweepError as reason:
            yield name, str(reason)


def inputs_of(ds, labels):
    """Every input of the point at ``labels`` (axis -> label), as ``sweep.evaluate`` takes them; None where ``ds`` has no spec."""
    from . import recipes

    spec = selections.spec_of(ds)
    if not set(spec.get("axes") or ()) >= set(ds.dims) or "fixed" not in spec:
        return None
    return recipes.inputs_at(spec, {dim: _place(spec["axes"][dim]["labels"], labels[dim]) for dim in spec["axes"]})


def _by_tier(view, facet, fixed, at):
    """``view`` with what each dimension asks of the tiers that are not the port, worked out by the kernels along ``facet``."""
    from . import tiers

    labels = view[facet].values.tolist() if facet else [None]
    inputs = [inputs_of(view, {**fixed, **(at or {}), **({facet: label} if facet else {})}) for label in labels]
    if None in inputs:
        return view
    found = [tiers.of_point(**one) for one in inputs]
    dims = (facet,) if facet else ()
    more = {
        name: (dims, [one[name] for one in found] if facet else found[0][name])
        for name in found[0]
        if name not in view.variables
    }
    return view.assign(more)


def _place(labels, label):
    """Where a label stands; the nearest of numbers."""
    if label in labels:
        return labels.index(label)
    try:
        return int(np.argmin([abs(float(other) - float(label)) for other in labels]))
    except (TypeError, ValueError):
        raise SweepError(f"{label!r} is no single label") from None


def usual_slice(ds, dims, allow=None):
    """Usual labels for ``dims``; those of a layout as most points can run, if with the usual ones clearly fewer can."""
    fixed = {str(dim): usual(ds, dim) for dim in dims}
    codes = selections.allowed(ds, allow)
    free = [
        dim for dim in fixed if dim in LAYOUT and dim in ds.coords and codes is not None and dim in ds["status"].dims
    ]
    if not free:
        return fixed
    valid = selections.select(
        ds["status"].to_dataset().isin(codes),
        {dim: label for dim, label in fixed.items() if dim not in free and dim in ds["status"].dims},
    )
    share = valid["status"].mean([dim for dim in valid["status"].dims if dim not in free]).transpose(*free)
    here = {dim: selections.positions(ds, dim, fixed[dim])[0] for dim in free}
    if float(share.isel(here)) < 0.75 * float(share.max()):
        best = np.unravel_index(int(np.argmax(share.values)), share.shape)
        fixed |= {
            dim: ds[dim].values[index].item() if hasattr(ds[dim].values[index], "item") else ds[dim].values[index]
            for dim, index in zip(free, best)
        }
    return fixed


def usual(ds, dim):
    """The label at which an axis is fixed when nobody says: a usual one if the axis has it, else the middle one."""
    if dim not in ds.coords:
        return ds.sizes[dim] // 2
    labels = ds[dim].values.tolist()
    quantity = quantities.INPUTS.get(dim)
    for label in (USUAL.get(dim), quantity.default if quantity else None):
        if label is not None and any(
            label == other
            or (
                isinstance(label, (int, float))
                and isinstance(other, (int, float))
                and abs(label - other) <= 1e-6 * abs(other)
            )
            for other in labels
        ):
            return label
    return labels[len(labels) // 2]
