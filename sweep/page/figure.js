// The figure: a plane as bands of colour between levels (or one cell for each point), a curve where there is no y.
// Everything is drawn as one SVG, so that what is seen is what is saved.

const SVG = "http://www.w3.org/2000/svg";
const FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'Liberation Sans', sans-serif";

function node(name, attributes, parent, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

// -- numbers for people ---------------------------------------------------------------------------------------------------

const UNITS = {
  s: [[1, "s"], [1e-3, "ms"], [1e-6, "us"]],
  byte: [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]],
};

function digits(value) {
  if (value === null || Number.isNaN(value)) return "-";
  if (!Number.isFinite(value)) return value > 0 ? "infinite" : "-infinite";
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return value.toLocaleString("en-US");
  if (Math.abs(value) >= 1e-3 && Math.abs(value) < 1e7) return Number(value.toPrecision(4)).toLocaleString("en-US", { maximumFractionDigits: 6 });
  return value === 0 ? "0" : value.toPrecision(3).replace(/\.?0+e/, "e");
}

function amount(value, unit) {
  if (typeof value === "string") return value === "inf" ? "infinite" : value;
  if (value === null || Number.isNaN(value)) return "-";
  for (const [scale, word] of UNITS[unit] || []) if (Math.abs(value) >= 0.9995 * scale) return `${digits(value / scale)} ${word}`;
  return digits(value) + (unit ? ` ${unit}` : "");
}

function short(value) {
  if (typeof value === "string") return value;
  if (value >= 1024 && Number.isInteger(Math.log2(value))) { const p = Math.log2(value); return `${2 ** (p % 10)}${" KMGT"[Math.floor(p / 10)]}`.trim(); }
  if (value >= 1e4) { const p = Math.min(4, Math.floor(Math.log10(value) / 3 + 1e-9)); return `${Number((value / 1000 ** p).toPrecision(3))}${" kMGT"[p]}`.trim(); }
  return value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(0) : String(Number(value.toPrecision(4)));
}

// A port stays 1600, as it is sold.
const rung = (value, unit) => (unit === "Gb/s" && value < 1e4 ? String(Number(value.toPrecision(4))) : short(value));

// -- scales ---------------------------------------------------------------------------------------------------------------

function isLog(values) {
  const v = values.filter(Number.isFinite).sort((a, b) => a - b);
  if (v.length < 2 || v[0] <= 0) return false;
  if (v[v.length - 1] / v[0] > 30) return true;
  if (v.length < 3) return v[v.length - 1] / v[0] > 4;
  const spread = (steps) => { const m = steps.reduce((a, b) => a + b) / steps.length; return Math.sqrt(steps.reduce((a, b) => a + (b - m) ** 2, 0) / steps.length) / m; };
  return spread(v.slice(1).map((b, i) => Math.log(b / v[i]))) < 0.5 * spread(v.slice(1).map((b, i) => b - v[i]));
}

// One side of the figure: `at` gives the fraction from 0 to 1 of a value, `nodes` those of the labels, `ticks` [fraction, text].
function scaleOf(side, ports, cells) {
  const values = side.values;
  if (typeof values[0] === "string") {
    const nodes = values.map((_, i) => (i + 0.5) / values.length);
    return { nodes, words: true, ticks: nodes.map((f, i) => [f, values[i]]) };
  }
  const log = isLog(values), f = log ? Math.log : (v) => v;
  let low = f(Math.min(...values)), high = f(Math.max(...values));
  const gap = values.length > 1 ? (high - low) / (values.length - 1) : 1;
  if (cells || values.length === 1) { low -= gap / 2; high += gap / 2; }
  const at = (v) => (f(v) - low) / (high - low);
  const ends = log ? [Math.exp(low), Math.exp(high)] : [low, high];
  return { nodes: values.map(at), log, at, ticks: ticksOf(values, side.unit, ends, log, ports).map((v) => [at(v), rung(v, side.unit)]) };
}

