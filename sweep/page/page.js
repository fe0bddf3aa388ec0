// The page: what is chosen (and held by the address), the controls, the figure's keys and clicks, downloads.

const about = JSON.parse(document.getElementById("about").textContent);
const source = about.arrays ? new Enclosed(about) : new Served(about);
const $ = (id) => document.getElementById(id);
const LINK = "link_gbps", STEPS = 48; // of the port's slider to a doubling
const state = { x: "", y: "", color: "", where: "", allow: "", cells: false, at: {}, pick: null };
let slice = null, figure = null, cursor = null, pending = null, opening = null, wanted = false, drawn = 0, before = null, unmoved = false;

const axisOf = (name) => about.axes.find((axis) => axis.name === name);
const dimOf = (name, side) => (axisOf(name) ? name : slice && slice[side] && slice[side].name === name ? slice[side].dim : null);

// -- the address ----------------------------------------------------------------------------------------------------------

function read(words) {
  for (const key of ["x", "y", "color", "where", "allow"]) state[key] = words[key] ?? "";
  state.cells = words.drawn === "cells";
  state.pick = /^\d+,\d+$/.test(words.pick || "") ? words.pick.split(",").map(Number) : null;
  state.at = Object.fromEntries(Object.entries(words).filter(([key]) => key.startsWith("at.")).map(([key, value]) => [key.slice(3), value]));
}

function words(full) {
  const said = { x: state.x, y: state.y, color: state.color };
  if (state.where) said.where = state.where;
  if (state.allow) said.allow = state.allow;
  for (const [name, label] of Object.entries(state.at)) said[`at.${name}`] = label;
  if (full && state.cells) said.drawn = "cells";
  if (full && state.pick) said.pick = state.pick.join(",");
  return said;
}

const keep = () => history.replaceState(null, "", `?${new URLSearchParams(words(true))}`);

// -- controls -------------------------------------------------------------------------------------------------------------

function options(select, groups, value) {
  select.replaceChildren(...groups.map(([label, items]) => {
    const made_ = items.map(({ name, label: text }) => made("option", name === "" ? text : name.replaceAll("_", " "), { value: name, title: text }));
    return label ? made("optgroup", made_, { label }) : made_[0];
  }).filter(Boolean));
  select.value = value;
}

function buildControls() {
  const numbers = about.outputs.filter((one) => !one.words), quantities = [...about.columns, ...numbers];
  const sides = [["axes", about.axes], ["quantities along one axis", quantities]].filter(([, items]) => items.length);
  options($("x"), sides, state.x);
  options($("y"), [["", [{ name: "", label: "(none: a curve)" }]], ...sides], state.y);
  options($("color"), [["quantities", numbers], ["in words", about.outputs.filter((one) => one.words)]].filter(([, items]) => items.length), state.color);
  $("where").value = state.where;
  $("cells").checked = state.cells;
  $("memory").checked = state.allow === "memory";
  $("memory-line").hidden = !about.reasons.includes("memory") || !about.outputs.some((one) => one.name === "status");
  if (!source.live) for (const part of document.querySelectorAll("#limits > .wide, #limits > small")) part.hidden = true;
  if (!source.live && $("memory-line").hidden) $("limits").hidden = true;
}

// A slider (numbers) or a list (words) for every axis that is neither x nor y; the port moves freely where kernels answer.
function buildSlices() {
  const taken = [dimOf(state.x, "x"), dimOf(state.y, "y")], place = $("slices"), kept = document.activeElement && document.activeElement.id;
  const rows = about.axes.filter((axis) => !taken.includes(axis.name) && axis.name !== LINK).map(sliceOf);
  const port = taken.includes(LINK) ? [] : about.moves ? portOf() : axisOf(LINK) ? [sliceOf(axisOf(LINK))] : [];
  $("port").replaceChildren(...port);
  place.replaceChildren(made("legend", "Slice"), ...rows);
  place.hidden = !rows.length;
  if (kept && $(kept)) $(kept).focus();
}

