// Where the time of one operation and size goes.
(() => {
  let chosenSize = null;
  const parts = [["collective_us", "collective in the library", "--p-collective"], ["h2d_us", "copy host to device", "--p-h2d"],
    ["d2h_us", "copy device to host", "--p-d2h"], ["send_us", "send between workers and server", "--p-send"],
    ["compute_us", "server's reduction", "--p-compute"]];
  const rest = cell => Math.max(0, cell.median - parts.reduce((sum, [key]) => sum + (cell[key] ?? 0), 0));

  Report.section({
    id: "components", short: "Components", title: "Where the time goes",
    // One bar of one piece says nothing.
    shown: () => Report.lists.environments.length * Report.lists.backends.length > 1 || Report.cells.some(cell => parts.some(([key]) => cell[key] > 0)),
    lead: "One bar per environment and backend: the whole of a call, split into what was timed inside it.",
    draw(root) {
      const { el, lists, format, visible, operationName, swatch, environmentLook, environmentOrder } = Report;
      const operation = Report.chartOperation();
      const mine = visible().filter(cell => cell.operation === operation && cell.median > 0);
      const sizes = [...new Set(mine.map(cell => cell.size))].sort((a, b) => a - b);
      if (!sizes.includes(chosenSize)) chosenSize = sizes[sizes.length - 1];
      root.append(el("div", { class: "controls" }, Report.operationControl(), sizes.length > 1
        ? Report.choice("size", sizes.map(size => [size, format.size(size)]), chosenSize, value => { chosenSize = Number(value); }) : null));
      const cells = mine.filter(cell => cell.size === chosenSize);
      if (!cells.length) { root.append(el("p", { class: "note" }, "Nothing measured passes the filter.")); return; }
      const trains = lists.operations[operation]?.collective === "training";
      const shown = parts.filter(([key]) => cells.some(cell => cell[key] > 0)).map(([key, name, color]) => [key, trains && key === "compute_us" ? "computation" : name, color]);
      root.append(el("h3", {}, `${operationName(operation)}, ${format.size(chosenSize)}`), el("ul", { class: "keys" },
        [...shown, [null, "everything else in the call", "--p-other"]].map(([, name, color]) =>
          el("li", { class: "key" }, el("span", { class: "swatch", style: `background: var(${color})` }), name))));
      const longest = cells.reduce((most, cell) => Math.max(most, cell.median), 0);
      const bars = el("div", { class: "bars" });
      for (const environment of environmentOrder) {
        const rows = cells.filter(cell => cell.environment === environment).sort((a, b) => a.backend - b.backend);
        if (rows.length) bars.append(el("div", { class: "group" }, swatch(environmentLook(environment)), lists.environments[environment]));
        for (const cell of rows) {
          const pieces = [...shown.map(([key, name, color]) => [cell[key] ?? 0, name, color]), [rest(cell), "everything else", "--p-other"]];
          const sum = pieces.reduce((all, [us]) => all + us, 0) || 1;
          const spoken = pieces.filter(([us]) => us > 0).map(([us, name]) => `${name} ${format.time(us)}`).join(", ");
          bars.append(el("div", {}, lists.backends[cell.backend]),
            el("div", { role: "img", title: spoken, "aria-label": `${lists.environments[environment]} ${lists.backends[cell.backend]}: ${spoken}` },
              el("div", { class: "bar", style: `width: ${Math.max(.4, 100 * cell.median / longest).toFixed(2)}%` },
                pieces.filter(([us]) => us > 0).map(([us, , color]) => el("i", { style: `width: ${(100 * us / sum).toFixed(2)}%; background: var(${color})` })))),
            el("div", { class: "value" }, format.time(cell.median)));
        }
      }
      root.append(bars);
      const gpu = cells.some(cell => cell.device_us !== null);
      root.append(Report.method([operation], "Medians of each part over the launches: they need not add up to the median of the whole; the rest is never below zero."),
        Report.tableBehind(() => Report.table({ caption: `Components of ${operationName(operation)}, ${format.size(chosenSize)}`, rows: cells, columns: Report.cellColumns([
          { name: "whole", right: true, text: c => format.time(c.median) },
          ...shown.map(([key, name]) => ({ name, right: true, text: c => format.time(c[key]) })),
          { name: "everything else", right: true, text: c => format.time(rest(c)) },
          ...(gpu ? [{ name: "the same by the GPU's clock", right: true, text: c => format.time(c.device_us) }] : [])]) })));
    },
  });
})();
