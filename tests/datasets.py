"""Small labelled Datasets as a store gives them: axes of words and numbers, ties, NaN, infinities, status, zone maps."""

import itertools

import numpy as np
import xarray as xr

from sweep._kernels import quantities

MODELS = ("llama-3-8b", "llama-3-70b", "deepseek-v3", "gpt-3-175b")


def attributes(name):
    row = quantities.OUTPUTS.get(name) or quantities.INPUTS[name]
    attrs = {"units": row.unit, "long_name": row.long_name}
    if row.kind == "category":
        flags = dict(enumerate(row.choices))
        if name == "status":
            flags[quantities.EXCLUDED] = "excluded"
        attrs |= {"flag_values": list(flags), "flag_meanings": " ".join(flags.values())}
    return attrs


def make(seed=0, shape=(3, 4, 5), chunks=None, zones=True, spread=6):
    """model x tp x link_gbps; ``spread`` different step times, so that ties abound; ``chunks`` cut the axes."""
    rng = np.random.default_rng(seed)
    dims = ("model", "tp", "link_gbps")
    ds = xr.Dataset(
        {
            "step_time_s": (dims, rng.integers(1, spread + 1, shape).astype("f4") / 8),
            "required_link_gbps": (dims[:2], rng.integers(1, 9, shape[:2]).astype("f4") * 100),
            "mfu": (dims, rng.random(shape).astype("f4")),
            "memory_bytes": (dims[1:2], np.arange(1, shape[1] + 1).astype("f4") * 1e9),
            "bottleneck": (dims, rng.integers(0, 3, shape).astype("u1")),
            "status": (dims[:2], rng.choice([0, 0, 0, 1, 9, 254], shape[:2]).astype("u1")),
        },
        {
            "model": np.array(MODELS[: shape[0]], object),
            "tp": 2 ** np.arange(shape[1]),
            "link_gbps": 50.0 * 2 ** np.arange(shape[2]),
            "layers": ("model", np.arange(1, shape[0] + 1) * 16.0),
        },
        {"title": "made up", "spec": '{"fixed": {"seq_len": 8192, "rails": "all"}, "presets": {"accelerator": "h100"}}'},
    )
    step = ds.step_time_s.values
    step[rng.random(shape) < 0.1] = np.inf
    step[rng.random(shape) < 0.1] = np.nan
    step[(ds.status.values == 1)] = np.nan
    for name in (*ds.data_vars, *ds.coords):
        ds[name].attrs.update(attributes(name) if name != "model" else {"units": "1", "long_name": "model"})
    if chunks:
        lengths = dict(zip(dims, chunks))
        for name, array in ds.data_vars.items():
            array.encoding["chunks"] = tuple(min(lengths[dim], array.sizes[dim]) for dim in array.dims)
        if zones:
            ds.encoding["zones"] = lambda: zone_maps(ds)
    return ds


def zone_maps(ds):
    """name -> (dims, chunk lengths, least, largest), NaN where a chunk has no value."""
    found = {}
    for name, array in ds.data_vars.items():
        lengths = array.encoding["chunks"]
        grid = [-(-n // length) for n, length in zip(array.shape, lengths)]
        least, largest = np.full(grid, np.nan), np.full(grid, np.nan)
        for index in itertools.product(*map(range, grid)):
            box = array.values[tuple(slice(i * n, (i + 1) * n) for i, n in zip(index, lengths))].astype(float)
            if not np.isnan(box).all():
                least[index], largest[index] = np.nanmin(box), np.nanmax(box)
        found[name] = array.dims, lengths, least, largest
    return found


def frame(ds, allow=("ok",)):
    """Every point of a Dataset as a row, plainly: what queries are checked against."""
    full = xr.broadcast(*(ds[name] for name in ds.data_vars))
    table = xr.Dataset({array.name: array for array in full}).to_dataframe(dim_order=["model", "tp", "link_gbps"]).reset_index()
    words = dict(zip(ds.status.attrs["flag_values"], ds.status.attrs["flag_meanings"].split()))
    return table[table.status.map(words).isin(allow)]


def iso(points=25):
    """The headline map's shape with the first-order law alone: micro_batch x peak_tflops, some of it not fitting."""
    batch, peak = np.geomspace(1 / 16, 16, points), np.geomspace(80, 5120, points)
    law = 8 * 0.4 * peak * 1e3 / (8192 * batch[:, None])
    ds = xr.Dataset(
        {
            "required_link_gbps": (("micro_batch", "peak_tflops"), (1.1 * law).astype("f4")),
            "first_order_link_gbps": (("micro_batch", "peak_tflops"), law.astype("f4")),
            "tokens_per_domain": ("micro_batch", (8192 * batch).astype("f4")),
            "achieved_tflops": ("peak_tflops", (0.4 * peak).astype("f4")),
            "binding_dimension": (("micro_batch", "peak_tflops"), (law > 400).astype("u1")),
            "status": ("micro_batch", np.where(batch > 8, 9, 0).astype("u1")),
        },
        {"micro_batch": batch, "peak_tflops": peak},
        {"title": "iso", "spec": '{"fixed": {"tp": 8, "dp": 4096, "rails": "all"}, "presets": {"model": "llama-3-70b"}}', "spec_sha256": "abc"},
    )
    for name in ds.variables:
        ds[name].attrs.update(attributes(name))
    return ds
