"""The verbs about asking, seeing and publishing a saved sweep: query, map, gallery, export, paper."""

import sys

import click

from .console import allow_option, at_option, cli, opened, say, table_format
from .errors import StoreError


@cli.command()
@click.argument("store")
@click.option("--where", metavar="EXPR", help="Points to look at, such as 'tp * pp <= 16'.")
@at_option
@click.option("--best", metavar="NAME", help="The best points by NAME (or min:NAME, max:NAME).")
@click.option("--top", type=click.IntRange(1), default=1, show_default=True, help="How many of the best.")
@click.option("--over", metavar="AXES", help="Axes that --best searches; one answer for each combination of the others.")
@click.option("--pareto", metavar="NAMES", help="Points that none beats in all of NAMES.")
@click.option("--crossover", metavar="NAME=VALUE", help="Where NAME crosses VALUE, a number or another quantity, with --along.")
@click.option("--along", metavar="AXIS", help="The axis of --crossover.")
@click.option("--sensitivity", metavar="NAME", help="How much each axis moves NAME: shares of its variance, elasticity.")
@click.option("--group-by", metavar="NAMES", help="Groups to count, or to search with --best and --pareto.")
@click.option("--count", is_flag=True, help="How many points match.")
@click.option("--columns", metavar="NAMES", help="Names to show.")
@click.option("--limit", type=click.IntRange(0), default=100, show_default=True, help="Rows at most; 0: all.")
@click.option("--interval", type=int, metavar="PERCENT", help="Beside step times, the ends that so many measured runs lie between; such as 80.")
@allow_option
@table_format("parquet")
def query(store, at, allow, limit, format, **asked):
    """Ask a saved sweep: points, counts, winners, fronts, crossings, sensitivities.

    \b
    Example:
      sweep query quickstart --best required_link_gbps --over link_gbps
      sweep query quickstart --where "exposed_fraction > 0.1" --count
      sweep query quickstart --crossover exposed_fraction=0.02 --along link_gbps
      sweep query quickstart --group-by bottleneck --format csv
      sweep query quickstart --best step_time_s --interval 80
    """
    from . import exports, queries, selections

    frame = queries.query(opened(store), at=selections.parse_at(at), allow=allow, limit=limit or None, **asked)
    for note in frame.attrs["notes"]:
        say(note)
    exports.write_frame(frame, format, sys.stdout)


@cli.command("map")
@click.argument("store")
@click.option("--x", required=True, metavar="NAME", help="An axis, or a quantity that varies along one axis only.")
@click.option("--y", required=True, metavar="NAME", help="The same for the other direction.")
@click.option("--color", required=True, metavar="NAME", help="The quantity drawn as contours.")
@at_option
@click.option("--facet", metavar="AXIS", help="An axis drawn as panels side by side.")
@click.option("--interval", type=int, metavar="PERCENT", help="Of a step time and its like: dotted, how far each contour may move.")
@click.option("--width", type=click.Choice(["column", "page"]), default="column", show_default=True, help="Of one or two columns.")
@click.option("--caption", type=click.Choice(["below", "none"]), default="below", show_default=True, help="Drawn below, or left out.")
@allow_option
@click.option("-o", "--output", required=True, metavar="FILE", help="A .pdf, .svg or .png.")
def draw_map(store, x, y, color, at, output, **options):
    """A map: two axes, a third quantity as filled contours (cells, where an axis has words).

    \b
    Example:
      sweep map iso-line --x tokens_per_domain --y achieved_tflops --color required_link_gbps -o map.png
      sweep map quickstart --x link_gbps --y tp --color exposed_fraction --at model=llama-3-70b --at accelerator=h100 -o exposed.pdf
    """
    from . import maps, selections

    drawing = maps.draw_map(opened(store), x, y, color, selections.parse_at(at), output, **options)
    say(drawing.caption)
    click.echo(output)


@cli.command()
@click.argument("store")
@at_option
@allow_option
@click.option("--caption", type=click.Choice(["below", "none"]), default="below", show_default=True, help="Drawn below, or left out.")
@click.option("--width", type=click.Choice(["column", "page"]), help="Of one or two columns of a paper (default: as each figure needs).")
@click.option("--interval", type=int, metavar="PERCENT", help="Around lines of step time and its like, the band that so many measured runs lie in.")
@click.option("-o", "--output", default="outputs/figures", show_default=True, metavar="FOLDER", help="Where they go.")
@table_format()
def gallery(store, at, allow, caption, interval, width, output, format):
    """Every figure that a store can fill, as PNG and PDF with their captions.

    \b
    Example:
      sweep gallery quickstart -o figures
      sweep gallery quickstart --interval 80 -o figures
      sweep gallery why-400g --at model=llama-3-70b --at seq_len=8192
    """
    from . import galleries, selections, tables

    drawn = galleries.gallery(opened(store), output, selections.parse_at(at), allow, caption, interval, width)
    click.echo(tables.render([{"figure": name, "drawn": found} for name, found in drawn], format))


