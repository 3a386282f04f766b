// Overhead ratio over size, and the matrix of all cells.
Report.section({
  id: "overhead", short: "Overhead", title: "Overhead of environments over message size",
  lead: "Time divided by bare metal's time for the same cell. The grey line is bare metal; inside its band of ±2 % times count as equal.",
  shown: () => Report.cells.some(cell => cell.ratio !== null),
  draw(root) {
    const { el, lists, format, visible, operationName, environmentOrder } = Report;
    const operation = Report.chartOperation();
    const compared = Report.comparison() === "settings" ? "settings" : null;
    root.append(el("div", { class: "controls" }, Report.operationControl(), Report.compareControl()));
    const chosen = visible(compared).filter(cell => cell.operation === operation && cell.ratio !== null);
    root.append(el("h3", {}, operationName(operation)));
    root.append(chosen.length ? Report.panels(chosen, cell => ({ value: cell.ratio, low: cell.ratio_low, high: cell.ratio_high,
      notes: [lists.verdicts[cell.verdict] + " at ±2 %", ...(cell.waits ? [cell.waits] : []), ...Report.launchNotes(cell)] }),
      { title: `Overhead of ${operationName(operation)} over size`, floor: [0.8, 1.6], sync: "overhead", tick: format.ratio,
        text: p => format.interval(p.value, p.low, p.high, format.ratio), reference: { value: 1, low: 1 / 1.02, high: 1.02 } })
      : el("p", { class: "note" }, "Nothing measured on bare metal and elsewhere passes the filter."));
    root.append(Report.method([operation], "Band and whisker: 95 % interval of the ratio over launches."));

    const all = visible().filter(cell => cell.ratio !== null);
    root.append(el("h3", {}, "All operations and sizes"));
    const groups = [...new Set(all.map(cell => `${Report.environmentRank[cell.environment]} ${cell.backend}`))]
      .map(key => key.split(" ").map(Number)).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    const byRow = new Map();
    for (const cell of all) {
      const key = cell.operation + " " + cell.size;
      if (!byRow.has(key)) byRow.set(key, { operation: cell.operation, size: cell.size, cells: new Map() });
      byRow.get(key).cells.set(Report.environmentRank[cell.environment] + " " + cell.backend, cell);
    }
    const rows = [...byRow.values()].sort((a, b) => a.operation - b.operation || a.size - b.size);
    const shade = cell => {
      const strength = Math.min(1, Math.abs(Math.log2(cell.ratio)) / 4);
      const color = cell.ratio > 1 ? "--heat-slow" : "--heat-fast";
      return lists.verdicts[cell.verdict] === "SAME" || Report.isOpen(cell) ? null : `background: rgb(var(${color}) / ${(0.08 + 0.5 * strength).toFixed(2)})`;
    };
    const legend = "Orange: surely slower, blue: surely faster, the deeper the more; grey with ?: unclear, or not judged as waits for a core may explain it.";
    const matrixOf = (columns, part, alone) => Report.table({ className: "heat", caption: `Ratio to bare metal${part}. ${legend}`, rows,
      columns: [
        { name: "operation", text: row => operationName(row.operation) },
        { name: "size", right: true, text: row => format.size(row.size) },
        ...columns.map(([environment, backend]) => {
          const of = row => row.cells.get(environment + " " + backend);
          return { name: alone ? lists.backends[backend] : el("span", {}, lists.environments[environmentOrder[environment]], el("br"), lists.backends[backend]), right: true,
            text: row => { const c = of(row); return !c ? "" : format.ratio(c.ratio) + (Report.isOpen(c) ? " ?" : ""); },
            style: row => (of(row) ? shade(of(row)) : null), className: row => (of(row) && Report.isOpen(of(row)) ? "unclear" : ""),
            title: row => { const c = of(row); return c ? `${format.interval(c.ratio, c.ratio_low, c.ratio_high, format.ratio)} ${lists.verdicts[c.verdict]}${c.waits ? ` (${c.waits})` : ""}, ${c.launches.length} launches` : null; } };
        }),
      ] });
    // A window scrolls sideways, paper does not: there the environments stand below each other.
    const columnsOnPaper = 10, pieces = [];
    for (const environment of new Set(groups.map(group => group[0]))) {
      const mine = groups.filter(group => group[0] === environment);
      if (!pieces.length || pieces[pieces.length - 1].length + mine.length > columnsOnPaper) pieces.push([]);
      pieces[pieces.length - 1].push(...mine);
    }
    // Nor does a narrow window show columns that it would have to scroll to.
    const single = [...new Set(groups.map(group => group[0]))].map(environment => groups.filter(group => group[0] === environment));
    const matrix = () => single.length < 2 ? matrixOf(groups, "") : el("div", {},
      el("div", { class: pieces.length < 2 ? "broad" : "broad screen" }, matrixOf(groups, "")),
      el("div", { class: "narrow" }, single.map(mine => matrixOf(mine, `, ${lists.environments[environmentOrder[mine[0][0]]]}`, true))),
      pieces.length < 2 ? null : el("div", { class: "paper" }, pieces.map((piece, i) => matrixOf(piece, ` (${i + 1} of ${pieces.length})`))));
    if (rows.length <= 60) root.append(matrix()); else root.append(Report.tableBehind(matrix, `Ratios of all ${all.length} cells`));
    root.append(Report.tableBehind(() => Report.table({ caption: "Ratios with intervals", rows: chosen, columns: Report.cellColumns([
      { name: "ratio [interval]", right: true, text: c => format.interval(c.ratio, c.ratio_low, c.ratio_high, format.ratio) },
      { name: "verdict", wide: true, text: c => lists.verdicts[c.verdict] + (c.waits ? `: ${c.waits}` : "") }]) }), `Figures of ${operationName(operation)} as a table`));
  },
});
