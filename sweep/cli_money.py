"""The verbs about more or less: fabric, economics, serve, capacity, fleet."""

import click

from .console import at_option, cli, opened, say, table_format


class Finite(click.FloatRange):
    """A number within bounds; neither NaN nor infinite."""

    def convert(self, value, param, ctx):
        number = super().convert(value, param, ctx)
        if number != number or abs(number) == float("inf"):
            self.fail(f"{value} is no number to count with. Write a finite one.", param, ctx)
        return number


POSITIVE, NOT_NEGATIVE = Finite(0.0, 1e9, min_open=True), Finite(0.0, 1e9)


@cli.command()
@click.option("--gpus", type=click.IntRange(1), required=True, help="Accelerators.")
@click.option("--link-gbps", type=Finite(0.0, 1e6, min_open=True), default=400.0, show_default=True, help="Port per accelerator, Gb/s.")
@click.option(
    "--networks", default="all", show_default=True, help="all, compute, or some of storage,in-band,out-of-band."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="An input: fabric_design, planes, prices, ... Repeatable.",
)
@click.option("--draw", metavar="FILE", help="Draw the topology: .svg, .png or .pdf.")
@table_format()
def fabric(gpus, link_gbps, networks, settings, draw, format):
    """Switches, cables, dollars and watts of a cluster's networks; draws the topology.

    \b
    Example:
      sweep fabric --gpus 1024 --link-gbps 400
      sweep fabric --gpus 1024 --link-gbps 400 --draw fabric.svg
      sweep fabric --gpus 16384 --set fabric_design=rail-only --set switch_gbps=25600
    """
    from . import fabrics, tables

    wanted, given = networks if networks in ("all", "compute") else tuple(networks.split(",")), _settings(settings)
    for name in {"gpus", "link_gbps"} & set(given):
        raise click.BadParameter(f"{name} is an option of its own. Write --{name.replace('_', '-')} {given[name]}.", param_hint="--set")
    design = fabrics.design(gpus, link_gbps, wanted, **given)
    say(design.words())
    if draw:
        from . import topologies

        topologies.draw(design, draw)
        say(f"drawn in {draw}")
    click.echo(tables.render(design.rows(), format))


@cli.command()
@click.argument("store")
@at_option
@click.option("--draw", metavar="FILE", help="Draw cost over the port, a line per accelerator (or --lines).")
@click.option("--lines", metavar="AXIS", default="accelerator", show_default=True, help="The lines of --draw and --worth, the rows of --ranges.")
@click.option(
    "--map", "map_path", metavar="FILE", help="Draw a map of the cheapest port over the two axes that are left."
)
@click.option("--ranges", metavar="FILE", help="Draw the cheapest ports and those within 1 %, a row per accelerator (or --lines).")
@click.option("--worth", metavar="FILE", help="Draw what one more Gb/s is worth against what it costs.")
@click.option(
    "--flat", type=Finite(0.0, 1.0), default=0.01, show_default=True, help="Share of the least cost within which ports are equal."
)
@click.option(
    "--allow", multiple=True, metavar="REASON", help="A reason of status that does not disqualify. Repeatable."
)
@table_format()
def economics(store, at, draw, lines, map_path, ranges, worth, flat, allow, format):
    """The port at which a token costs least, the flat region around it, and what the next Gb/s is worth.

    \b
    Example:
      sweep run cost-optimal
      sweep economics cost-optimal --at model=llama-3-70b --at gpus=1024 --at tp=8 --at zero_stage=0
      sweep economics more-or-less --map more-or-less.png
      sweep economics cost-optimal --at model=llama-3-70b --at gpus=1024 --at tp=8 --at zero_stage=0 --ranges ranges.png
    """
    import sys

    from . import economics as question
    from . import exports, selections

    ds, at = opened(store), selections.parse_at(at)
    frame = question.table(ds, flat, at, allow)
    if len(frame) == 1:
        say(question.words(ds, at, allow))
    if draw or map_path or ranges or worth:
        from . import costplots

        for path, figure in ((draw, costplots.draw_costs), (ranges, costplots.draw_ranges), (worth, costplots.draw_worth)):
            if path:
                say(figure(ds, lines, at, path, allow=allow).caption)
        if map_path:
            say(costplots.draw_ports(ds, at=at, path=map_path, allow=allow).caption)
    exports.write_frame(frame, format, sys.stdout)


