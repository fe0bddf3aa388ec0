"""Predicted against measured step times, one point a run: how a validation looks."""

import numpy as np


def draw(rows, path):
    """Draw ``rows`` of a validation report (see validation.py) to a file; unseen rows are filled.  Returns the path."""
    import matplotlib

    matplotlib.use("Agg", force=False)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 6), layout="constrained")
    axes = figure.add_subplot()
    families = sorted({row["family"] for row in rows})
    measured = np.array([row["measured_s"] for row in rows])
    ends = np.array([0.8 * measured.min(), 1.25 * measured.max()])
    axes.plot(ends, ends, color="0.3", lw=0.8)
    axes.fill_between(ends, 0.9 * ends, 1.1 * ends, color="0.9", lw=0, label="within 10 %")
    colours = matplotlib.colormaps["tab20"]
    for k, family in enumerate(families):
        for split, filled in (("fit", False), ("test", True)):
            mine = [row for row in rows if row["family"] == family and (row["split"] == "test") == filled]
            axes.plot(
                [row["measured_s"] for row in mine],
                [row["predicted_s"] for row in mine],
                "o",
                ms=3.5,
                mew=0.6,
                color=colours(k % 20),
                mfc=colours(k % 20) if filled else "none",
                label=family
                if filled or not any(r["family"] == family and r["split"] == "test" for r in rows)
                else None,
            )
    axes.set(
        xscale="log",
        yscale="log",
        xlim=ends,
        ylim=ends,
        xlabel="measured step time, s",
        ylabel="predicted step time, s",
        title=f"{len(rows)} published training runs; filled: no fit saw them",
    )
    axes.legend(fontsize=6, loc="upper left", frameon=False)
    figure.savefig(path, dpi=160)
    return path