function sliceOf(axis) {
  const id = `at-${axis.name}`, name = axis.name.replaceAll("_", " "), chosen = positionOf(axis);
  if (typeof axis.values[0] === "string") {
    const select = made("select", axis.values.map((value) => made("option", value, { value })), { id });
    select.value = axis.values[chosen];
    select.addEventListener("change", () => change(() => { state.at[axis.name] = select.value; }));
    return made("label", [made("span", name), select], { class: "slice", for: id });
  }
  const output = made("output", amount(axis.values[chosen], axis.unit));
  const range = made("input", null, { id, type: "range", min: 0, max: axis.values.length - 1, step: 1, value: chosen, "aria-valuetext": amount(axis.values[chosen], axis.unit) });
  range.addEventListener("input", () => {
    const value = axis.values[range.value];
    output.textContent = amount(value, axis.unit);
    range.setAttribute("aria-valuetext", output.textContent);
    change(() => { state.at[axis.name] = String(value); });
  });
  return made("label", [made("span", [name, output]), range], { class: "slice", for: id });
}

function positionOf(axis) {
  const label = state.at[axis.name];
  if (label === undefined) return about.picks[axis.name];
  const found = axis.values.findIndex((v) => (typeof v === "string" ? v === label : Math.abs(v - Number(label)) <= 1e-6 * Math.abs(v)));
  return found < 0 ? about.picks[axis.name] : found;
}

// The port: 48 stops to a doubling, the ports that are sold among them; a label of the store where one is as near.
function portOf() {
  const axis = axisOf(LINK), labels = axis ? axis.values : about.port ? [about.port] : [];
  const low = Math.min(about.span[0], ...labels), high = Math.max(about.span[1], ...labels), count = Math.round(Math.log2(high / low) * STEPS);
  const now = Number(state.at[LINK] ?? (axis ? labels[about.picks[LINK]] : about.port ?? 400));
  const output = made("output", amount(Number(now.toPrecision(4)), "Gb/s"));
  const range = made("input", null, { id: `at-${LINK}`, type: "range", min: 0, max: count, step: 1, value: Math.round(Math.log2(now / low) * STEPS), "aria-valuetext": amount(now, "Gb/s") });
  range.addEventListener("input", () => {
    const raw = low * 2 ** (range.value / STEPS), near = [...labels, ...about.palette.ports].find((label) => Math.abs(Math.log2(label / raw)) < 0.49 / STEPS);
    const port = near ?? Number(raw.toPrecision(4));
    output.textContent = amount(Number(port.toPrecision(4)), "Gb/s");
    range.setAttribute("aria-valuetext", output.textContent);
    change(() => { state.at[LINK] = String(port); });
  });
  const rungs = made("div", about.palette.ports.filter((port) => port >= low && port <= high).map((port) => {
    const tick = made("i", String(port));
    tick.style.left = `${(100 * Math.log2(port / low)) / Math.log2(high / low)}%`;
    return tick;
  }), { class: "rungs", "aria-hidden": "true" });
  return [made("label", [made("span", ["port, link gbps", output]), range], { class: "slice", for: `at-${LINK}` }), rungs];
}

// -- drawing --------------------------------------------------------------------------------------------------------------

// Every change passes here.  One question is under way at a time; the last one wanted follows, those between are dropped.
function change(act, keepPick) {
  act();
  if (!keepPick) closePoint();
  keep();
  refresh();
}

async function refresh() {
  if (pending) { wanted = true; return; }
  wanted = false;
  pending = words(false);
  $("figure").classList.add("waiting");
  try {
    const next = await source.slice(pending);
    unmoved = slice !== null && before !== null && onlyPort(before, pending) && next.values.every((value, i) => Object.is(value, slice.values[i]));
    [slice, before] = [next, pending];
    complain("");
    draw();
  } catch (problem) {
    if (!(problem instanceof Failure)) throw problem;
    complain(problem.message);
  } finally {
    pending = null;
    $("figure").classList.remove("waiting");
  }
  if (wanted) refresh();
}