@cli.command()
@click.argument("inputs", nargs=-1, metavar="NAME=VALUE ...")
@click.option("--draw", metavar="FILE", help="Draw the port that each exchange requires: .svg, .png or .pdf.")
@table_format()
def serve(inputs, draw, format):
    """Serving one model in the usual ways: time per token, first token, and the port that each needs.

    \b
    Example:
      sweep serve model=llama-3-70b accelerator=h100
      sweep serve model=deepseek-v3 accelerator=h800 dispatch_bytes=1 param_bytes=1 decode_batch=64
      sweep serve model=llama-3-70b accelerator=h100 / model=deepseek-v3 accelerator=h800 --draw patterns.png
    """
    from . import servings, tables

    groups, rows = [], []
    for given in map(_settings, _split(inputs)):
        model, accelerator = (_named(given, name) for name in ("model", "accelerator"))
        found = servings.patterns(model, accelerator, **given)
        say(servings.words(model, accelerator, found, **given))
        groups.append(servings.group(model, accelerator, found, **given))
        rows += [{"model": model, **row} for row in found]
    if draw:
        from . import moneyplots

        moneyplots.draw_patterns(groups, draw)
        say(f"drawn in {draw}")
    click.echo(tables.render(rows, format))


def _split(inputs):
    """Inputs of each model: a slash of its own begins another one."""
    parts = [[]]
    for word in inputs:
        if word == "/":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _named(given, name):
    from .errors import SpecError

    if not isinstance(given.get(name), str):
        raise SpecError(f"sweep serve: no {name}. Write {name}=..., such as sweep serve model=llama-3-70b accelerator=h100.")
    return given.pop(name)


@cli.command()
@click.option("--gpus", type=click.IntRange(1), required=True, help="Accelerators there are.")
@click.option("--gangs", default="8", show_default=True, help="Accelerators that jobs ask for, such as 8,64,256.")
@click.option("--shares", help="Share of jobs of each gang, such as 6,3,1.  [default: equal]")
@click.option("--job-hours", type=POSITIVE, default=24.0, show_default=True, help="Mean duration of a job.")
@click.option(
    "--duration-cv", type=NOT_NEGATIVE, default=1.0, show_default=True, help="Variation of durations (0: all equal)."
)
@click.option("--arrival-cv", type=NOT_NEGATIVE, default=1.0, show_default=True, help="Variation of arrivals (1: at random).")
@click.option("--target-hours", type=POSITIVE, default=4.0, show_default=True, help="Wait that is still acceptable, mean.")
@click.option("--busy", type=POSITIVE, help="Accelerators busy on average today: what to order for next quarter.")
@click.option(
    "--growth", type=Finite(-1.0, 1e3, min_open=True), default=0.0, show_default=True, help="Expected growth of that demand (0.3: 30 %)."
)
@click.option("--forecast-cv", type=NOT_NEGATIVE, default=0.1, show_default=True, help="How uncertain the forecast is.")
@click.option("--draw", metavar="FILE", help="Draw the utilisation that target waits allow over the size of the pool.")
@click.option("--pools", metavar="DEMANDS", help="Busy accelerators of each team, such as 100,200,300: one pool or several?")
@click.option(
    "--usd-per-gpu-hour", type=NOT_NEGATIVE, default=2.0, show_default=True, help="What an hour costs, used or idle."
)
@table_format()
def capacity(
    gpus,
    gangs,
    shares,
    job_hours,
    duration_cv,
    arrival_cv,
    target_hours,
    busy,
    growth,
    forecast_cv,
    draw,
    pools,
    usd_per_gpu_hour,
    format,
):
    """How full a cluster may run, how long jobs wait, and how many accelerators to order.

    \b
    Example:
      sweep capacity --gpus 1024 --gangs 8,64,256 --shares 6,3,1 --target-hours 4
      sweep capacity --gpus 1024 --gangs 8,64 --busy 700 --growth 0.3
      sweep capacity --gpus 1024 --pools 100,200,300 --draw ceiling.png
    """
    from . import capacities, tables

    gangs = _numbers("--gangs", gangs, 1.0)
    shares = _numbers("--shares", shares) if shares else (1.0,) * len(gangs)
    demands = _numbers("--pools", pools) if pools else ()
    mix = capacities.Mix(gangs, shares, job_hours, duration_cv, arrival_cv)
    say(capacities.words(gpus, target_hours, mix))
    if busy is not None:
        found = capacities.order(busy, growth, gpus, target_hours, mix, forecast_cv, usd_per_gpu_hour=usd_per_gpu_hour)
        say(
            f"For next quarter have {found.gpus:,.0f}: order {found.to_order:,.0f}. They will be {found.utilisation:.0%} busy; "
            f"the idle ones cost {found.idle_usd_per_month:,.0f} USD a month."
        )
    if demands:
        say(capacities.pool_words(demands, target_hours, mix))
    if draw:
        from . import moneyplots

        moneyplots.draw_ceiling(mix, draw, gpus=gpus)
        say(f"drawn in {draw}")
    click.echo(tables.render(capacities.waits(gpus, mix, usd_per_gpu_hour=usd_per_gpu_hour), format))


