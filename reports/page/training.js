// What a training step costs under each method, and where its time goes.
(() => {
  let chosen = null;
  const parts = [["forward_us", "forward", "--p-collective"], ["backward_us", "backward", "--p-send"], ["update_us", "optimizer", "--p-compute"],
    ["exposed_us", "waiting for gradients", "--p-h2d"]];
  const rest = row => Math.max(0, row.step_us - parts.reduce((sum, [key]) => sum + (row[key] ?? 0), 0));
  const where = row => `${row.environment}, ${row.backend}`;
  const model = row => `${row.model}, batch ${row.batch}`;
  const task = row => `${model(row)}, ${row.ranks} ranks`;

  /** What rows are called: settings that all rows of a model have are said once, longer names have a short key and a legend. */
  function naming(rows) {
    const longest = 28, words = row => row.settings && !/^\{/.test(row.settings) ? row.settings.split(/ (?=\w+=)/) : [];
    const models = [...new Set(rows.map(model))];
    const shared = new Map(models.map(name => {
      const mine = rows.filter(row => model(row) === name).map(words);
      return [name, rows.length < 2 ? [] : mine[0].filter(word => mine.every(others => others.includes(word)))];
    }));
    const own = row => words(row).filter(word => !shared.get(model(row)).includes(word)).join(" ");
    const whole = row => row.method + (own(row) ? ` (${own(row)})` : "");
    // A key names how workers wait and what is compressed, where that tells ways apart.
    const brief = row => [row.method, ...own(row).split(" ").filter(word => /^(synchronisation|compression)=/.test(word)).map(word => word.replace(/.*=/, ""))].join(" ");
    const long = [...new Map(rows.map(row => [whole(row), row]))].filter(([name]) => name.length > longest).map(([name, row]) => ({ name, row, brief: brief(row) }));
    const keys = new Map(long.map(one => {
      const alike = long.filter(other => other.brief === one.brief);
      return [one.name, [one.brief + (alike.length > 1 || one.brief === one.row.method ? ` #${alike.indexOf(one) + 1}` : ""), own(one.row)]];
    }));
    const paths = Report.lettered(rows.map(row => row.path).filter(Boolean));
    const settings = [...shared].filter(([, mine]) => mine.length).map(([name, mine]) => `${models.length > 1 ? name : "All rows"}: ${mine.join(" ")}.`);
    return { of: row => (keys.get(whole(row)) || [whole(row)])[0], whole, path: row => row.path ? paths.key(row.path) : "-",
      legend: [...settings, ...[...keys.values()].map(([key, mine]) => `${key}: ${mine}.`), ...paths.legend.map(text => `Gradients by ${text}.`)] };
  }

  function table(rows, names, baseline) {
    const { el, format, figure } = Report;
    const together = text => el("span", { class: "together" }, text);
    const percent = value => {
      if (value === null || value === undefined) return "-";
      const rounded = Number(value.toFixed(Math.abs(value) < 9.95 ? 1 : 0));
      return `${rounded > 0 ? "+" : ""}${rounded || 0} %`;  // not "-0"
    };
    const some = key => rows.some(r => r[key] !== null && r[key] !== undefined);
    return Report.table({ caption: "Medians over launches, 95 % intervals over launches" + (baseline ? "; over DDP: step time over PyTorch DDP's engine at its best bucket size in the same launches" : ""), rows, group: where, columns: [
      { name: "method", text: r => figure(names.of(r)) },
      { name: "model", quiet: true, text: r => [r.model + ", ", together(`batch ${r.batch}`)] }, { name: "workers", quiet: true, right: true, text: r => figure(r.workers + (r.ranks > r.workers ? ` (+ ${r.ranks - r.workers} server${r.ranks - r.workers > 1 ? "s" : ""})` : "")) },
      ...(rows.some(r => r.path) ? [{ name: "gradients by", quiet: true, text: r => names.path(r) }] : []),
      { name: "step", right: true, text: r => figure(format.interval(r.step_us, r.step_low_us, r.step_high_us, format.time)) },
      ...(baseline ? [{ name: "over DDP", right: true, text: r => r.over_ddp === null ? "-" : figure(format.interval(r.over_ddp, r.over_ddp_low, r.over_ddp_high, format.ratio)) }] : []),
      { name: "samples/s", right: true, text: r => r.samples_per_second === null ? "-" : format.number(r.samples_per_second) }, { name: "speed-up", right: true, text: r => format.ratio(r.speedup) },
      { name: "waiting", right: true, text: r => format.time(r.exposed_us) }, ...(rows.some(r => r.predicted_us) ? [{ name: "predicted", right: true, text: r => r.predicted_us ? figure(`${format.time(r.predicted_us)} (${percent(r.prediction_error_percent)})`) : "-" }] : []),
      { name: "sent per step", right: true, quiet: true, text: r => format.size(r.wire_bytes) },
      ...(some("counted_bytes") ? [{ name: "counted", right: true, text: r => r.counted_bytes === null ? "-" : format.size(Math.round(r.counted_bytes)) }] : []),
      ...(some("c2c_predicted") || some("c2c_measured") ? [{ name: "C2C (formula)", right: true, text: r => figure(`${r.c2c_measured === null ? "-" : format.number(r.c2c_measured)} (${format.number(r.c2c_predicted)})`) }] : []),
      ...(some("accuracy") ? [{ name: "accuracy", right: true, text: r => r.accuracy === null ? "-" : format.number(100 * r.accuracy) + " %" }] : []),
      ...(some("epochs") ? [{ name: "epochs", quiet: true, right: true, text: r => r.epochs === null ? "-" : String(r.epochs) }, { name: "trained for", right: true, text: r => format.time(r.trained_us) }] : []),
      { name: "launches", quiet: true, right: true, text: r => String(r.launches) }] });
  }

  function breakdown(rows, names) {
    const { el, format } = Report;
    const longest = rows.reduce((most, row) => Math.max(most, row.step_us), 0);
    const bars = el("div", { class: "bars" });
    for (const group of [...new Set(rows.map(where))]) {
      bars.append(el("div", { class: "group" }, group));
      for (const row of rows.filter(r => where(r) === group)) {
        const pieces = [...parts.map(([key, name, color]) => [row[key] ?? 0, name, color]), [rest(row), "everything else", "--p-other"]];
        const sum = pieces.reduce((all, [us]) => all + us, 0) || 1;
        const spoken = pieces.filter(([us]) => us > 0).map(([us, name]) => `${name} ${format.time(us)}`).join(", ");
        bars.append(el("div", {}, names.of(row)),
          el("div", { role: "img", title: spoken, "aria-label": `${group}, ${names.whole(row)}: ${spoken}` },
            el("div", { class: "bar", style: `width: ${Math.max(.4, 100 * row.step_us / longest).toFixed(2)}%` },
              pieces.filter(([us]) => us > 0).map(([us, , color]) => el("i", { style: `width: ${(100 * us / sum).toFixed(2)}%; background: var(${color})` })))),
          el("div", { class: "value" }, format.time(row.step_us)));
      }
    }
    return [el("ul", { class: "keys" }, [...parts, [null, "everything else", "--p-other"]].map(([, name, color]) =>
      el("li", { class: "key" }, el("span", { class: "swatch", style: `background: var(${color})` }), name))), bars];
  }

  function predictions(rows, methods, looks) {
    const { format } = Report;
    const series = methods.map(method => ({ label: method, look: looks(method), points: rows.filter(r => r.method === method && r.predicted_us > 0).map(r => ({
      x: r.step_us, value: r.predicted_us / r.step_us, low: null, high: null, notes: [`${r.environment}, ${r.backend}`, `predicted ${format.time(r.predicted_us)}`] })) })).filter(s => s.points.length);
    return !series.length ? null : Report.lineChart({ caption: "Predicted over measured step time", title: "Predicted over measured step time, by measured step time", series: series.map(s => ({ ...s, look: { ...s.look, dash: [0, 1e6] } })),
      x: { tick: format.time }, range: Report.yRange(series, [.8, 1.25]), tick: format.ratio, text: p => format.ratio(p.value), reference: { value: 1, low: .85, high: 1 / .85 } });
  }

  function learning(curves, looks, key, text, caption) {
    const { format } = Report;
    const series = curves.filter(c => (c[key] || []).length > 1).map(c => ({ label: `${c.configuration}, ${c.environment}, ${c.backend}`, look: looks(c),
      points: c[key].filter(([, value]) => value > 0).map(([x, value]) => ({ x, value, low: null, high: null, notes: [] })) })).filter(s => s.points.length > 1);
    return !series.length ? null : Report.lineChart({ caption, title: caption, series, x: { linear: true, tick: x => "step " + format.number(x) },
      range: Report.yRange(series), tick: text, text: p => text(p.value) });
  }

  // Ways that lose something are distinguished by what they reach, and after how long or how many bytes.
  function progress(cells, looks, at, tick, caption) {
    const { format } = Report;
    const series = cells.filter(c => c.points.length > 1).map(c => ({ label: `${c.configuration}, ${c.environment}, ${c.backend}`, look: looks(c),
      points: c.points.map(p => ({ x: p[at], value: p[2], low: null, high: null, notes: [c.configuration] })) }));
    return !series.length ? null : Report.lineChart({ caption, title: caption, series, x: { linear: true, tick }, range: Report.yRange(series),
      tick: value => format.number(100 * value) + " %", text: p => format.number(100 * p.value) + " %" });
  }

  /** What each way to train takes against plain SGD, and where it ends: the rows of query time_to_target. */
  function tradeoffs(rows) {
    const { el, format, figure } = Report;
    if (!rows.length) return [];
    const some = key => rows.some(r => r[key] !== null && r[key] !== undefined);
    const number = (v, text) => v === null || v === undefined ? "-" : text(v);
    const points = v => `${v > 0 ? "+" : ""}${format.number(100 * v)}`;
    const range = r => number(r.beyond_plain, v => points(v) + (r.launches > 1 ? ` [${points(r.beyond_plain_low)}, ${points(r.beyond_plain_high)}]` : ""));
    return [el("h3", {}, "Time against accuracy"), Report.table({
      caption: "Until the target, or the end of the epochs, evaluations left out; in brackets the smallest and the largest of the launches", rows, group: where, columns: [
        { name: "way", text: r => r.configuration.length > 60 ? r.configuration : el("span", { class: "together" }, r.configuration) },
        { name: "model", quiet: true, text: r => [r.model + ", ", el("span", { class: "together" }, `batch ${r.batch}`)] }, { name: "workers", quiet: true, right: true, text: r => String(r.workers) },
        ...(some("reached") ? [{ name: "reached", right: true, text: r => number(r.reached, n => `${n} of ${r.launches}`) }] : []),
        { name: "time", right: true, text: r => format.time(r.trained_us) },
        { name: "over plain SGD", right: true, text: r => figure(number(r.over_plain, v => r.launches > 1 ? format.interval(v, r.over_plain_low, r.over_plain_high, format.ratio) : format.ratio(v))) },
        { name: "accuracy", right: true, text: r => number(r.accuracy, v => format.number(100 * v) + " %") },
        { name: "points above plain", right: true, text: r => figure(range(r)) },
        ...(some("most_stale") ? [{ name: "most stale", right: true, text: r => number(r.most_stale, String) }] : []),
        ...(some("consensus_distance") ? [{ name: el("span", {}, "consensus", el("br"), "distance"), right: true, text: r => number(r.consensus_distance, format.number) }] : [])] }),
      el("p", { class: "method" }, "Over plain SGD, in launches of the same block." + (some("most_stale") ? " Most stale: gradients applied between a worker's weights and its own." : "") +
        (some("consensus_distance") ? " Consensus distance: root of the mean squared distance of neighbours' weights from their mean, at the end." : ""))];
  }

  /** C2C of each cell, and where nothing lossless is left. */
  function communication(cells) {
    const { el, format } = Report;
    if (!cells.some(r => r.c2c_predicted)) return [];
    const value = (v, text) => v === null || v === undefined ? "-" : text(v);
    const saturated = cells.filter(r => r.flag);
    return [el("h3", {}, "Communication over computation"),
      saturated.length ? el("ul", { class: "notes" }, saturated.map(r => el("li", {}, r.advice))) : null,
      Report.table({ caption: "T_comm / T_comp = C2C × bytes per parameter × FLOP/s of a worker / bandwidth of its link. Expected: one after the other without scheduling, else the longer of the two", rows: cells, group: where, columns: [
        { name: "method", text: r => el("span", { class: "together" }, r.method) },
        { name: "model", quiet: true, text: r => [r.model + ", ", el("span", { class: "together" }, `batch ${r.batch}`)] }, { name: "workers", quiet: true, right: true, text: r => String(r.workers) },
        { name: "f(N), counted, fitted", right: true, text: r => el("span", { class: "breaks" }, [r.f_formula, r.f_counted, r.f_fitted].map(v => value(v, format.number)).join(", ")) },
        { name: "worker", right: true, text: r => el("span", { class: "breaks" }, format.number(r.worker_flop_per_second / 1e9) + " GFLOP/s") },
        { name: "start-up", right: true, text: r => value(r.alpha_us, format.time) }, { name: "link", right: true, text: r => value(r.link_bytes_per_s, format.bandwidth) },
        { name: "T_comm / T_comp", right: true, text: r => value(r.ratio_predicted, format.ratio) }, { name: "measured", right: true, text: r => value(r.ratio_measured, format.ratio) },
        { name: "expected", right: true, text: r => value(r.expected_us, format.time) }, { name: "step", right: true, text: r => format.time(r.step_us) },
        { name: "throughput against expected", right: true, text: r => value(r.gap_percent, v => `${v > 0 ? "+" : ""}${format.number(v)} %`) }] })];
  }

  /** Speed-up over the ranks, a line per method, a chart per model, environment and backend. */
  function scaling(rows, methods, looks) {
    const { el, format } = Report;
    const place = r => `${r.model}, batch ${r.batch}, ${r.environment}, ${r.backend}`;
    const charts = [...new Set(rows.map(place))].map(where => {
      const mine = rows.filter(r => place(r) === where);
      const line = r => r.method + (r.nodes > 1 ? `, ${r.nodes} nodes` : "");
      const series = [...new Set(mine.map(r => JSON.stringify([line(r), r.method, r.settings])))].map(key => {
        const [label, method, settings] = JSON.parse(key);
        return { label, look: looks(method), points: mine.filter(r => line(r) === label && r.settings === settings).map(r => ({
          x: r.ranks, value: r.speedup, low: r.speedup_low, high: r.speedup_high, notes: [`efficiency ${format.number(100 * r.efficiency)} %`, settings] })) };
      }).filter(s => s.points.length > 1);
      return series.length ? Report.lineChart({ caption: where, title: "Speed-up by ranks", series, x: { linear: true, tick: x => Number.isInteger(x) ? x + " ranks" : "" },
        range: Report.yRange(series, [1, 1]), tick: format.ratio, text: p => format.interval(p.value, p.low, p.high, format.ratio), reference: { value: 1, low: 1, high: 1 } }) : null;
    }).filter(Boolean);
    return charts.length ? [el("h3", {}, "Speed-up by ranks"), Report.keys(methods.filter(m => rows.some(r => r.method === m)).map(m => ({ label: m, look: looks(m) }))),
      el("div", { class: "panels" }, charts), el("p", { class: "method" }, "Throughput over one worker's in the same launch; efficiency: that over the ranks, servers among them.")] : [];
  }

  Report.section({
    id: "training", short: "Training", title: "What a training step costs",
    lead: "Steps of real models under each method of making gradients equal; workers' weights were compared bit by bit where a method keeps them equal. Where workers wait less often, a step is a round of them.",
    shown: own => own && own.rows.length > 0,
    draw(root, own) {
      const { el, lists, state, look } = Report;
      const passes = row => {
        const environment = lists.environments.indexOf(row.environment), backend = lists.backends.indexOf(row.backend);
        return (environment < 0 || state.environments.has(environment)) && (backend < 0 || state.backends.has(backend)) && (state.architecture === "all" || state.architecture === row.architecture);
      };
      const rows = own.rows.filter(passes);
      if (!rows.length) { root.append(el("p", { class: "note" }, "No training passes the filter.")); return; }
      const methods = [...new Set(own.rows.map(r => r.method))];
      const looks = method => look(methods.indexOf(method));
      if ((own.warnings || []).length) root.append(el("ul", { class: "notes" }, own.warnings.map(text => el("li", {}, text))));
      const names = naming(rows);
      root.append(table(rows, names, rows.some(r => r.over_ddp !== null)));
      if (names.legend.length) root.append(el("ul", { class: "method legend" }, names.legend.map(text => el("li", {}, text))));

      const tasks = [...new Set(rows.map(task))];
      if (!tasks.includes(chosen)) chosen = tasks[0];
      const mine = rows.filter(row => task(row) === chosen);
      root.append(el("h3", {}, `Where the step goes: ${chosen}`),
        el("div", { class: "controls" }, tasks.length > 1 ? Report.choice("model", tasks.map(t => [t, t]), chosen, value => { chosen = value; }) : null),
        ...breakdown(mine, names));
      const curves = own.curves.filter(passes).filter(c => task(c) === chosen);
      const reached = (own.progress || []).filter(passes).filter(c => task(c) === chosen);
      // One look for each way to train, in all of its charts; that of its method where no way has more to its name.
      const ways = [...new Set([...curves, ...reached].map(c => c.configuration))];
      const plainly = ways.every(way => methods.includes(way));
      const looksOf = c => plainly ? looks(c.method) : look(ways.indexOf(c.configuration));
      // Times and bytes are those of a place, too: there a way has a look in each of several.
      const lineOf = c => `${c.configuration}, ${c.environment}, ${c.backend}`;
      const lines = [...new Set(reached.filter(c => c.points.length > 1).map(lineOf))];
      const several = new Set(reached.map(c => `${c.environment}, ${c.backend}`)).size > 1;
      const looksThere = c => several ? look(lines.indexOf(lineOf(c))) : looksOf(c);
      const shown = methods.filter(m => mine.some(r => r.method === m));
      root.append(Report.keys(shown.map(m => ({ label: m, look: looks(m) }))), el("div", { class: "panels" }, predictions(mine, methods, looks)));
      if (!plainly) root.append(Report.keys(ways.map((way, i) => ({ label: way, look: look(i) }))));
      root.append(el("div", { class: "panels" }, learning(curves, looksOf, "losses", Report.format.number, "Loss over steps; equal curves cover each other"),
        learning(curves, looksOf, "accuracies", value => Report.format.number(100 * value) + " %", "Accuracy over steps")));
      if (several) root.append(Report.keys(lines.map((line, i) => ({ label: line, look: look(i) }))));
      if (reached.length) root.append(el("div", { class: "panels" },
        progress(reached, looksThere, 0, x => Report.format.number(x) + " s", "Accuracy over time, evaluations left out"),
        progress(reached, looksThere, 1, Report.format.size, "Accuracy over bytes sent by the busiest rank")));
      root.append(el("p", { class: "method" }, "Forward, backward and optimizer: medians of the slowest worker while it computes; waiting: it stands still until gradients are there. " +
        "Predicted: from the profile of the model and a cost table of the method's own messages, both measured in the same launch; the band is 15 %. Speed-up: throughput over one worker alone in the same launch. " +
        "C2C: parameters communicated per FLOP computed, from counted bytes. Sent: payload, of a library's all-reduce as a ring would send it; counted: by the kernel, with what protocols add."), ...tradeoffs((own.ways || []).filter(passes)), ...communication(own.c2c.filter(r => passes({ ...r, architecture: Report.state.architecture }))).filter(Boolean), ...scaling(own.scaling.filter(r => passes({ ...r, architecture: Report.state.architecture })), methods, looks));
    },
  });
})();
