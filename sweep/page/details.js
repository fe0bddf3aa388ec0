// The chosen point opened up: its numbers, its step in time, other layouts of the same accelerators, the worked explanation.

const BARS = {
  forward: ["#9ecae1", "forward"], backward: ["#3b6ea5", "backward"], weight: ["#7fb8a4", "weight gradient"], block: ["#3b6ea5", "backward"],
  head: ["#1f3f66", "head, embedding"], embedding: ["#1f3f66", "head, embedding"], bucket: ["#f2c879", "bucket, hidden"], exposed: ["#D55E00", "exposed"],
  gather: ["#f2c879", "gather"], scatter: ["#c9a0dc", "scatter"], shard: ["#8c6bb1", "all-reduce of shards"], pipeline: ["#d9d9d9", "pipeline"], update: ["#6b6b6b", "update"],
};

function made(name, content, attributes) {
  const found = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) found.setAttribute(key, value);
  found.append(...[content ?? []].flat());
  return found;
}

function tableOf(heads, rows, classes) {
  const numeric = heads.map((_, i) => rows.length > 0 && rows.every((row) => /^[-+x× ]*[\d.,]+|^-$|^infinite/.test(String(row[i]))));
  const cell = (kind, text, i) => made(kind, String(text), { ...(numeric[i] ? { class: "number" } : {}), ...(kind === "th" ? { scope: "col" } : {}) });
  const head = heads.some(Boolean) ? [made("thead", made("tr", heads.map((text, i) => cell("th", text, i))))] : [];
  return made("div", made("table", [...head, made("tbody", rows.map((row, r) => made("tr", row.map((text, i) => cell("td", text, i)), classes && classes[r] ? { class: classes[r] } : {})))]), { class: "scroll", tabindex: "0" });
}

function pointTable(point) {
  const table = tableOf(["", ""], point.outputs.map((one) => [one.label, amount(one.value, one.unit)]));
  table.classList.add("point");
  table.querySelectorAll("tr").forEach((row, i) => row.setAttribute("title", point.outputs[i].name));
  return table;
}

function timelineOf(time) {
  const [rows, bars, detailRows, detail, end, remarks] = ["rows", "bars", "detail_rows", "detail", "end", "remarks"].map((key) => time[key]);
  const parts = [lanes(rows, bars, 0, end, "The whole step")];
  if (detail.length) {
    const starts = Math.min(...detail.map((bar) => bar[2])), stops = Math.max(...detail.map((bar) => bar[3]));
    parts.push(lanes(detailRows, detail, starts, stops, "The part that the reduction waits for"));
  }
  const kinds = [...new Map([...bars, ...detail].map((bar) => BARS[bar[1]] || ["#999999", bar[1]]).map(([color, word]) => [word, color]))];
  const key = made("div", kinds.map(([word, color]) => { const box = made("i"); box.style.background = color; return made("span", [box, word]); }), { class: "key" });
  return [...parts, key, ...remarks.map((text) => made("p", text, { class: "hint" }))];
}

function lanes(rows, bars, from, to, title) {
  const width = 380, left = 62, row = rows.length > 16 ? 10 : 18, gap = 3, height = 20 + rows.length * (row + gap) + 20;
  const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img", "aria-label": `${title}: ${amount(from, "s")} to ${amount(to, "s")}`, "font-size": 10.5, fill: "#1a1a1a" });
  node("text", { x: 0, y: 11, "font-weight": 600, "font-size": 11.5 }, svg, title);
  const X = (seconds) => left + ((seconds - from) / (to - from || 1)) * (width - left - 6);
  rows.forEach((name, i) => {
    const y = 18 + i * (row + gap);
    if (row > 12 || i % 4 === 0) node("text", { x: left - 6, y: y + row / 2 + 4, "text-anchor": "end" }, svg, name);
    node("rect", { x: left, y, width: width - left - 6, height: row, fill: "#f5f6f7" }, svg);
    for (const [lane, kind, start, stop, label] of bars) {
      if (lane !== name) continue;
      const wide = X(stop) - X(start), thin = wide < 2.5;
      const box = node("rect", { x: X(start), y, width: Math.max(wide, 0.4), height: row, fill: (BARS[kind] || ["#999999"])[0], stroke: thin ? "none" : "#ffffff", "stroke-width": 0.5 }, svg);
      node("title", {}, box, `${label || (BARS[kind] || [0, kind])[1]}: ${amount(stop - start, "s")}, from ${amount(start, "s")}`);
    }
  });
  const y = 18 + rows.length * (row + gap) + 11;
  for (let k = 0; k <= 4; k++) {
    const seconds = from + ((to - from) * k) / 4;
    node("text", { x: X(seconds), y, "text-anchor": k === 0 ? "start" : k === 4 ? "end" : "middle", fill: "#5c6166" }, svg, amount(Number(seconds.toPrecision(3)), "s"));
  }
  return svg;
}