// Whether two questions differ in the port and in nothing else.
function onlyPort(one, other) {
  const rest = (words) => JSON.stringify(Object.entries(words).filter(([key]) => key !== `at.${LINK}`).sort());
  return rest(one) === rest(other) && one[`at.${LINK}`] !== other[`at.${LINK}`];
}

function complain(text) {
  $("error").textContent = text;
  $("error").hidden = !text;
}

function draw() {
  if (!slice) return;
  buildSlicesIfMoved();
  drawn = $("figure").clientWidth;
  figure = drawFigure($("figure"), slice, about, state.cells);
  $("caption").textContent = captionOf();
  $("figure").setAttribute("aria-label", `${slice.color.label} over ${slice.x.label}${slice.y ? ` and ${slice.y.label}` : ""}`);
  cursor = cursor && cursor[0] < slice.nx && cursor[1] < slice.ny ? cursor : null;
  if (state.pick) figure.mark(...state.pick, "chosen");
  say(cursor || state.pick);
}

let built = "";
function buildSlicesIfMoved() {
  const now = [slice.x.dim, slice.y && slice.y.dim].join();
  if (now !== built) { built = now; buildSlices(); }
}

function slicePhrases() {
  const taken = [slice.x.dim, slice.y && slice.y.dim], phrases = [];
  for (const axis of about.axes) if (!taken.includes(axis.name) && axis.name !== LINK) phrases.push(`${axis.name.replaceAll("_", " ")} ${amount(axis.values[positionOf(axis)], axis.unit)}`);
  if (!taken.includes(LINK) && (axisOf(LINK) || about.port || state.at[LINK])) {
    const axis = axisOf(LINK), port = state.at[LINK] ?? (axis ? axis.values[about.picks[LINK]] : about.port);
    phrases.push(`port ${amount(Number(Number(port).toPrecision(4)), "Gb/s")}`);
  }
  return phrases;
}

function captionOf() {
  const out = slice.counted.reduce((sum, one) => sum + !one, 0), total = slice.counted.length, parts = slicePhrases();
  let text = parts.length ? `At ${parts.join(", ")}. ` : "";
  if (hasMarks(slice, about)) text += `Points: ${about.marks.note}; lighter than the ground around is short of port. `;
  if (state.where) text += `Looked at: ${state.where}. `;
  if (out) text += `Hatched: ${out.toLocaleString("en-US")} of ${total.toLocaleString("en-US")} points that cannot run, do not fit or were left out. `;
  if (unmoved) text += "The port does not move this quantity. ";
  if (slice.seconds !== null) text += `${slice.link === null ? "Read from the store" : "Computed by the kernels"} in ${digits(Math.max(1, Math.round(1e3 * slice.seconds)))} ms.`;
  return text;
}

// -- a point --------------------------------------------------------------------------------------------------------------

function phrase(column, row) {
  const i = row * slice.nx + column, value = slice.values[i];
  const shown = slice.color.words ? slice.color.words[value] || "-" : amount(value, slice.color.unit);
  const names = [[slice.x, column], [slice.y, row]].filter(([side]) => side).map(([side, k]) => `${side.label} ${amount(side.values[k], side.unit)}`);
  const why = slice.counted[i] || !slice.status ? "" : called(about, "status").words[slice.status[i]] || "";
  return `${slice.color.label} ${shown} at ${names.join(", ")}${slice.counted[i] ? "" : ` (${why && why !== "ok" ? why : "left out"})`}`;
}