@cli.command()
@click.argument("store")
@click.option("--where", metavar="EXPR", help="Points to write, such as 'tp * pp <= 16'.")
@at_option
@click.option("--columns", metavar="NAMES", help="Names to write.")
@click.option("--best", metavar="NAME", help="Only the best points, with --over; as in query.")
@click.option("--over", metavar="AXES", help="Axes that --best searches.")
@click.option("--pareto", metavar="NAMES", help="Only points that none beats in all of NAMES.")
@click.option("--limit", type=click.IntRange(1), help="Rows at most.")
@allow_option
@click.option("-o", "--output", required=True, metavar="FILE", help="A .csv, .parquet, .nc or .tex.")
def export(store, output, at, allow, **asked):
    """Write points or winners for other tools, with their provenance beside (FILE.provenance.json).

    \b
    Example:
      sweep export quickstart -o quickstart.parquet --where "exposed_fraction < 0.02"
      sweep export quickstart -o best.tex --best min:required_link_gbps --over tp,link_gbps
    """
    from . import exports, selections

    asked = {key: value for key, value in asked.items() if value is not None}
    click.echo(exports.export(opened(store), output, at=selections.parse_at(at), allow=allow, **asked))


@cli.command()
@click.argument("store")
@at_option
@allow_option
@click.option("--against", metavar="BUNDLE", help="A bundle made before: same slice, every number compared.")
@click.option("-o", "--output", required=True, metavar="FOLDER", help="Where the bundle goes.")
@table_format()
def paper(store, at, allow, against, output, format):
    """A bundle for a paper: figures, their data, captions and numbers for LaTeX, methods, config, and a Makefile that checks it.

    \b
    Example:
      sweep paper iso-line -o paper
      sweep paper rerun.zarr -o rerun --against paper
    """
    from . import papers, selections, tables

    slice_at = selections.parse_at(at)
    if against:
        slice_at, allow = papers.settings_of(against)
    parts = papers.paper(opened(store), output, slice_at, allow)
    if not against:
        click.echo(tables.render([{"part": name, "found": found} for name, found in parts], format))
        return
    differences = papers.check(against, output)
    for text in differences:
        click.echo(text)
    if differences:
        raise StoreError(f"{store}: {len(differences)} differences from {against}.")
    say(f"every number and figure's data as in {against}")


@cli.command()
@click.argument("store")
@click.option("--x", metavar="NAME", help="First view: an axis, or a quantity along one axis.")
@click.option("--y", metavar="NAME", help="The same for the other direction; '' for a curve.")
@click.option("--color", metavar="NAME", help="First view: the quantity drawn.")
@at_option
@click.option("--where", metavar="EXPR", help="First view: points to look at, such as 'tp * pp <= 16'.")
@click.option("--columns", metavar="NAMES", help="With --static: outputs to take along (default: all).")
@click.option("--static", metavar="FOLDER", help="Write FOLDER/index.html, a page that needs no server and no network, and stop.")
@click.option("--port", type=click.IntRange(1, 65535), default=8400, show_default=True, help="Of the server, on this machine alone.")
@click.option("--browser/--no-browser", default=True, show_default=True, help="Open the page in the browser.")
def explore(store, at, static, columns, port, browser, **first):
    """A saved sweep in the browser: maps, sliders, the port dragged live, any point opened up.

    \b
    Example:
      sweep explore why-400g
      sweep explore iso-line --x tokens_per_domain --y achieved_tflops --color required_link_gbps
      sweep explore iso-line --static supplement
    """
    from . import explorer, selections

    at = selections.parse_at(at)
    words = {name: value for name, value in first.items() if value is not None}
    if static:
        click.echo(explorer.write_static(store, static, at, words, columns.replace(" ", "").split(",") if columns else None))
        return
    words |= {f"at.{name}": str(value) for name, value in at.items()}
    try:
        explorer.explore(store, port, words, lambda address: say(f"{address}\nCtrl-C stops it."), browser)
    except KeyboardInterrupt:
        say("stopped.")
