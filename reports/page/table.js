// Tables, and the table that stands behind every chart.
Report.rowLimit = 2000;

/** columns: [{name, right, text(row) or node(row), wide}]; rows beyond the limit are counted, not drawn. */
Report.table = ({ caption, columns, rows, className }) => {
  const { el } = Report;
  const shown = rows.slice(0, Report.rowLimit);
  const cellOf = (row, column, i) => {
    const content = column.text(row);
    const style = column.style ? column.style(row) : null;
    return el(i === 0 && column.head !== false ? "th" : "td",
      { class: [column.right ? "r" : "", column.wide ? "wide" : "", column.className ? column.className(row) : ""].join(" ").trim() || null,
        scope: i === 0 && column.head !== false ? "row" : null, "data-name": column.name || null, style, title: column.title ? column.title(row) : null },
      content);
  };
  // Of more columns than a telephone has room for each row becomes a list there.
  const node = el("table", { class: [className, !className && columns.length > 3 ? "folds" : ""].join(" ").trim() || null },
    el("caption", {}, caption + (rows.length > shown.length
      ? ` The first ${shown.length} of ${rows.length} rows; "dynamiccl report --format csv" gives all.` : "")),
    el("thead", {}, el("tr", {}, columns.map(column => el("th", { scope: "col", class: column.right ? "r" : null }, column.name)))),
    el("tbody", {}, shown.map(row => el("tr", {}, columns.map((column, i) => cellOf(row, column, i))))));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, node);
};

/** The figures of a chart as a table, made when it is opened. */
Report.tableBehind = (make, title = "Figures as a table") => {
  const { el } = Report;
  const details = el("details", { class: "figures" }, el("summary", {}, title));
  details.addEventListener("toggle", () => { if (details.open && !details.querySelector("table")) details.append(make()); });
  return details;
};

/** Columns that name a cell, then its figures. */
Report.cellColumns = figures => {
  const { lists, format, operationName } = Report;
  return [
    { name: "operation", text: c => operationName(c.operation) },
    { name: "size", right: true, text: c => format.size(c.size) },
    { name: "environment", text: c => lists.environments[c.environment] },
    { name: "backend", text: c => lists.backends[c.backend] },
    ...(lists.settings.length > 1 ? [{ name: "settings", wide: true, text: c => lists.settings[c.settings] }] : []),
    ...figures,
    { name: "launches", right: true, text: c => String(c.launches.length) },
  ];
};

/** What stands under a chart: how its figures were made. */
Report.method = (operations, more) => {
  const { el, lists } = Report;
  const texts = [...new Set(operations.map(o => lists.operations[o]?.method).filter(Boolean))];
  return el("p", { class: "method" }, (more ? more + " " : "") + texts.slice(0, 2).map(text => text[0].toUpperCase() + text.slice(1) + ".").join(" ") +
    (texts.length > 2 ? ` (${texts.length - 2} more operations by other methods: the tables name them.)` : ""));
};

/** Names of a list that are long are cut in the middle of the page, not in the middle of a word. */
Report.list = (text, most = 4) => {
  const names = (text || "").split(",");
  return names.slice(0, most).join(", ") + (names.length > most ? ` and ${names.length - most} more` : "");
};