function ticksOf(values, unit, [low, high], log, ports) {
  const inside = (list) => list.filter((t) => t >= low * (1 - 1e-3 * Math.sign(low)) && t <= high * 1.001);
  if (unit === "Gb/s" && log) { const found = inside([12.5, 25, ...ports, 6400, 12800]); if (found.length > 1) return found; }
  if (!log) {
    if (values.length <= 8) return values;
    const rough = (high - low) / 6, ten = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].find((s) => s * ten >= rough) * ten, out = [];
    for (let t = Math.ceil(low / step - 1e-9) * step; t <= high * (1 + 1e-9); t += step) out.push(Number(t.toPrecision(12)));
    return out;
  }
  const powers = inside(Array.from({ length: 70 }, (_, k) => 2 ** (k - 10)));
  const shared = values.filter((v) => Math.abs(Math.log2(v) - Math.round(Math.log2(v))) < 1e-6).length;
  if (powers.length >= 2 && shared >= Math.max(2, Math.floor(values.length / 4))) return powers;
  for (const steps of [[1, 2, 5], [1, 3], [1]]) {
    const found = inside(Array.from({ length: 36 }, (_, k) => steps.map((s) => s * 10 ** (k - 16))).flat());
    if (found.length <= 8) return found;
  }
  return [low, high];
}

// -- paint ----------------------------------------------------------------------------------------------------------------

const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

// How the quantity becomes colour: levels and bands on its own scale, or one colour for each word.
function paintOf(slice, palette) {
  if (slice.color.words) {
    const present = [...new Set(slice.values)].filter((c) => slice.color.words[c] !== undefined).sort((a, b) => a - b);
    const colors = Object.fromEntries(present.map((code, i) => [code, palette.sets[i % palette.sets.length]]));
    return { words: present.map((code) => [code, slice.color.words[code], colors[code]]), of: (v) => colors[v] || "#ffffff" };
  }
  const finite = [...slice.values].filter(Number.isFinite), low = finite.length ? finite.reduce((a, b) => Math.min(a, b)) : 0, high = finite.length ? finite.reduce((a, b) => Math.max(a, b)) : 1;
  const port = slice.color.unit === "Gb/s", log = port || (low > 0 && high > 30 * low);
  let levels;
  if (port) levels = palette.ports;
  else if (log) levels = Array.from({ length: 6 }, (_, i) => Number((low * (high / low) ** ((i + 1) / 7)).toPrecision(2)));
  else {
    levels = high > low ? ticksOf(Array(9), "", [low, high], false, []).filter((t) => t > low && t < high) : [low];
    if (!levels.length) levels = [(low + high) / 2];
  }
  levels = [...new Set(levels)];
  const height = (v) => { if (!log) return v; const h = v > 0 ? Math.log2(v) : -Infinity; return Math.max(Math.log2(levels[0]) - 8, h); };
  const stops = palette.bands.map(rgb), count = levels.length + 1;
  const bands = Array.from({ length: count }, (_, i) => {
    const p = (i / (count - 1)) * (stops.length - 1), k = Math.min(stops.length - 2, Math.floor(p));
    return stops[k].map((c, j) => Math.round(c + (stops[k + 1][j] - c) * (p - k)));
  });
  const heights = levels.map(height);
  const band = (h) => { let i = 0; while (i < heights.length && h >= heights[i] * (1 - 1e-12)) i++; return i; };
  return { levels, heights, bands, band, height, log };
}

