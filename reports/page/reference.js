// Best and worst choices, and what studies published of the same.
(() => {
  /** Best and worst of each operation at its largest size. */
  function extremesOf(cells) {
    return Report.operations().map(operation => {
      const mine = cells.filter(cell => cell.operation === operation);
      const size = mine.reduce((most, cell) => Math.max(most, cell.size), 0);
      const sorted = mine.filter(cell => cell.size === size).sort((a, b) => a.median - b.median);
      return { operation, size, best: sorted[0], worst: sorted[sorted.length - 1] };
    }).filter(row => row.best);
  }

  function extremesTable(rows) {
    const { el, lists, format, operationName } = Report;
    const label = c => `${lists.backends[c.backend]}, ${lists.environments[c.environment]}`;
    const timed = c => [el("span", { class: "together" }, label(c)), el("br"), format.interval(c.median, c.low, c.high, format.time)];
    return Report.table({ caption: "Medians over launches with 95 % intervals", rows, columns: [
      { name: "operation", text: r => operationName(r.operation) },
      { name: "size", right: true, text: r => format.size(r.size) },
      { name: "best here", text: r => timed(r.best) }, { name: "worst here", text: r => timed(r.worst) },
      { name: "worst / best", right: true, text: r => format.ratio(r.worst.median / r.best.median) }] });
  }

  /** The fastest backend of each environment, where there are several of both. */
  function fastestTable(rows, cells) {
    const { lists, format, operationName } = Report;
    const environments = Report.environmentOrder.filter(e => cells.some(cell => cell.environment === e));
    const within = (row, environment) => cells.filter(c => c.operation === row.operation && c.size === row.size && c.environment === environment).sort((a, b) => a.median - b.median);
    if (environments.length < 2 || lists.backends.length < 2) return null;
    return Report.table({
      caption: "At the same sizes; in brackets how many times longer the slowest backend takes", rows, columns: [
        { name: "operation", text: r => operationName(r.operation) }, { name: "size", right: true, text: r => format.size(r.size) },
        ...environments.map(environment => ({ name: lists.environments[environment], text: r => {
          const list = within(r, environment);
          return !list.length ? "not measured" : `${lists.backends[list[0].backend]} ${format.time(list[0].median)}` +
            (list.length > 1 ? ` (${lists.backends[list[list.length - 1].backend]} ${format.ratio(list[list.length - 1].median / list[0].median)})` : "");
        } }))] });
  }

  /** Rows of query published that the run has something of. */
  function publishedTable(rows) {
    const { el, format } = Report;
    return Report.table({ caption: "Other machines, other versions, messages of 1 GiB: compare directions and factors", rows, columns: [
      { name: "study", text: r => r.study }, { name: "quantity", wide: true, text: r => r.quantity }, { name: "published", right: true, text: r => format.number(r.published) },
      { name: "here", wide: true, text: r => r.here }, { name: "measured", right: true, text: r => format.number(r.measured) },
      { name: el("span", {}, "measured /", el("br"), "published"), right: true, text: r => r.deviation === null ? "-" : format.ratio(r.deviation) }] });
  }

  Report.section({
    id: "reference", short: "Best and worst", title: "Best and worst choice, against published figures",
    lead: "The largest size measured for each operation: fastest and slowest of all environments and backends that pass the filter.",
    shown: own => Report.cells.length > 0 || own.published.length > 0,
    draw(root, own) {
      const { el, visible } = Report;
      const cells = visible().filter(cell => cell.median > 0);
      const rows = extremesOf(cells);
      if (rows.length) root.append(extremesTable(rows));
      else root.append(el("p", { class: "note" }, "Nothing measured passes the filter."));
      const fastest = fastestTable(rows, cells);
      if (fastest) root.append(el("h3", {}, "Fastest backend of each environment"), fastest);
      if (own.published.length) root.append(el("h3", {}, "Published and measured"), publishedTable(own.published));
      root.append(el("p", { class: "method" }, "Medians over launches with 95 % intervals; with many candidates the best one is favoured by chance. " +
        "Query published lists what the studies published besides, and which cell stands for a figure."));
    },
  });
})();
