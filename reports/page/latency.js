// Latency and bandwidth over size.
(() => {
  let metric = "latency";
  const metrics = {
    latency: { name: "Latency", tick: us => Report.format.time(us), of: c => ({ value: c.median, low: c.low, high: c.high }),
      means: "Time of one call." },
    busbw: { name: "Bus bandwidth", tick: b => Report.format.bandwidth(b), means: "Size divided by time, times the operation's factor as nccl-tests defines it.",
      of: c => c.busbw_factor ? scaled(c, c.size * 1e6 * c.busbw_factor) : null },
    algbw: { name: "Algorithm bandwidth", tick: b => Report.format.bandwidth(b), means: "Size divided by time.", of: c => scaled(c, c.size * 1e6) },
  };
  // The longest time is the lowest bandwidth.
  function scaled(c, product) {
    if (!(c.median > 0)) return null;
    return { value: product / c.median, low: c.high > 0 ? product / c.high : null, high: c.low > 0 ? product / c.low : null };
  }

  Report.section({
    id: "latency", short: "Latency and bandwidth", title: "Latency and bandwidth over message size",
    lead: "Panels share their scale. Both axes are logarithmic.",
    // What is trained has one size: its section is the one of training.
    shown: () => Report.cells.some(cell => Report.lists.operations[cell.operation].collective !== "training"),
    draw(root, own) {
      const { el, format, visible, operationName } = Report;
      const operation = Report.chartOperation();
      const kind = metrics[metric];
      const radios = el("fieldset", {}, el("legend", { class: "hidden" }, "figure"), Object.entries(metrics).map(([key, m]) =>
        el("label", { class: "chip" }, el("input", { type: "radio", name: "metric", checked: key === metric, onchange: () => {
          metric = key;
          root.replaceChildren();
          this.draw(root, own);
          root.querySelector("input[name=metric]:checked").focus();
        } }), m.name)));
      root.append(el("div", { class: "controls" }, radios, Report.operationControl(), Report.compareControl()));
      const compared = Report.comparison() === "settings" ? "settings" : null;
      const chosen = visible(compared).filter(cell => cell.operation === operation);
      root.append(el("h3", {}, `${kind.name} of ${operationName(operation)}`));
      root.append(chosen.length ? Report.panels(chosen, cell => { const p = kind.of(cell); return p && { ...p, notes: Report.launchNotes(cell) }; },
        { title: `${kind.name} of ${operationName(operation)} over size`, sync: "latency", tick: kind.tick, text: p => format.interval(p.value, p.low, p.high, kind.tick) })
        : el("p", { class: "note" }, "Nothing measured passes the filter."));
      root.append(Report.method([operation], kind.means + " Band and whisker: 95 % interval over launches."));
      root.append(Report.tableBehind(() => Report.table({ caption: `${operationName(operation)}: medians over launches with 95 % intervals`, rows: chosen,
        columns: Report.cellColumns([
          { name: "latency [interval]", right: true, text: c => format.interval(c.median, c.low, c.high, format.time) },
          ...["busbw", "algbw"].map(key => ({ name: metrics[key].name.toLowerCase() + " [interval]", right: true,
            text: c => { const p = metrics[key].of(c); return p ? format.interval(p.value, p.low, p.high, format.bandwidth) : "-"; } })),
          { name: "launch medians", wide: true, text: c => c.launches.map(format.time).join(", ") }]) })));
      fitTable(root, own, chosen);
    },
  });

  /** Time = start-up + size / bandwidth, one line per range of sizes. */
  function fitTable(root, own, chosen) {
    const { lists, format } = Report;
    const curve = c => [c.operation, c.environment, c.backend, c.settings].join();
    const known = new Set(chosen.map(curve));
    const rows = own.fits.filter(fit => known.has(curve(Report.cells[fit.cell]))).flatMap(fit => fit.pieces.map(piece => ({ ...piece, first: fit.cell, regime: fit.regime, cell: Report.cells[fit.cell] })))
      .sort((a, b) => Report.environmentRank[a.cell.environment] - Report.environmentRank[b.cell.environment] || a.cell.backend - b.cell.backend || a.from - b.from);
    if (!rows.length) return;
    // Launches of one cell in two regimes have a line each.
    const mixed = new Set(rows.map(r => r.first)).size < new Set(rows.map(r => r.first + r.regime)).size;
    root.append(Report.tableBehind(() => Report.table({ caption: "Time = start-up + size / bandwidth, fitted to relative residuals per regime; a further line must pay for its two parameters (BIC). Intervals: 95 %, from fits of each block (signed ranks from six blocks on, t below); none where sizes were timed by different cadences, calls back to back and calls alone (*).", rows, columns: [
      { name: "environment", text: r => lists.environments[r.cell.environment] }, { name: "backend", text: r => lists.backends[r.cell.backend] },
      ...(lists.settings.length > 1 ? [{ name: "settings", wide: true, text: r => lists.settings[r.cell.settings] }] : []),
      ...(mixed ? [{ name: "regime", wide: true, text: r => r.regime || "not known" }] : []),
      { name: "sizes", text: r => `${format.size(r.from)} to ${format.size(r.to)}${r.mixed_cadences ? " *" : ""}` },
      { name: "start-up [interval]", right: true, text: r => format.interval(r.alpha_us, r.alpha_low_us, r.alpha_high_us, format.time) },
      { name: "bandwidth [interval]", right: true, text: r => r.bytes_per_s === null ? "no slope" : format.interval(r.bytes_per_s, r.low_bytes_per_s, r.high_bytes_per_s, format.bandwidth) },
      { name: "error of the fit", right: true, text: r => r.error === null ? "-" : format.number(100 * r.error) + " %" }] }), "Start-up time and bandwidth per curve"));
  }
})();
