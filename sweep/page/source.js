// Where a slice comes from: the server, or the arrays inside a page that has none.

function unpack(text, Kind) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Kind(bytes.buffer);
}

class Failure extends Error {}

const called = (about, name) => [...about.axes, ...about.outputs, ...about.columns].find((one) => one.name === name) || { name, label: name, unit: "" };

class Served {
  constructor(about) { this.about = about; this.live = true; }

  async ask(question, words, signal) {
    let answer;
    try {
      answer = await fetch(`${question}?${new URLSearchParams(words)}`, { signal });
    } catch (problem) {
      if (problem.name === "AbortError") throw problem;
      throw new Failure("the server does not answer: start it again with the same command.");
    }
    const content = await answer.json();
    if (content.error) throw new Failure(content.error);
    return content;
  }

  async slice(words, signal) {
    const got = await this.ask("slice", words, signal), side = (one) => one && { ...called(this.about, one.name), ...one };
    const values = unpack(got.values, Float32Array);
    return { ...got, x: side(got.x), y: side(got.y), color: called(this.about, words.color), values, counted: unpack(got.counted, Uint8Array),
             status: got.status && unpack(got.status, Uint8Array), nx: got.x.values.length, ny: got.y ? got.y.values.length : 1 };
  }
}

class Enclosed {
  constructor(about) { this.about = about; this.live = false; this.cache = {}; }

  array(name) {
    const stored = this.about.arrays.variables[name];
    if (!stored) throw new Failure(`'${name}' is not in this page.`);
    return (this.cache[name] ||= { dims: stored.dims, data: unpack(stored.data, Float32Array) });
  }

  // A variable at positions, over (y, x).
  plane(name, picks, x, y) {
    const { dims, data } = this.array(name), sizes = Object.fromEntries(this.about.axes.map((axis) => [axis.name, axis.values.length]));
    let stride = 1, start = 0, across = 0, up = 0;
    for (const dim of [...dims].reverse()) {
      if (dim === x) across = stride; else if (dim === y) up = stride; else start += picks[dim] * stride;
      stride *= sizes[dim];
    }
    const nx = sizes[x], ny = y ? sizes[y] : 1, out = new Float32Array(nx * ny);
    for (let r = 0; r < ny; r++) for (let c = 0; c < nx; c++) out[r * nx + c] = data[start + r * up + c * across];
    return out;
  }

  side(name, picks, taken, what) {
    const axis = this.about.axes.find((one) => one.name === name);
    if (axis && (name !== taken || what === "x")) return { ...axis, dim: name };
    if (axis) throw new Failure(`x and y: both stand on ${name}; a map needs two axes.`);
    let best = null;
    for (const dim of this.array(name).dims) {
      const values = [...this.plane(name, picks, dim, null)], steps = values.slice(1).map((v, i) => v - values[i]);
      if (dim !== taken && steps.length && (steps.every((s) => s > 0) || steps.every((s) => s < 0)) && (!best || values.length > best.values.length)) best = { ...called(this.about, name), dim, values };
    }
    if (!best) throw new Failure(`${what}: ${name} is not monotone along any axis in this slice.`);
    return best;
  }

  picks(words) {
    return Object.fromEntries(this.about.axes.map((axis) => {
      const label = words[`at.${axis.name}`], found = axis.values.findIndex((v) => (typeof v === "string" ? v === label : Math.abs(v - Number(label)) <= 1e-6 * Math.abs(v)));
      return [axis.name, label === undefined || found < 0 ? this.about.picks[axis.name] : found];
    }));
  }

  async slice(words) {
    const picks = this.picks(words), x = this.side(words.x, picks, words.y, "x"), y = words.y ? this.side(words.y, picks, x.dim, "y") : null;
    const at = [picks, x.dim, y && y.dim], values = this.plane(words.color, ...at), counts = this.about.arrays.counts;
    const status = counts ? Uint8Array.from(this.plane("status", ...at)) : null, memory = words.allow === "memory";
    const code = Object.entries((called(this.about, "status").words) || {}).find(([, word]) => word === "memory");
    const counted = status ? Uint8Array.from(status, (s) => counts.includes(s) || (memory && code && s === Number(code[0])) ? 1 : 0) : new Uint8Array(values.length).fill(1);
    return { x, y, color: called(this.about, words.color), values, counted, status, nx: x.values.length, ny: y ? y.values.length : 1, link: null, seconds: null };
  }

  async ask(question, words) {
    if (question !== "point") return null;
    const picks = this.picks(words), slice = await this.slice(words), [column, row] = words.pick.split(",").map(Number);
    picks[slice.x.dim] = column;
    if (slice.y) picks[slice.y.dim] = row;
    const outputs = this.about.outputs.map((one) => {
      const value = this.plane(one.name, { ...picks }, this.about.axes[0].name, null)[picks[this.about.axes[0].name]];
      return { ...one, value: one.words ? one.words[value] || "-" : value };
    });
    const labels = this.about.axes.map((axis) => `${axis.name}=${typeof axis.values[0] === "string" ? axis.values[picks[axis.name]] : Number(axis.values[picks[axis.name]].toPrecision(10))}`);
    return { outputs, link: null, typed: this.about.typed === undefined ? "" : `${this.about.typed} ${labels.join(" ")}` };
  }
}
