// Best and worst, beside the container study's published figures.
(() => {
  /** A server's broadcast and a ring's are different work: both names have to be the published ones. */
  const sameOperation = (operation, published) => {
    const o = Report.lists.operations[operation];
    return o.architecture === published.architecture && o.collective === published.collective;
  };
  const publishedName = p => `${p.architecture} ${p.collective}`;
  /** Measured cells that a published figure of an operation may be set beside: those of several ranks. */
  const alike = published => Report.visible().filter(cell => sameOperation(cell.operation, published) && Report.lists.operations[cell.operation].ranks > 1);
  const largestFirst = (a, b) => b.size - a.size || Report.lists.operations[b.operation].ranks - Report.lists.operations[a.operation].ranks;

  /** Best and worst of each operation at its largest size, with the published ones. */
  function extremesOf(cells, published) {
    return Report.operations().map(operation => {
      const mine = cells.filter(cell => cell.operation === operation);
      const size = mine.reduce((most, cell) => Math.max(most, cell.size), 0);
      const sorted = mine.filter(cell => cell.size === size).sort((a, b) => a.median - b.median);
      const of = best => published.extremes.find(e => sameOperation(operation, e) && e.best === best);
      return { operation, size, best: sorted[0], worst: sorted[sorted.length - 1], publishedBest: of(true), publishedWorst: of(false) };
    }).filter(row => row.best);
  }

  function extremesTable(rows, published) {
    const { el, lists, format, operationName } = Report;
    const label = c => `${lists.backends[c.backend]}, ${lists.environments[c.environment]}`;
    const timed = c => [el("span", { class: "together" }, label(c)), el("br"), format.interval(c.median, c.low, c.high, format.time)];
    const seconds = e => e ? [el("span", { class: "together" }, `${e.backend}, ${e.environment}`), el("br"), e.seconds + " s"] : "-";
    return Report.table({ caption: `Measured here; published: ${published.testbed}, seconds of communication in a training run`, rows, columns: [
      { name: "operation", text: r => operationName(r.operation) },
      { name: "size", right: true, text: r => format.size(r.size) },
      { name: "best here", text: r => timed(r.best) }, { name: "worst here", text: r => timed(r.worst) },
      { name: "worst / best", right: true, text: r => format.ratio(r.worst.median / r.best.median) },
      { name: "published best", text: r => seconds(r.publishedBest) }, { name: "published worst", text: r => seconds(r.publishedWorst) },
      { name: el("span", {}, "published", el("br"), "worst / best"), right: true, text: r => r.publishedBest && r.publishedWorst ? format.ratio(r.publishedWorst.seconds / r.publishedBest.seconds) : "-" }] });
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

  function overheadTable(published) {
    const { el, lists, format } = Report;
    const compared = p => alike(p).filter(cell => lists.environments[cell.environment] === p.environment && cell.ratio !== null);
    const here = p => compared(p).filter(cell => lists.backends[cell.backend] === p.backend).sort(largestFirst)[0];
    const stand = p => {  // the same environment and operation with any backend
      const mine = compared(p);
      const largest = mine.reduce((most, cell) => Math.max(most, cell.size), 0);
      const sorted = mine.filter(cell => cell.size === largest).sort((a, b) => a.ratio - b.ratio);
      return sorted.length ? `${format.ratio(sorted[0].ratio)} to ${format.ratio(sorted[sorted.length - 1].ratio)} at ${format.size(largest)}` : "not measured";
    };
    return Report.table({ caption: `Time over bare metal's. Published: ${published.testbed}`, rows: published.ratios, columns: [
      { name: "operation", text: publishedName }, { name: "backend", text: p => p.backend }, { name: "environment", text: p => p.environment },
      { name: "published", right: true, text: p => format.ratio(p.ratio) }, { name: "from", text: p => p.where },
      { name: "same backend here", right: true, text: p => { const c = here(p); return c ? `${format.interval(c.ratio, c.ratio_low, c.ratio_high, format.ratio)} at ${format.size(c.size)}` : "not measured"; } },
      { name: el("span", {}, "here /", el("br"), "published"), right: true, text: p => { const c = here(p); return c ? format.ratio(c.ratio / p.ratio) : "-"; } },
      { name: "all backends here", right: true, text: stand }] });
  }

  /** Shares of copies beside the published ones; null where no copy was timed. */
  function copiesTable(published) {
    const { lists, format } = Report;
    const copies = published.copy_shares.map(p => {
      const mine = alike(p).filter(c => lists.backends[c.backend] === p.backend && lists.environments[c.environment] === "bare-metal" &&
        (c.h2d_us !== null || c.d2h_us !== null) && c.median > 0).sort(largestFirst)[0];
      return { p, mine };
    });
    if (!copies.some(row => row.mine)) return null;
    return Report.table({ caption: "Bare metal, largest size", rows: copies, columns: [
      { name: "operation", text: r => publishedName(r.p) }, { name: "backend", text: r => r.p.backend }, { name: "published", right: true, text: r => r.p.percent + " %" },
      { name: "here", right: true, text: r => r.mine ? `${format.number(100 * ((r.mine.h2d_us || 0) + (r.mine.d2h_us || 0)) / r.mine.median)} % at ${format.size(r.mine.size)}` : "not measured" }] });
  }

  Report.section({
    id: "reference", short: "Best and worst", title: "Best and worst choice, against published figures",
    lead: "The largest size measured for each operation: fastest and slowest of all environments and backends that pass the filter.",
    shown: () => Report.cells.length > 0,
    draw(root, published) {
      const { el, visible } = Report;
      const cells = visible().filter(cell => cell.median > 0);
      const rows = extremesOf(cells, published);
      if (!rows.length) { root.append(el("p", { class: "note" }, "Nothing measured passes the filter.")); return; }
      root.append(extremesTable(rows, published));
      const fastest = fastestTable(rows, cells);
      if (fastest) root.append(el("h3", {}, "Fastest backend of each environment"), fastest);
      root.append(el("h3", {}, "Overhead against the published one"), overheadTable(published));
      const copies = copiesTable(published);
      if (copies) root.append(el("h3", {}, "Share of copies between host and device"), copies);
      root.append(el("p", { class: "method" }, "Published figures are of other hardware, other library versions and 1 GiB messages from single runs: compare directions and factors, not times. " +
        "Here: medians over launches with 95 % intervals; with many candidates the best one is favoured by chance."));
    },
  });
})();