function say(spot) {
  const known = spot && spot[0] < slice.nx && spot[1] < slice.ny;
  const down = state.pick ? [" ", made("a", "opened up below", { href: "#details", class: "down" })] : [];
  $("reading").replaceChildren(...(known ? [phrase(...spot), ...down] : []));
}

function move(spot) {
  cursor = spot;
  figure.mark(...spot, "cursor");
  say(spot);
}

function closePoint() {
  if (opening) opening.abort();
  opening = null;
  if (!state.pick) return;
  state.pick = null;
  $("details").replaceChildren(made("h2", "A point"), made("p", "Nothing is chosen.", { class: "hint" }));
}

async function choose(spot, focus) {
  if (opening) opening.abort();
  opening = new AbortController();
  const { signal } = opening;
  state.pick = spot;
  keep();
  figure.mark(...spot, "chosen");
  say(spot);
  const title = [phrase(...spot), ...slicePhrases()].join(", ");
  try {
    if (focus) $("details").focus({ preventScroll: false });
    await openPoint($("details"), source, { ...words(false), pick: spot.join(",") }, `${title}.`, signal);
  } catch (problem) {
    if (problem.name === "AbortError") return;
    if (!(problem instanceof Failure)) throw problem;
    complain(problem.message);
  }
}

function onKey(event) {
  if (!slice || !figure) return;
  const [column, row] = cursor || state.pick || [Math.floor((slice.nx - 1) / 2), Math.floor((slice.ny - 1) / 2)];
  const up = (side) => (side && typeof side.values[0] !== "string" && side.values[0] > side.values[side.values.length - 1] ? -1 : 1);
  const stride = event.shiftKey ? 5 : 1, step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1] }[event.key];
  const inside = (k, n) => Math.max(0, Math.min(n - 1, k));
  if (step) move(cursor ? [inside(column + step[0] * stride * up(slice.x), slice.nx), inside(row + step[1] * stride * up(slice.y), slice.ny)] : [column, row]);
  else if (event.key === "Home") move([0, row]);
  else if (event.key === "End") move([slice.nx - 1, row]);
  else if (event.key === "Enter" || event.key === " ") choose([column, row], true);
  else if (event.key === "Escape") { closePoint(); keep(); draw(); }
  else return;
  event.preventDefault();
}

// -- downloads ------------------------------------------------------------------------------------------------------------

const fileName = (kind) => `${`${about.title} ${state.color}`.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 80)}.${kind}`;