@cli.command()
@click.option("--peak", type=POSITIVE, required=True, help="Requests per second at the peak.")
@click.option("--seconds", type=POSITIVE, required=True, help="Seconds that a request is served, mean (first to last token).")
@click.option("--concurrency", type=click.IntRange(1), default=1, show_default=True, help="Requests that a replica serves at once.")
@click.option("--target-s", type=POSITIVE, default=1.0, show_default=True, help="Seconds that 99 % of requests wait at most for a place.")
@click.option("--headroom", type=NOT_NEGATIVE, default=0.0, show_default=True, help="Demand above the peak (0.3: 30 %), for failures and forecast.")
@click.option("--arrival-cv", type=NOT_NEGATIVE, default=1.0, show_default=True, help="Variation of arrivals (1: at random).")
@click.option("--service-cv", type=NOT_NEGATIVE, default=1.0, show_default=True, help="Variation of the seconds of a request.")
@table_format()
def fleet(peak, seconds, concurrency, target_s, headroom, arrival_cv, service_cv, format):
    """Replicas of a serving fleet: waits of requests against utilisation.

    \b
    Example:
      sweep fleet --peak 200 --seconds 10 --concurrency 64 --target-s 0.5 --headroom 0.3
    """
    from . import capacities, tables

    demand = capacities.Demand(peak, seconds, concurrency, headroom, arrival_cv, service_cv)
    say(capacities.fleet_words(demand, target_s))
    click.echo(tables.render(capacities.fleet_waits(demand, target_s), format))


def _settings(assignments):
    """name=value, values as in YAML."""
    from . import presets
    from .errors import SpecError

    found = {}
    for text in assignments:
        name, equals, value = str(text).partition("=")
        if not equals or not name:
            raise SpecError(f"{text!r} has no '='. Write name=value, such as switch_gbps=25600.")
        found[name.strip()] = presets.parse_yaml(value, name)
    return found


def _numbers(option, text, least=None):
    """Numbers with commas between them, above 0 or at least ``least``."""
    from .errors import SpecError

    try:
        found = tuple(float(word) for word in str(text).split(","))
    except ValueError:
        raise SpecError(f"{option} {text}: is no list of numbers. Write {option} 8,64,256.") from None
    for number in found:
        if not (number >= least if least else number > 0) or number == float("inf"):
            raise SpecError(f"{option} {text}: {number:g} is not {f'at least {least:g}' if least else 'above 0'}. Write {option} 8,64,256.")
    return found