function layoutsOf({ rows }) {
  const best = rows.length ? rows[0].step_time_s : 1;
  const experts = rows.some((row) => row.ep > 1);
  const shown = rows.map((row) => [
    `tp ${row.tp}, pp ${row.pp}${experts ? `, ep ${row.ep}` : ""}, dp ${digits(row.dp)}, ${row.zero_stage === 3 ? "FSDP" : `ZeRO-${row.zero_stage}`}`,
    amount(row.step_time_s, "s"), `${(100 * row.mfu).toFixed(1)} %`, row.required_link_gbps === "inf" ? "infinite" : digits(Number(row.required_link_gbps.toPrecision(3))), amount(row.memory_bytes, "byte"),
  ]);
  const classes = rows.map((row) => (row.here ? "here" : row.status === "memory" ? "unfit" : ""));
  const said = rows.some((row) => row.here) ? "This point is marked." : "This point itself cannot run.";
  return [
    tableOf(["layout", "step", "MFU", "asks Gb/s", "memory"], shown, classes),
    made("p", `Same model, accelerators, global and micro-batch. What fits the memory first, the fastest first. ${said}${rows.some((row) => row.status === "memory") ? " Grey: does not fit." : ""}`, { class: "hint" }),
  ];
}

function explanationOf({ sections }) {
  return sections.map((section, index) => {
    const items = section.items.map((item) => {
      if (item.kind === "remark") return made("p", item.text, { class: "line" });
      if (item.kind === "table") return tableOf(item.columns, item.rows);
      const formula = [item.formula, item.numbers].filter(Boolean).join(" = ");
      return made("div", [item.words, item.shown ? ": " : "", made("b", item.shown), item.note ? ` (${item.note})` : "", ...(formula ? [made("span", formula)] : [])], { class: "line" });
    });
    return made("details", [made("summary", section.title), ...items], index === 0 ? { open: "" } : {});
  });
}

// Fills `place` for the point of `words`: what the store has at once, the rest as the kernels answer.
async function openPoint(place, source, words, title, signal) {
  const parts = { timeline: made("div"), layouts: made("div"), worked: made("div") };
  const point = await source.ask("point", words, signal);
  const content = [made("h2", "The point"), made("p", title, { class: "hint" }), pointTable(point)];
  const training = ["step", "money"].includes(point.topic), headed = (head, part) => [made("h3", head), part];
  if (source.live && source.about.live) {
    if (training) content.push(...headed("The step in time", parts.timeline), ...headed("Other layouts", parts.layouts));
    content.push(...headed("Worked, line by line", parts.worked));
  }
  if (point.typed) content.push(made("h3", "In a terminal"), made("code", point.typed));
  place.replaceChildren(...content);
  if (!source.live || !source.about.live) return;
  const fill = async (part, question, render) => {
    part.replaceChildren(made("p", "…", { class: "hint" }));
    try {
      part.replaceChildren(...render(await source.ask(question, words, signal)));
    } catch (problem) {
      if (problem.name !== "AbortError") part.replaceChildren(made("p", problem.message, { class: "hint" }));
    }
  };
  if (training) {
    await fill(parts.layouts, "alternatives", layoutsOf);
    await fill(parts.timeline, "timeline", timelineOf);
  }
  await fill(parts.worked, "explanation", explanationOf);
}