function save(blob, name) {
  const link = made("a", null, { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function figureText() {
  const copy = $("figure").querySelector("svg").cloneNode(true);
  for (const one of copy.querySelectorAll(".marks")) one.remove();
  const label = node("desc", {}, null, `${about.title}. ${$("figure").getAttribute("aria-label")}. ${captionOf()} Spec ${about.sha256}. ${JSON.stringify(words(true))}`);
  copy.prepend(label);
  return new XMLSerializer().serializeToString(copy);
}

function savePng() {
  const image = new Image(), address = URL.createObjectURL(new Blob([figureText()], { type: "image/svg+xml" }));
  image.onload = () => {
    const canvas = document.createElement("canvas");
    canvas.width = image.width * 3; canvas.height = image.height * 3;
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(blob, fileName("png")));
    URL.revokeObjectURL(address);
  };
  image.src = address;
}

// One row for each point: x, y, the quantity, whether it counts, status, and the labels of the slice.
function csv() {
  const taken = [slice.x.dim, slice.y && slice.y.dim], quoted = (v) => (typeof v === "string" && /[",\n]/.test(v) ? `"${v.replaceAll('"', '""')}"` : String(v));
  const fixed = about.axes.filter((axis) => !taken.includes(axis.name) && !(axis.name === LINK && slice.link !== null)).map((axis) => [axis.name, axis.values[positionOf(axis)]]);
  if (slice.link !== null) fixed.push([LINK, slice.link]);
  const reasons = (called(about, "status").words) || {}, sides = [[slice.x, 0], ...(slice.y ? [[slice.y, 1]] : [])];
  const columns = [...sides.map(([side]) => side.name), slice.color.name, "counted", ...(slice.status ? ["status"] : []), ...fixed.map(([name]) => name)];
  const lines = [columns.join(",")];
  for (let row = 0; row < slice.ny; row++) for (let column = 0; column < slice.nx; column++) {
    const i = row * slice.nx + column, value = slice.values[i];
    const shown = slice.color.words ? slice.color.words[value] ?? "" : Number.isNaN(value) ? "" : Number.isFinite(value) ? Number(value.toPrecision(8)) : value > 0 ? "inf" : "-inf";
    lines.push([...sides.map(([side, up]) => side.values[up ? row : column]), shown, slice.counted[i] ? 1 : 0, ...(slice.status ? [reasons[slice.status[i]] ?? ""] : []), ...fixed.map(([, v]) => v)].map(quoted).join(","));
  }
  return `${lines.join("\n")}\n`;
}

// A choice of x, y or colour; x and y change places rather than stand on one axis.
function turn(key, value) {
  const other = { x: "y", y: "x" }[key];
  if (other && value && value === state[other]) state[other] = $(other).value = state[key] || "";
  if (!state.x) state.x = $("x").value = about.axes.find((axis) => axis.name !== value)?.name ?? value;
  state[key] = value;
  cursor = null;
}

// -- at last --------------------------------------------------------------------------------------------------------------

function begin() {
  const said = Object.fromEntries(new URLSearchParams(location.search));
  read({ ...about.view, ...(Object.keys(said).length ? { ...Object.fromEntries(Object.keys(about.view).filter((key) => key.startsWith("at.") && !(key in said)).map((key) => [key, about.view[key]])), ...said } : {}) });
  $("subtitle").textContent = [`${about.points.toLocaleString("en-US")} points`, about.axes.map((axis) => `${axis.name.replaceAll("_", " ")} ${axis.values.length}`).join(" × "), ...about.notes].join(" · ");
  buildControls();
  buildSlices();
  for (const key of ["x", "y", "color"]) $(key).addEventListener("change", () => change(() => turn(key, $(key).value)));
  $("where").addEventListener("change", () => change(() => { state.where = $("where").value.trim(); }));
  $("memory").addEventListener("change", () => change(() => { state.allow = $("memory").checked ? "memory" : ""; }, true));
  $("cells").addEventListener("change", () => { state.cells = $("cells").checked; keep(); draw(); });
  $("controls").addEventListener("submit", (event) => { event.preventDefault(); $("where").dispatchEvent(new Event("change")); });
  $("figure").addEventListener("keydown", onKey);
  $("figure").addEventListener("click", (event) => { const spot = figure && figure.nearest(event); if (spot) choose(spot, false); });
  $("figure").addEventListener("pointermove", (event) => { const spot = figure && figure.nearest(event); if (spot) move(spot); });
  $("save-svg").addEventListener("click", () => save(new Blob([figureText()], { type: "image/svg+xml" }), fileName("svg")));
  $("save-png").addEventListener("click", savePng);
  $("save-csv").addEventListener("click", () => save(new Blob([csv()], { type: "text/csv" }), fileName("csv")));
  $("copy").addEventListener("click", async () => {
    keep();
    try { await navigator.clipboard.writeText(location.href); $("copy").textContent = "Copied"; } catch { $("copy").textContent = "It is in the address bar"; }
    setTimeout(() => { $("copy").textContent = "Copy address"; }, 2000);
  });
  let timer;
  new ResizeObserver(() => { clearTimeout(timer); timer = setTimeout(() => { if ($("figure").clientWidth !== drawn) draw(); }, 120); }).observe($("show"));
  refresh().then(() => { if (state.pick && slice && state.pick[0] < slice.nx && state.pick[1] < slice.ny) choose(state.pick, false); });
}

begin();
