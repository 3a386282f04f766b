// What each environment costs at one glance, and why.
(() => {
  const quantile = (sorted, q) => { const at = (sorted.length - 1) * q, i = Math.floor(at); return sorted[i] + (at - i) * ((sorted[i + 1] ?? sorted[i]) - sorted[i]); };
  const regimes = () => Report.data.sections.regimes || { regimes: [], transports: [], profiles: {} };

  /** The scale that all environments share, fitted into the room that is there. */
  function scaleOf(cells, room) {
    const values = cells.map(cell => cell.ratio);
    const low = Math.min(0.9, ...values.length ? [values.reduce((a, b) => Math.min(a, b))] : []) / 1.1;
    const high = Math.max(2, ...values.length ? [values.reduce((a, b) => Math.max(a, b))] : []) * 1.1;
    const gutter = 14 + 6.8 * Math.max(4, ...Report.lists.backends.map(name => name.length));
    const width = Math.max(180, (room > 976 ? room - 190 - 128 - 340 - 66 : room > 612 ? (room - 110 - 44) * .66 : room) - gutter - 16);
    const ticks = [1, ...Report.decimalTicks(low, high, 6).filter(t => t !== 1)].sort((a, b) => a - b);
    return { gutter, width, ticks, x: value => (Math.log(value / low) / Math.log(high / low)) * width };
  }

  /** The transports that were used and the causes that the regime shows. */
  function why(environment) {
    const { el, lists } = Report;
    const name = lists.environments[environment];
    const chosen = [...Report.state.backends].map(b => lists.backends[b]);
    const mine = regimes().regimes.filter(r => r.environment === name && chosen.includes(r.backend));
    const moved = new Map();
    for (const t of regimes().transports.filter(t => t.environment === name && chosen.includes(t.backend)))
      moved.set(t.transport, [...moved.get(t.transport) || [], t.backend]);
    const lines = [...new Set(mine.flatMap(r => r.causes))].map(text => text[0].toUpperCase() + text.slice(1));
    const used = [...moved].map(([transport, backends]) => `${transport} (${[...new Set(backends)].join(", ")})`).join(", ");
    return el("div", { class: "why" }, used ? el("div", {}, el("b", {}, "Data moved by "), used) : null,
      lines.length ? [el("ul", {}, lines.map(text => el("li", {}, text))), el("small", {}, "Fixes: ", el("code", {}, `dynamiccl doctor ${name}`))] : mine.length ? el("div", { class: "soft" }, ["No shared-memory or link cause found; ", el("code", {}, `dynamiccl doctor ${name}`), " looks for more."]) : null);
  }

  /** A mark per cell on the shared scale, a lane per backend. */
  function strip(environment, mine, { gutter, width, ticks, x }) {
    const { el, lists, format, environmentLook } = Report;
    const backends = [...new Set(mine.map(cell => cell.backend))].sort((a, b) => a - b);
    const lane = 14, height = Math.max(24, backends.length * lane + 8);
    const middle = backend => 4 + lane * (backends.indexOf(backend) + .5);
    const sorted = mine.map(cell => cell.ratio).sort((a, b) => a - b);
    const color = `var(${environmentLook(environment).color})`;
    const svg = el("svg", { class: "strip", viewBox: `${-gutter} 0 ${width + gutter + 16} ${height}`, role: "img",
      "aria-label": `${lists.environments[environment]}: ${mine.length} cells, middle half ${format.ratio(quantile(sorted, .25))} to ${format.ratio(quantile(sorted, .75))}, ` +
        `least ${format.ratio(sorted[0])}, most ${format.ratio(sorted[sorted.length - 1])}` });
    for (const tick of ticks) svg.append(el("line", { x1: x(tick), x2: x(tick), y1: 0, y2: height,
      stroke: tick === 1 ? "var(--ink)" : "var(--grid)", "stroke-width": tick === 1 ? 1.5 : 1 }));
    svg.append(el("rect", { x: x(quantile(sorted, .25)), width: Math.max(1, x(quantile(sorted, .75)) - x(quantile(sorted, .25))), y: 1, height: height - 2, fill: color, opacity: .13, rx: 2 }));
    for (const backend of backends) svg.append(el("text", { x: -gutter, y: middle(backend) + 4 }, lists.backends[backend]));
    const dots = mine.length <= 1500 ? mine : [];
    for (const cell of dots) {
      const verdict = lists.verdicts[cell.verdict];
      const sure = verdict === "SLOWER" || verdict === "FASTER";
      svg.append(el("circle", { cx: x(cell.ratio), cy: middle(cell.backend), r: verdict === "SAME" ? 2 : 3.4, fill: sure || verdict === "SAME" ? color : "var(--paper)",
        "fill-opacity": sure ? .8 : 1, stroke: color, "stroke-width": 1.2 }, el("title", {},
        `${Report.operationName(cell.operation)} ${format.size(cell.size)}, ${lists.backends[cell.backend]}: ${format.interval(cell.ratio, cell.ratio_low, cell.ratio_high, format.ratio)} ${verdict}${cell.waits ? `: ${cell.waits}` : ""}`)));
    }
    svg.append(el("line", { x1: x(quantile(sorted, .5)), x2: x(quantile(sorted, .5)), y1: 0, y2: height, stroke: color, "stroke-width": 3 }));
    return svg;
  }

  /** The medians of an environment's libraries: one over all of them would hide that one gains what another loses. */
  function perLibrary(mine) {
    const { el, lists, format } = Report;
    return [...new Set(mine.map(cell => cell.backend))].sort((a, b) => a - b).map(backend => {
      const own = mine.filter(cell => cell.backend === backend);
      const sorted = own.map(cell => cell.ratio).sort((a, b) => a - b);
      const surely = own.some(cell => ["SLOWER", "FASTER", "SAME"].includes(lists.verdicts[cell.verdict]));
      return el("div", {}, el("span", { class: surely ? "big" : "big unclear" }, format.ratio(quantile(sorted, .5))), el("small", {}, `${lists.backends[backend]}, median of ${own.length}`));
    });
  }

  /** One environment: name, median ratios, its cells, why. */
  function costRow(environment, cells, scale) {
    const { el, lists, format, environmentLook, swatch } = Report;
    const name = lists.environments[environment];
    const mine = cells.filter(cell => cell.environment === environment);
    const profile = regimes().profiles[name] || {};
    const title = el("div", {}, el("div", { class: "name" }, swatch(environmentLook(environment)), name), el("small", {}, profile.description || ""));
    if (!mine.length) {
      const measured = Report.cells.some(cell => cell.environment === environment);
      return el("div", { class: "cost" }, title, el("div", {}, el("div", { class: "big" }, name === "bare-metal" ? "1×" : "-"),
        el("small", {}, name === "bare-metal" ? "the baseline" : measured ? "no such cell on bare metal" : "not measured")), el("div", { class: "strip-box" }), why(environment));
    }
    const count = verdict => mine.filter(cell => lists.verdicts[cell.verdict] === verdict).length;
    const worst = mine.filter(cell => lists.verdicts[cell.verdict] === "SLOWER").reduce((most, cell) => Math.max(most, cell.sure), 0);
    const surely = count("SLOWER") + count("FASTER") + count("SAME");
    return el("div", { class: "cost" }, title,
      el("div", {}, perLibrary(mine), el("small", {}, worst ? `surely up to ${format.ratio(worst)}` : surely ? "" : "none of them sure")),
      el("div", { class: "strip-box" }, strip(environment, mine, scale), el("small", {},
        `${count("SLOWER")} slower, ${count("SAME")} same, ${count("FASTER")} faster, ${count("UNCLEAR")} unclear` + (count("NOT JUDGED") ? `, ${count("NOT JUDGED")} not judged: ranks waited for cores` : ""))),
      why(environment));
  }

  function axisRow({ gutter, width, ticks, x }) {
    const { el, format } = Report;
    const axis = el("svg", { class: "strip", viewBox: `${-gutter} 0 ${width + gutter + 16} 18`, "aria-hidden": "true" });
    for (const tick of ticks) axis.append(el("text", { x: x(tick), y: 12, "text-anchor": "middle" }, format.ratio(tick)));
    return el("div", { class: "cost axisrow" }, el("div", { class: "name" }), el("div", { class: "number" }), el("div", { class: "strip-box" }, axis), el("div", {}));
  }

  Report.section({
    id: "overview", short: "Cost", title: "What each environment costs, and why",
    lead: "Time against bare metal for the same operation, size, backend and settings. A mark is one cell; right of 1× is slower.",
    shown: () => Report.cells.length > 0,
    draw(root) {
      const { el, lists, format, visible, environmentOrder } = Report;
      // One rank alone has nobody to talk to: its cells say nothing of what an environment costs.
      const several = cell => lists.operations[cell.operation].ranks > 1;
      const alone = !Report.cells.some(several);
      const cells = visible().filter(cell => cell.ratio !== null && (alone || several(cell)));
      const left = visible().filter(cell => cell.ratio !== null).length - cells.length;
      const scale = scaleOf(cells, root.clientWidth);
      // What speaks against the figures stands before them.
      const doubts = ((Report.data.sections.coverage || {}).trust || []).filter(text => /FLAGGED|TOO SHORT|FAILS|NOT VERIFIED/.test(text));
      if (doubts.length) root.append(el("ul", { class: "note" }, doubts.map(text => el("li", {}, text.replaceAll("`", "")))));
      const rows = el("div", { class: "costs" }, environmentOrder.filter(e => Report.state.environments.has(e)).map(e => costRow(e, cells, scale)));
      if (cells.length) rows.append(axisRow(scale));
      root.append(rows);
      if (!cells.length) root.append(el("p", { class: "note" }, lists.environments.length > 1
        ? "No cell here was also measured on bare metal: there is no ratio to show." : "One environment was measured: there is nothing to compare it with in this run."));
      root.append(el("p", { class: "method" }, "Filled mark: surely outside ±2 %, at a false discovery rate of 5 % over all cells of the run. Small mark: the 95 % interval lies wholly inside, so the same. Open mark: unclear, more launches would tell, or not judged, as waits for a core may explain it. " +
        "Thick line: median over the cells; shade: their middle half. " + (left ? `${left} cells of one rank are left out: nothing is sent. ` : "") +
        "Causes are derived from what the ranks detected, transports are counted at the ranks."),
        Report.tableBehind(() => Report.table({ caption: "Every cell's time against bare metal, with the 95 % interval.", rows: cells, columns: Report.cellColumns([
          { name: "ratio [interval]", right: true, text: c => format.interval(c.ratio, c.ratio_low, c.ratio_high, format.ratio) },
          { name: "verdict", wide: true, text: c => lists.verdicts[c.verdict] + (c.waits ? `: ${c.waits}` : "") },
        ]) })));
    },
  });
})();
