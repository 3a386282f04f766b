// Tables, and the table that stands behind every chart.
Report.rowLimit = 2000;

/** "3.1 ms [2.9, 3.4]", or "3.1 ms (+2 %)", of which a narrow column may put the brackets on a line of their own. */
Report.figure = text => {
  const { el } = Report, at = text.search(/ [[(]/);
  const parts = at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
  return el("span", { class: "breaks" }, parts.flatMap((part, i) => [i ? " " : null, el("span", { class: "together" }, part)]));
};
/** Names that are long as "a", "b" ..., in the order in which they are met, with what those mean. */
Report.lettered = (names, longest = 14) => {
  const known = [...new Set(names)], brief = known.every(name => name.length <= longest);
  const key = name => brief ? name : String.fromCharCode(97 + known.indexOf(name) % 26).repeat(1 + Math.floor(known.indexOf(name) / 26));
  return { key, legend: brief ? [] : known.map(name => `${key(name)}: ${name}`) };
};

/** columns: [{name, right, text(row) or node(row), wide, quiet}]; rows beyond the limit are counted, not drawn. A quiet column that
 * says one thing of all rows is said once, above them; rows of one group(row) stand below a line with its name. */
Report.table = ({ caption, columns: asked, rows: all, className, group }) => {
  const { el } = Report;
  const rows = group ? [...new Set(all.map(group))].flatMap(name => all.filter(row => group(row) === name)) : all;
  const said = (column, row) => [column.text(row)].flat().map(part => part?.textContent ?? part).join("");
  const fixed = rows.length < 2 ? [] : asked.filter(column => column.quiet && rows.every(row => said(column, row) === said(column, rows[0])));
  const columns = asked.filter(column => !fixed.includes(column));
  const grouped = group && rows.some(row => group(row) !== group(rows[0]));
  const same = [...(group && rows.length && !grouped ? [group(rows[0])] : []), ...fixed.map(column => `${column.name} ${said(column, rows[0])}`)];
  if (same.length) caption = caption.replace(/\.$/, "") + `. ${rows.length > 1 ? "All rows: " : ""}${same.join(", ")}.`;
  const begins = (row, i) => grouped && (i === 0 || group(row) !== group(rows[i - 1]));
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
    el("tbody", {}, shown.flatMap((row, i) => [begins(row, i) ? el("tr", { class: "group" }, el("th", { scope: "rowgroup", colspan: columns.length }, group(row))) : null,
      el("tr", {}, columns.map((column, at) => cellOf(row, column, at)))])));
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
    { name: "operation", quiet: true, text: c => operationName(c.operation) },
    { name: "size", quiet: true, right: true, text: c => format.size(c.size) },
    { name: "environment", quiet: true, text: c => lists.environments[c.environment] },
    { name: "backend", quiet: true, text: c => lists.backends[c.backend] },
    ...(lists.settings.length > 1 ? [{ name: "settings", quiet: true, wide: true, text: c => lists.settings[c.settings] }] : []),
    ...figures,
    { name: "launches", quiet: true, right: true, text: c => String(c.launches.length) },
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
