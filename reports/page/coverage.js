// What is missing, and why.
Report.section({
  id: "coverage", short: "What is missing", title: "What is missing, and why",
  lead: "Every planned cell is accounted for.",
  draw(root, own) {
    const { el, lists, cells, format } = Report;
    const environments = [...new Set(own.counts.map(c => c.environment))];
    const order = name => { const i = lists.environments.indexOf(name); return i < 0 ? 1e6 : Report.environmentRank[i]; };
    environments.sort((a, b) => order(a) - order(b) || (a < b ? -1 : 1));
    const backends = [...new Set(own.counts.map(c => c.backend))].sort();
    const of = (environment, backend) => own.counts.filter(c => c.environment === environment && c.backend === backend);
    const total = list => list.reduce((sum, c) => sum + c.cells, 0);
    const good = list => total(list.filter(c => c.status === "ok"));
    root.append(Report.table({ caption: "Cells with a result, of those planned", rows: environments, columns: [
      { name: "environment", text: e => e },
      ...backends.map(backend => ({ name: backend, right: true, className: e => good(of(e, backend)) < total(of(e, backend)) ? "unclear" : "",
        text: e => { const list = of(e, backend); if (!list.length) return "not planned"; const rest = list.filter(c => c.status !== "ok").map(c => c.status);
          return `${good(list)} of ${total(list)}` + (rest.length ? " " + rest.join(", ") : ""); } }))] }));
    const names = key => ({ name: key, wide: true, text: row => Report.list(row[key]) });
    if (own.missing.length) root.append(el("h3", {}, "Cells without a result"), Report.table({ caption: "Grouped by reason", rows: own.missing, columns: [
      { name: "cells", right: true, text: row => String(row.cells) }, { name: "outcome", text: row => row.status },
      { name: "why", wide: true, text: row => row.reason || "no reason recorded" }, names("environments"), names("backends"), names("operations")] }));
    if (own.attempts.length) root.append(el("h3", {}, "Launches that did not end well"), Report.table({ caption: "Failed attempts are repeated, and never counted", rows: own.attempts, columns: [
      { name: "attempts", right: true, text: row => String(row.attempts) }, { name: "outcome", text: row => row.status },
      { name: "why", wide: true, text: row => row.reason || "no reason recorded" }, names("environments"), names("backends")] }));
    // `query noise` in a note is a command.
    const withCommands = text => text.split("`").map((part, i) => i % 2 ? el("code", {}, "dynamiccl " + part) : part);
    const bare = cells.filter(c => c.low === null).length;
    const drifting = cells.filter(c => c.drifting > 0).length;
    const unclear = cells.filter(c => lists.verdicts[c.verdict] === "UNCLEAR").length;
    const unjudged = cells.filter(c => c.ratio !== null && c.low !== null && c.ratio_low === null).length;
    const trust = [...own.trust.map(text => text[0].toUpperCase() + text.slice(1) + "."),
      bare ? `${bare} of ${cells.length} measured cells have fewer than 3 launches and therefore no interval.` : null,
      drifting ? `${drifting} of ${cells.length} measured cells drifted within at least one launch: first and last third differ by more than their noise.` : null,
      unclear ? `${unclear} of ${cells.filter(c => c.ratio !== null).length} ratios to bare metal are unclear: neither surely outside the band of ±2 % nor wholly inside it. More launches narrow it.` : null,
      unjudged ? `${unjudged} ratios have no interval, as bare metal has fewer than 3 launches or another cadence (calls timed alone against calls back to back).` : null,
    ].filter(Boolean);
    if (trust.length) root.append(el("h3", {}, "How far the figures can be trusted"), el("ul", {}, trust.map(text => el("li", {}, withCommands(text)))));
    if (own.events.length) root.append(el("h3", {}, "Events"), Report.table({ caption: "What happened during the run", rows: own.events, columns: [
      { name: "kind", text: row => row.kind }, { name: "times", right: true, text: row => String(row.times) }, { name: "for example", wide: true, text: row => row.example }] }));
    if (!own.missing.length && !own.attempts.length) root.append(el("p", {}, "Nothing is missing."));
    const verified = !own.unverified ? "every rank's result was verified"
      : own.unverified === own.measurements ? "no result was found wrong; here none was verified"
      : `no result was found wrong; ${format.number(own.unverified)} of ${format.number(own.measurements)} results were not verified`;
    root.append(el("p", { class: "method" }, `${Report.data.counts}. A cell counts when its launch ended well and ${verified}; ${format.number(cells.length)} cells have figures.`));
  },
});
