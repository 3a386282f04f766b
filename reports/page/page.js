// The frame of the page: data, filter, theme, sections. Sections register with Report.section().
const Report = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const lists = data.cells;
  const registered = [];
  const redrawn = new Set();  // charts to be redrawn when colours change
  let firstChart = true;

  const svgTags = new Set(["svg", "g", "path", "circle", "line", "rect", "text", "title"]);
  /** el("td", {class: "r"}, "text", child): attributes with on… are listeners, null is left out. */
  function el(tag, attributes, ...children) {
    const node = svgTags.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat()) {
      if (child === null || child === undefined) continue;
      node.append(child);
    }
    return node;
  }

  const number = value => {
    if (value === null || value === undefined || !isFinite(value)) return "-";
    const size = Math.abs(value);
    return size >= 1e5 || (size < 1e-3 && size > 0) ? value.toExponential(1) : String(Number(value.toPrecision(3)));
  };
  const scaled = (value, scales) => {
    if (value === null || value === undefined) return "-";
    for (const [scale, unit] of scales) if (Math.abs(value) >= scale) return number(value / scale) + " " + unit;
    const [scale, unit] = scales[scales.length - 1];
    return number(value / scale) + " " + unit;
  };
  const format = {
    number,
    time: us => scaled(us, [[1e6, "s"], [1e3, "ms"], [1, "µs"], [1e-3, "ns"]]),
    size: bytes => {
      for (const [scale, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [1024, "KiB"]])
        if (bytes >= scale) return number(bytes / scale) + " " + unit;
      return bytes + " B";
    },
    bandwidth: bytes => scaled(bytes, [[1e12, "TB/s"], [1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"], [1, "B/s"]]),
    ratio: value => value === null || value === undefined ? "-" : number(value) + "×",
    /** "3.1 ms [2.9, 3.4]" with one formatter: ends in another unit have theirs. */
    interval: (value, low, high, text) => {
      const whole = text(value);
      if (low === null || low === undefined) return whole;
      const unit = whole.replace(/^[-+.\de]+/, ""), ends = [text(low), text(high)];
      const bare = unit && ends.every(end => end.endsWith(unit)) ? ends.map(end => end.slice(0, -unit.length)) : ends;
      return `${whole} [${bare.join(", ")}]`;
    },
  };

  // Environments in their usual order; variants stand behind what they vary.
  const kinds = ["bare-metal", "singularity", "single-docker", "cross-docker"];
  const place = name => { const at = kinds.findIndex(kind => name.startsWith(kind)); return at < 0 ? kinds.length : at; };
  const environmentOrder = lists.environments.map((name, index) => ({ name, index }))
    .sort((a, b) => place(a.name) - place(b.name) || (a.name < b.name ? -1 : 1)).map(item => item.index);
  const rank = order => { const at = []; order.forEach((index, i) => { at[index] = i; }); return at; };
  const environmentRank = rank(environmentOrder);

  /** Look of the i-th line: colour variable, marker and dashes, so that colour is never alone. */
  const markers = ["circle", "square", "triangle", "diamond", "cross", "plus"];
  const look = i => ({ color: "--c" + (i % 8), marker: markers[i % markers.length], dash: i < 8 ? [] : [6, 4] });
  const environmentLook = index => look(environmentRank[index]);
  const cssValue = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const markerPaths = {
    circle: "M7 3a4 4 0 1 0 .01 0Z", square: "M3.5 3.5h7v7h-7Z", triangle: "M7 2.5 11.5 11h-9Z",
    diamond: "M7 2 12 7 7 12 2 7Z", cross: "M3 3l8 8M11 3l-8 8", plus: "M7 2v10M2 7h10",
  };
  function swatch(appearance) {
    const open = appearance.marker === "cross" || appearance.marker === "plus";
    return el("svg", { viewBox: "0 0 14 14", "aria-hidden": "true" },
      el("path", { d: markerPaths[appearance.marker], fill: open ? "none" : `var(${appearance.color})`,
        stroke: `var(${appearance.color})`, "stroke-width": 2 }));
  }

  const operationName = operation => {
    const o = lists.operations[operation];
    const same = key => lists.operations.every(other => other[key] === o[key]);
    return `${o.architecture} ${o.collective}` + (same("ranks") ? "" : `, ${o.ranks} rank${o.ranks === 1 ? "" : "s"}`) +
      (same("datatype") ? "" : `, ${o.datatype}`) + (same("in_place") ? "" : o.in_place ? ", in place" : ", out of place");
  };

  // One object per measured cell.
  const columns = lists.columns;
  const cells = (columns.median || []).map((_, i) => {
    const cell = {};
    for (const name of Object.keys(columns)) cell[name] = columns[name][i];
    cell.busbw = cell.busbw_factor === null || !cell.median ? null : cell.size / cell.median * 1e6 * cell.busbw_factor;
    return cell;
  });

  /** The library's defaults, or else the settings that most of these cells have. */
  const libraryDefaults = lists.settings.indexOf("library defaults");
  const usual = some => {
    const counts = new Map();
    for (const cell of some) counts.set(cell.settings, (counts.get(cell.settings) || 0) + 1);
    return counts.has(libraryDefaults) ? libraryDefaults : [...counts].sort((a, b) => b[1] - a[1])[0]?.[0] ?? 0;
  };
  // The page begins with settings that every backend has; where there are none, with each backend's own.
  const eachOwn = -1;
  const byBackend = lists.backends.map((_, backend) => cells.filter(cell => cell.backend === backend));
  const ownSettings = byBackend.map(usual);
  const known = byBackend.map(mine => new Set(mine.map(cell => cell.settings)));
  const shared = cells.filter(cell => known.every(settings => settings.has(cell.settings)));
  const defaultSettings = shared.length || !cells.length ? usual(shared) : eachOwn;
  const state = {
    environments: new Set(lists.environments.keys()), backends: new Set(lists.backends.keys()),
    architecture: "all", operation: -1, settings: defaultSettings,
  };
  const matches = (cell, but) => {
    const o = lists.operations[cell.operation];
    return (but === "environment" || state.environments.has(cell.environment)) && state.backends.has(cell.backend) &&
      (state.architecture === "all" || o.architecture === state.architecture) &&
      (state.operation < 0 || cell.operation === state.operation) &&
      (but === "settings" || cell.settings === (state.settings === eachOwn ? ownSettings[cell.backend] : state.settings));
  };
  /** Cells that the filter lets through. */
  const visible = but => cells.filter(cell => matches(cell, but));

  /** Operations that the filter lets through, in the order of the data. */
  const operations = () => [...new Set(visible().map(cell => cell.operation))].sort((a, b) => a - b);
  // An all-reduce, what training waits for, of which most can be compared.
  const comparable = lists.operations.map(() => 0);
  for (const cell of cells) comparable[cell.operation] += cell.ratio === null ? 1 : 100;
  let chosenOperation = lists.operations.map((o, i) => ({ i, score: comparable[i] + (o.collective === "allreduce" ? 1e9 : 0) + (o.ranks > 1 ? 1e8 : 0) }))
    .sort((a, b) => b.score - a.score)[0]?.i ?? 0;
  /** The one operation that charts over size show. */
  function chartOperation() {
    const known = operations();
    return known.includes(chosenOperation) ? chosenOperation : known[0] ?? 0;
  }
  function operationControl() {
    if (state.operation >= 0) return null;
    const select = el("select", { onchange: () => { chosenOperation = Number(select.value); drawSoon(true); } },
      operations().map(o => el("option", { value: o, selected: o === chartOperation() }, operationName(o))));
    return el("label", {}, el("span", {}, "operation"), select);
  }

  function chips(title, names, order, set, appearance) {
    if (names.length < 2) return null;
    return el("fieldset", {}, el("legend", {}, title), order.map(index => {
      const box = el("input", { type: "checkbox", checked: set.has(index), onchange: () => {
        if (box.checked) set.add(index); else set.delete(index);
        drawSoon(true);
      } });
      return el("label", { class: "chip" }, box, appearance ? swatch(appearance(index)) : null, names[index]);
    }));
  }
  function choice(title, options, value, choose) {
    const select = el("select", { onchange: () => { choose(select.value); drawSoon(true); } },
      options.map(([key, text]) => el("option", { value: key, selected: String(key) === String(value) }, text)));
    return el("label", {}, el("span", {}, title + " "), select);
  }
  function drawFilter() {
    const form = document.getElementById("filter");
    const architectures = [...new Set(lists.operations.map(o => o.architecture))];
    const parts = [
      chips("environment", lists.environments, environmentOrder, state.environments, environmentLook),
      chips("backend", lists.backends, [...lists.backends.keys()], state.backends, null),
      architectures.length > 1 ? choice("architecture ", [["all", "all"], ...architectures.map(a => [a, a])], "all",
        value => { state.architecture = value; }) : null,
      lists.operations.length > 1 ? choice("operation ", [[-1, "all"], ...lists.operations.map((_, o) => [o, operationName(o)])], -1,
        value => { state.operation = Number(value); }) : null,
      lists.settings.length > 1 ? choice("settings ", [...defaultSettings === eachOwn ? [[eachOwn, "each backend's usual"]] : [],
        ...lists.settings.map((name, index) => [index, name])], state.settings,
        value => { state.settings = Number(value); }) : null,
    ].filter(Boolean);
    form.replaceChildren(...parts);
    form.hidden = parts.length === 0;
    form.addEventListener("submit", event => event.preventDefault());
  }

  function dark() {
    const theme = document.documentElement.dataset.theme;
    return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }
  function recolor() {
    const button = document.getElementById("theme");
    if (button) { button.setAttribute("aria-pressed", String(dark())); button.textContent = dark() ? "Light" : "Dark"; }
    for (const redraw of redrawn) redraw();
  }
  function remember(theme) {
    document.documentElement.dataset.theme = theme;
    try { localStorage.setItem("dynamiccl-theme", theme); } catch { /* a page from a file may have no storage */ }
    recolor();
  }

  function drawTop() {
    const run = data.sections.provenance?.run ?? {};
    const launches = data.sections.provenance?.launches ?? {};
    const host = Report.hostLine ? Report.hostLine(run.host) : "";
    const top = document.getElementById("top");
    top.replaceChildren(
      el("div", {}, el("p", { class: "brand" }, "DynamICCL report"), el("h1", {}, run.name || "run")),
      el("button", { id: "theme", type: "button", "aria-pressed": String(dark()), onclick: () => remember(dark() ? "light" : "dark") },
        dark() ? "Light" : "Dark"),
      el("p", { class: "meta" }, [host, (run.started_utc || "").slice(0, 16).replace("T", " ") + " UTC",
        data.counts, `${launches.ok} of ${launches.attempts} launches` + (launches.blocks > 1 ? ` in ${launches.blocks} blocks` : ""),
        (run.tool_version || "").replace(/^dynamiccl/, "DynamICCL")].filter(Boolean).join(" · ")),
      ...(data.cells.busy ? [el("p", { class: "note" }, data.cells.busy[0].toUpperCase() + data.cells.busy.slice(1) + ".")] : []),
      el("nav", { "aria-label": "Sections" }, registered.filter(s => s.node).map(s => el("a", { href: "#" + s.id }, s.short || s.title))));
    document.getElementById("foot").replaceChildren("Run " + run.uuid + ". This file needs no network and sends nothing anywhere.");
  }

  // Sections are drawn when they come near the window: a large run would otherwise delay the first chart.
  let watcher = null;
  function drawSection(section) {
    section.dirty = false;
    section.body.replaceChildren();
    try {
      section.draw(section.body, data.sections[section.id]);
    } catch (error) {  // the other sections are still worth reading
      section.body.append(el("p", { class: "note" }, "This section could not be drawn: " + error.message));
      reportError(error);
    }
    if (firstChart) {
      firstChart = false;
      requestAnimationFrame(() => { document.documentElement.dataset.firstChartMs = performance.now().toFixed(1); });
    }
  }
  function near(section) {
    const box = section.node.getBoundingClientRect();
    return box.top < innerHeight * 1.5 && box.bottom > -innerHeight * 0.5;
  }
  function drawSoon(all) {
    for (const section of registered) {
      if (!section.node || (!all && !section.dirty)) continue;
      section.dirty = true;
      if (near(section)) drawSection(section);
    }
  }
  function drawAll() { for (const section of registered) if (section.node && section.dirty) drawSection(section); }

  function start() {
    try {
      const theme = localStorage.getItem("dynamiccl-theme");
      if (theme) document.documentElement.dataset.theme = theme;
    } catch { /* no storage: the system's choice holds */ }
    const main = document.getElementById("main");
    // A search in somebody's own job has choices and no cells.
    const searched = data.sections.decisions?.steps?.length > 0;
    if (!cells.length && !searched) main.append(el("p", { class: "note" }, "Nothing was measured: no cell of this run has a figure. ",
      el("a", { href: "#coverage" }, "What is missing, and why"), " has the reasons."));
    for (const section of registered) {
      if (section.shown && !section.shown(data.sections[section.id])) continue;
      section.body = el("div", {});
      section.node = el("section", { id: section.id, "aria-labelledby": section.id + "-title" },
        el("h2", { id: section.id + "-title" }, section.title), section.lead ? el("p", { class: "soft" }, section.lead) : null, section.body);
      section.node.style.minHeight = "320px";
      section.dirty = true;
      main.append(section.node);
    }
    drawTop();
    drawFilter();
    watcher = new IntersectionObserver(entries => {
      for (const entry of entries) {
        const section = registered.find(s => s.node === entry.target);
        if (entry.isIntersecting && section.dirty) drawSection(section);
        if (!section.dirty) section.node.style.minHeight = "";
      }
    }, { rootMargin: "60% 0px" });
    for (const section of registered) if (section.node) watcher.observe(section.node);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolor);
    let before = null;
    addEventListener("beforeprint", () => {
      before = document.documentElement.dataset.theme ?? "";
      document.documentElement.dataset.theme = "light";
      drawAll();
      recolor();
    });
    addEventListener("afterprint", () => {
      if (before) document.documentElement.dataset.theme = before; else delete document.documentElement.dataset.theme;
      recolor();
    });
  }

  return {
    data, lists, cells, state, format, el, look, environmentLook, environmentOrder, environmentRank, swatch, cssValue, visible,
    operations, operationName, operationControl, chartOperation, choice, drawSoon, drawAll, redrawn, start, registered,
    section: section => registered.push(section),
    /** No verdict: neither surely different nor the same, or waits for a core may explain it. */
    isOpen: cell => ["UNCLEAR", "NOT JUDGED"].includes(lists.verdicts[cell.verdict]),
    say: text => { document.getElementById("live").textContent = text; },
  };
})();
