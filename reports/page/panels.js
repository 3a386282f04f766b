// Panels of charts over size: what one line is, the rest makes the panels.
(() => {
  const { el, lists, look, environmentLook, environmentRank, format } = Report;
  let compare = "environment";

  const dimensions = {
    environment: { title: "environments", names: lists.environments, look: environmentLook, panel: ["backend"], order: environmentRank },
    backend: { title: "backends", names: lists.backends, look: index => look(index + 1), panel: ["environment"] },
    settings: { title: "settings", names: lists.settings, look: index => look(index), panel: ["environment", "backend"] },
  };

  /** Chooses what a line is; shown only where there is a choice. */
  Report.compareControl = () => {
    const possible = Object.entries(dimensions).filter(([, d]) => d.names.length > 1);
    if (possible.length < 2) { if (possible.length) compare = possible[0][0]; return null; }
    if (!possible.some(([key]) => key === compare)) compare = possible[0][0];
    return Report.choice("compare", possible.map(([key, d]) => [key, d.title]), compare, value => { compare = value; });
  };
  Report.comparison = () => compare;

  /**
   * @param cells of one operation
   * @param point(cell) {value, low, high, notes} or null
   * @param spec as lineChart, without series; floor: values the range must hold
   */
  Report.panels = (cells, point, spec) => {
    const dimension = dimensions[compare];
    const groups = new Map();
    for (const cell of cells) {
      const p = cell.size > 0 ? point(cell) : null;
      if (!p || p.value === null || !(p.value > 0)) continue;
      const panel = dimension.panel.map(key => dimensions[key].names[cell[key]]).join(", ");
      if (!groups.has(panel)) groups.set(panel, { order: dimension.panel.map(key => (dimensions[key].order || [])[cell[key]] ?? cell[key]), series: new Map() });
      const series = groups.get(panel).series;
      if (!series.has(cell[compare])) series.set(cell[compare], []);
      series.get(cell[compare]).push({ x: cell.size, ...p });
    }
    const before = (a, b) => { for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return a[i] - b[i]; return 0; };
    const panels = [...groups].sort((a, b) => before(a[1].order, b[1].order)).map(([caption, group]) => ({ caption,
      series: [...group.series].sort((a, b) => ((dimension.order || [])[a[0]] ?? a[0]) - ((dimension.order || [])[b[0]] ?? b[0]))
        .map(([index, points]) => ({ label: dimension.names[index], look: dimension.look(index), points, order: (dimension.order || [])[index] ?? index })) }));
    const all = panels.flatMap(panel => panel.series);
    const range = Report.yRange(all, spec.floor);
    const labels = [...new Map(all.map(s => [s.label, s])).values()].sort((a, b) => a.order - b.order);
    return el("div", {},
      labels.length > 1 || compare !== "environment" ? Report.keys(labels) : null,
      el("div", { class: "panels" }, panels.map(panel => Report.lineChart({ ...spec, range, caption: panel.caption, series: panel.series,
        title: `${spec.title}, ${panel.caption}` }))));
  };

  Report.launchNotes = cell => {
    const launches = `${cell.launches.length} launch${cell.launches.length === 1 ? ": no interval" : "es"}`;
    const spread = cell.launches.length > 1 ? ` from ${format.time(cell.launches.reduce((a, b) => Math.min(a, b)))} to ${format.time(cell.launches.reduce((a, b) => Math.max(a, b)))}` : "";
    return [launches + spread, ...(cell.drifting ? [`${cell.drifting} of them drifted`] : [])];
  };
})();