// The field at two pixels for each of the page's: colours, hatched where a point does not count.
function raster(slice, paint, xs, ys, width, height, cells) {
  const ratio = 2, w = Math.round(width * ratio), h = Math.round(height * ratio);
  const canvas = document.createElement("canvas");
  canvas.width = w; canvas.height = h;
  const context = canvas.getContext("2d"), image = context.createImageData(w, h), data = image.data;
  const across = locate(xs.nodes, w, false), up = locate(ys.nodes, h, true), nx = slice.nx, values = slice.values;
  const heights = paint.words ? null : Float32Array.from(values, paint.height);
  const colors = paint.words ? Object.fromEntries(paint.words.map(([code, , hex]) => [code, rgb(hex)])) : null;
  for (let row = 0, p = 0; row < h; row++) {
    const b = up[row];
    for (let col = 0; col < w; col++, p += 4) {
      const a = across[col], near = b.near * nx + a.near;
      let color;
      if (paint.words) color = colors[values[near]] || [255, 255, 255];
      else {
        let z = heights[near];
        if (!cells) {
          const z00 = heights[b.i * nx + a.i], z01 = heights[b.i * nx + a.j], z10 = heights[b.j * nx + a.i], z11 = heights[b.j * nx + a.j];
          const mixed = (z00 * (1 - a.t) + z01 * a.t) * (1 - b.t) + (z10 * (1 - a.t) + z11 * a.t) * b.t;
          if (Number.isFinite(z00 + z01 + z10 + z11)) z = mixed;
        }
        color = Number.isNaN(z) ? [255, 255, 255] : paint.bands[paint.band(z)];
      }
      const out = !slice.counted[near], hatch = out && (row + col) % 14 < 2;
      for (let k = 0; k < 3; k++) data[p + k] = hatch ? 110 : out ? Math.round(0.4 * color[k] + 153) : color[k];
      data[p + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
  return canvas.toDataURL("image/png");
}

// For every pixel along a side: the labels on either side of it (i, j), how far between (t), and the nearest.
function locate(nodes, pixels, flipped) {
  const order = nodes.map((_, i) => i).sort((a, b) => nodes[a] - nodes[b]), out = new Array(pixels);
  for (let p = 0, k = 0; p < pixels; p++) {
    const f = (p + 0.5) / pixels;
    while (k < order.length - 2 && nodes[order[k + 1]] < f) k++;
    const i = order[k], j = order[Math.min(k + 1, order.length - 1)];
    const t = i === j ? 0 : Math.min(1, Math.max(0, (f - nodes[i]) / (nodes[j] - nodes[i])));
    out[flipped ? pixels - 1 - p : p] = { i, j, t, near: t < 0.5 ? i : j };
  }
  return out;
}

// The heights on a grid so fine that straight lines follow the bands, mixed between the labels just as the bands are.
function refined(slice, paint, xs, ys) {
  const z = Float32Array.from(slice.values, paint.height), fine = (nodes) => {
    const parts = Math.max(1, Math.ceil(160 / Math.max(1, nodes.length - 1))), out = [];
    for (let i = 0; i + 1 < nodes.length; i++) for (let k = 0; k < parts; k++) out.push([i, k / parts]);
    return [...out, [nodes.length - 2, 1]];
  };
  const across = fine(xs.nodes), up = fine(ys.nodes), between = (nodes, [i, t]) => nodes[i] + (nodes[i + 1] - nodes[i]) * t;
  const heights = up.map(([j, u]) => across.map(([i, t]) => {
    const a = z[j * slice.nx + i], b = z[j * slice.nx + i + 1], c = z[(j + 1) * slice.nx + i], d = z[(j + 1) * slice.nx + i + 1];
    return Number.isFinite(a + b + c + d) ? (a * (1 - t) + b * t) * (1 - u) + (c * (1 - t) + d * t) * u : NaN;
  }));
  return { x: across.map((place) => between(xs.nodes, place)), y: up.map((place) => between(ys.nodes, place)), heights };
}

// Lines of equal height, as segments [x1, y1, x2, y2] in fractions; nothing is made up next to a value that is not finite.
function contour({ x, y, heights }, level) {
  const segments = [];
  for (let r = 0; r + 1 < y.length; r++) for (let c = 0; c + 1 < x.length; c++) {
    const z = [heights[r][c], heights[r][c + 1], heights[r + 1][c + 1], heights[r + 1][c]];
    const above = (z[0] >= level) + (z[1] >= level) + (z[2] >= level) + (z[3] >= level);
    if (above === 0 || above === 4 || z.some(Number.isNaN)) continue;
    const corners = [[x[c], y[r]], [x[c + 1], y[r]], [x[c + 1], y[r + 1]], [x[c], y[r + 1]]], hits = [];
    for (let k = 0; k < 4; k++) {
      const a = z[k], b = z[(k + 1) % 4], p = corners[k], q = corners[(k + 1) % 4];
      if ((a < level) === (b < level)) continue;
      const t = (level - a) / (b - a);
      hits.push(p[0] + (q[0] - p[0]) * t, p[1] + (q[1] - p[1]) * t);
    }
    for (let k = 0; k + 3 < hits.length; k += 4) segments.push(hits.slice(k, k + 4));
  }
  return segments;
}

// -- the whole figure -----------------------------------------------------------------------------------------------------

// Draws into `place`; returns {nearest(event) -> [column, row], mark(column, row, kind)}.
function drawFigure(place, slice, about, cells) {
  const width = Math.max(280, place.clientWidth), narrow = width < 520, ink = about.palette.ink, muted = about.palette.muted;
  const curve = slice.y === null, paint = paintOf(slice, about.palette);
  const asCells = cells || !!paint.words || [slice.x, slice.y].some((side) => side && (typeof side.values[0] === "string" || side.values.length < 2));
  const xs = scaleOf(slice.x, about.palette.ports, !curve && asCells);
  const ys = curve ? curveScale(slice, about) : scaleOf(slice.y, about.palette.ports, asCells);
  const longest = Math.max(...ys.ticks.map(([, text]) => text.length));
  const left = Math.min(narrow ? 96 : 150, 34 + 7.2 * longest), right = 16, top = 12;
  const plotW = width - left - right, plotH = Math.round(Math.min(560, Math.max(narrow ? 250 : 320, plotW * 0.66)));
  const slanted = xs.words && Math.max(...xs.ticks.map(([, t]) => t.length)) * 7 > plotW / xs.ticks.length;
  const below = (slanted ? 84 : 24) + 22, legendH = curve ? 0 : 58 + (paint.words ? 18 * Math.ceil(paint.words.length / (narrow ? 3 : 6)) - 18 : 0);
  const height = top + plotH + below + legendH;
  const svg = node("svg", { xmlns: SVG, viewBox: `0 0 ${width} ${height}`, width, height, "font-family": FONT, "font-size": 12, fill: ink });
  node("rect", { width, height, fill: "#ffffff" }, svg);
  const X = (f) => left + f * plotW, Y = (f) => top + (1 - f) * plotH;
  if (curve) drawCurve(svg, slice, xs, ys, X, Y, about);
  else {
    const field = raster(slice, paint, xs, ys, plotW, plotH, asCells);
    node("image", { href: field, x: left, y: top, width: plotW, height: plotH, preserveAspectRatio: "none" }, svg);
    if (!asCells && !paint.words) drawContours(svg, slice, paint, xs, ys, X, Y, hasMarks(slice, about) ? about.marks.points.map((mark) => [xs.at(mark.x), ys.at(mark.y)]) : []);
  }
  if (!curve && hasMarks(slice, about)) drawMarks(svg, about.marks.points, paint, xs, ys, { X, Y, left, plotW, top, plotH });
  drawAxes(svg, slice, xs, ys, { X, Y, left, top, plotW, plotH, slanted, curve, ink, muted, width });
  if (!curve) drawLegend(svg, slice, paint, { left, y: top + plotH + below, plotW, ink, muted, narrow });
  const marks = node("g", { fill: "none", "pointer-events": "none", class: "marks" }, svg);
  place.replaceChildren(svg);
  const spot = (column, row) => [X(xs.nodes[column]), Y(ys.nodes[curve ? column : row])];
  return {
    nearest(event) {
      const box = svg.getBoundingClientRect(), fx = ((event.clientX - box.left) * width / box.width - left) / plotW;
      const fy = 1 - ((event.clientY - box.top) * height / box.height - top) / plotH;
      if (fx < -0.02 || fx > 1.02 || fy < -0.02 || fy > 1.02) return null;
      const near = (nodes, f) => nodes.reduce((best, n, i) => (Math.abs(n - f) < Math.abs(nodes[best] - f) ? i : best), 0);
      return [near(xs.nodes, fx), curve ? 0 : near(ys.nodes, fy)];
    },
    mark(column, row, kind) {
      for (const old of marks.querySelectorAll(`.${kind}`)) old.remove();
      if (column === null || column >= slice.nx || row >= slice.ny) return;
      const [x, y] = spot(column, row);
      if (!Number.isFinite(x + y)) return;
      node("circle", { cx: x, cy: y, r: kind === "chosen" ? 7 : 5, stroke: "#ffffff", "stroke-width": 4, class: kind }, marks);
      node("circle", { cx: x, cy: y, r: kind === "chosen" ? 7 : 5, stroke: kind === "chosen" ? "#D55E00" : ink, "stroke-width": 2, class: kind }, marks);
    },
  };
}

// Scale of the colour quantity where it is the height of a curve; `nodes` are those of the points.
function curveScale(slice, about) {
  if (slice.color.words) {
    const codes = Object.keys(slice.color.words).map(Number).filter((c) => [...slice.values].includes(c));
    const at = (c) => (codes.indexOf(c) + 0.5) / codes.length;
    return { nodes: [...slice.values].map((v) => (codes.includes(v) ? at(v) : NaN)), ticks: codes.map((c) => [at(c), slice.color.words[c]]), words: true };
  }
  const finite = [...slice.values].filter(Number.isFinite), unit = slice.color.unit;
  if (!finite.length) return { nodes: [...slice.values].map(() => NaN), ticks: [] };
  let low = Math.min(...finite), high = Math.max(...finite);
  const log = low > 0 && high > 30 * low, f = log ? Math.log : (v) => v;
  if (!log && low > 0 && low < 0.5 * high) low = 0;
  if (low === high) { low -= Math.abs(low) * 0.1 || 1; high += Math.abs(high) * 0.1 || 1; }
  const pad = 0.04 * (f(high) - f(low)), bottom = f(low) - (low === 0 ? 0 : pad), above = f(high) + pad, at = (v) => (f(v) - bottom) / (above - bottom);
  const ends = log ? [Math.exp(bottom), Math.exp(above)] : [bottom, above];
  return { nodes: [...slice.values].map(at), at, log, ticks: ticksOf(Array(9).fill(1.5), unit, ends, log, about.palette.ports).map((v) => [at(v), unit === "s" || unit === "byte" ? amount(v, unit) : rung(v, unit)]) };
}

function drawCurve(svg, slice, xs, ys, X, Y, about) {
  const order = xs.nodes.map((_, i) => i).sort((a, b) => xs.nodes[a] - xs.nodes[b]);
  for (const [f] of ys.ticks) node("line", { x1: X(0), x2: X(1), y1: Y(f), y2: Y(f), stroke: "#e6e8ea" }, svg);
  for (const [f] of xs.ticks) node("line", { x1: X(f), x2: X(f), y1: Y(0), y2: Y(1), stroke: "#e6e8ea" }, svg);
  let path = "", pen = false;
  for (const i of order) {
    const y = ys.nodes[i];
    if (!Number.isFinite(y)) { pen = false; continue; }
    path += `${pen ? "L" : "M"}${X(xs.nodes[i]).toFixed(2)} ${Y(y).toFixed(2)}`;
    pen = !xs.words && !ys.words;
  }
  node("path", { d: path, fill: "none", stroke: "#0072B2", "stroke-width": 2.2, "stroke-linejoin": "round" }, svg);
  const dots = order.length <= 60 || xs.words || ys.words;
  for (const i of order) if (Number.isFinite(ys.nodes[i]) && (dots || !slice.counted[i])) {
    node("circle", { cx: X(xs.nodes[i]), cy: Y(ys.nodes[i]), r: 3.2, fill: slice.counted[i] ? "#0072B2" : "#ffffff", stroke: slice.counted[i] ? "#0072B2" : about.palette.muted, "stroke-width": 1.4 }, svg);
  }
}

function drawContours(svg, slice, paint, xs, ys, X, Y, others) {
  const labels = [...others], grid = refined(slice, paint, xs, ys);
  paint.heights.forEach((level, k) => {
    const segments = contour(grid, level);
    if (!segments.length) return;
    node("path", { d: segments.map(([a, b, c, d]) => `M${X(a).toFixed(1)} ${Y(b).toFixed(1)}L${X(c).toFixed(1)} ${Y(d).toFixed(1)}`).join(""), fill: "none", stroke: "#1a1a1a", "stroke-width": 0.8 }, svg);
    const free = ([a, b]) => Math.min(a, 1 - a, b, 1 - b) > 0.06 && labels.every(([p, q]) => Math.hypot(p - a, q - b) > 0.12);
    const open = segments.filter(free).sort((s, t) => Math.abs(s[0] + s[1] - 1) - Math.abs(t[0] + t[1] - 1))[0];
    if (!open) return;
    labels.push(open);
    node("text", { x: X(open[0]), y: Y(open[1]) + 4, "text-anchor": "middle", "font-size": 11, "font-weight": 600, stroke: "#ffffff", "stroke-width": 3, "paint-order": "stroke", "stroke-linejoin": "round" }, svg, tickText(paint.levels[k], slice.color.unit));
  });
}

// The generations stand on the map of ports over tokens and FLOP/s, filled like the port they ship with.
const hasMarks = (slice, about) => about.marks && slice.y && slice.x.name === about.marks.x && slice.y.name === about.marks.y && slice.color.unit === "Gb/s";

function drawMarks(svg, points, paint, xs, ys, { X, Y, left, plotW, top, plotH }) {
  const groups = [], taken = [];
  for (const { label, x, y, port } of points) {
    const [fx, fy] = [xs.at(x), ys.at(y)];
    if (!(fx >= 0 && fx <= 1 && fy >= 0 && fy <= 1)) continue;
    const text = port === null || plotW < 380 ? label : `${label} (${port})`, near = groups.find((g) => Math.hypot(g.x - X(fx), g.y - Y(fy)) < 5);
    if (near) near.text += `, ${text}`;
    else groups.push({ x: X(fx), y: Y(fy), text, fill: port === null ? "#ffffff" : `rgb(${paint.bands[paint.band(paint.height(port * (1 - 1e-9)))]})` });
  }
  for (const g of groups) taken.push([g.x - 7, g.y - 7, g.x + 7, g.y + 7]);
  for (const { x, y, text, fill } of groups) {
    node("circle", { cx: x, cy: y, r: 6.5, fill: "#ffffff", stroke: "#1a1a1a", "stroke-width": 0.9 }, svg);
    node("circle", { cx: x, cy: y, r: 4.4, fill }, svg);
    const wide = 6.1 * text.length, spots = [[10, 4, "start"], [-10, 4, "end"], [0, -11, "middle"], [0, 19, "middle"], [6, -11, "end"], [6, 19, "end"]];
    const boxed = ([dx, dy, anchor]) => { const x0 = x + dx - (anchor === "end" ? wide : anchor === "middle" ? wide / 2 : 0); return [x0, y + dy - 11, x0 + wide, y + dy + 3]; };
    const free = (box) => box[0] > left && box[2] < left + plotW && box[1] > top && box[3] < top + plotH && taken.every((t) => box[2] < t[0] || box[0] > t[2] || box[3] < t[1] || box[1] > t[3]);
    const spot = spots.find((one) => free(boxed(one)));
    if (!spot) continue;
    taken.push(boxed(spot));
    node("text", { x: x + spot[0], y: y + spot[1], "text-anchor": spot[2], "font-size": 11, stroke: "#ffffff", "stroke-width": 3, "paint-order": "stroke", "stroke-linejoin": "round" }, svg, text);
  }
}

const tickText = (level, unit) => (unit === "s" || unit === "byte" ? amount(level, unit) : rung(level, unit));

function drawAxes(svg, slice, xs, ys, { X, Y, left, top, plotW, plotH, slanted, curve, ink, width }) {
  node("rect", { x: left, y: top, width: plotW, height: plotH, fill: "none", stroke: ink, "stroke-width": 1 }, svg);
  let last = -Infinity;
  for (const [f, text] of xs.ticks) {
    const x = X(f), wide = text.length * 6.6 + 8;
    node("line", { x1: x, x2: x, y1: top + plotH, y2: top + plotH + 5, stroke: ink }, svg);
    if (!slanted && x - wide / 2 < last) continue;
    last = x + wide / 2;
    if (slanted) node("text", { transform: `translate(${x + 3} ${top + plotH + 15}) rotate(-38)`, "text-anchor": "end" }, svg, text);
    else node("text", { x: Math.min(x, width - wide / 2 + 2), y: top + plotH + 18, "text-anchor": "middle" }, svg, text);
  }
  let above = Infinity;
  for (const [f, text] of [...ys.ticks].sort((a, b) => a[0] - b[0])) {
    const y = Y(f);
    node("line", { x1: left - 5, x2: left, y1: y, y2: y, stroke: ink }, svg);
    if (above - y < 13) continue;
    above = y;
    const shown = text.length * 6.8 > left - 30 ? `${text.slice(0, Math.floor((left - 36) / 6.6))}…` : text;
    node("text", { x: left - 8, y: y + 4, "text-anchor": "end" }, svg, shown);
  }
  const named = (side) => side.label + (side.unit && !["s", "byte"].includes(side.unit) ? ` (${side.unit})` : "");
  fitted(svg, named(slice.x), { x: left + plotW / 2, y: top + plotH + (slanted ? 98 : 38), "text-anchor": "middle", "font-weight": 600 }, plotW + 2 * (width - left - plotW) - 6);
  fitted(svg, named(curve ? slice.color : slice.y), { transform: `translate(14 ${top + plotH / 2}) rotate(-90)`, "text-anchor": "middle", "font-weight": 600 }, plotH);
}

// A text made smaller where it would not fit.
function fitted(svg, text, attributes, room) {
  const size = Math.max(8, Math.min(12.5, room / (text.length * 0.62)));
  node("text", { ...attributes, "font-size": size }, svg, text);
}

function drawLegend(svg, slice, paint, { left, y, plotW, ink, narrow }) {
  const named = slice.color.label + (slice.color.unit && !["s", "byte"].includes(slice.color.unit) ? ` (${slice.color.unit})` : "");
  fitted(svg, named, { x: left, y: y + 12, "font-weight": 600 }, plotW);
  if (paint.words) {
    const columns = narrow ? 3 : 6, step = plotW / columns;
    paint.words.forEach(([, word, color], i) => {
      const x = left + (i % columns) * step, row = y + 20 + 18 * Math.floor(i / columns);
      node("rect", { x, y: row, width: 12, height: 12, fill: color, stroke: ink, "stroke-width": 0.6 }, svg);
      node("text", { x: x + 17, y: row + 10.5 }, svg, word);
    });
    return;
  }
  const step = plotW / paint.bands.length;
  paint.bands.forEach((band, i) => node("rect", { x: left + i * step, y: y + 19, width: step + 0.5, height: 13, fill: `rgb(${band})` }, svg));
  node("rect", { x: left, y: y + 19, width: plotW, height: 13, fill: "none", stroke: ink, "stroke-width": 0.7 }, svg);
  paint.levels.forEach((level, i) => {
    const x = left + (i + 1) * step;
    node("line", { x1: x, x2: x, y1: y + 32, y2: y + 36, stroke: ink }, svg);
    node("text", { x, y: y + 48, "text-anchor": "middle", "font-size": narrow ? 10.5 : 12 }, svg, tickText(level, slice.color.unit));
  });
}
