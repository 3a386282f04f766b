// What searches for settings tried, chose and won.
(() => {
  let chosenTask = null;
  Report.section({
    id: "decisions", short: "Decisions", title: "Which settings were chosen, and what they win",
    lead: "Every choice of a search is in the decision log; here are the newest search of each agent and what was left in force.",
    shown: own => own && own.steps.length > 0,
    draw(root, own) {
      const { el, lists, format, state, look } = Report;
      const passes = row => {
        const environment = lists.environments.indexOf(row.environment), backend = lists.backends.indexOf(row.task.split("/")[0]);
        return (environment < 0 || state.environments.has(environment)) && (backend < 0 || state.backends.has(backend));
      };
      const searcher = row => `${row.agent} (${row.mode})`;
      const agents = [...new Set(own.steps.map(searcher))];
      const looks = name => look(agents.indexOf(name) + 1);
      const steps = own.steps.filter(passes), choices = own.choices.filter(passes);
      if (!steps.length) { root.append(el("p", { class: "note" }, "No decision passes the filter.")); return; }

      root.append(el("h3", {}, "Left in force"), Report.table({ caption: "The choice at the end of each search; more than one row of a task: searches disagree", rows: choices, columns: [
        { name: "task", text: r => r.task }, { name: "environment", text: r => r.environment }, { name: "agent", text: searcher },
        { name: "setting", wide: true, text: r => r.arm }, { name: "default's time", right: true, text: r => format.time(r.reference_us) },
        { name: "its time", right: true, text: r => format.time(r.time_us) },
        { name: "faster by", right: true, text: r => r.time_us && r.reference_us ? format.ratio(r.reference_us / r.time_us) : "-" },
        { name: "guards", wide: true, text: r => r.guards === "pass" ? "passed" : r.guards }, { name: "searches", right: true, text: r => String(r.searches) }] }));

      const tasks = [...new Set(steps.map(r => `${r.environment}: ${r.task}`))];
      if (!tasks.includes(chosenTask)) chosenTask = tasks[0];
      root.append(el("div", { class: "controls" }, tasks.length > 1 ? Report.choice("task", tasks.map(t => [t, t]), chosenTask, value => { chosenTask = value; }) : null));
      const mine = steps.filter(r => `${r.environment}: ${r.task}` === chosenTask && r.time_us > 0 && r.kind !== "final");
      const reference = (mine.find(r => r.reference_us > 0) || {}).reference_us;
      const line = (name, rows) => ({ label: name, look: looks(name), points: rows.map(r => ({ x: r.step + 1, value: r.time_us, low: null, high: null,
        notes: [r.arm, `${r.kind}, probability ${format.number(r.propensity)}`, ...(r.guard === "pass" ? [] : [r.guard])] })) });
      const traces = agents.map(name => line(name, mine.filter(r => searcher(r) === name))).filter(s => s.points.length);
      const regret = agents.map(name => ({ label: name, look: looks(name), points: own.regret.filter(r => searcher(r) === name)
        .map(r => ({ x: r.evaluations, value: 1 + r.mean_regret_percent / 100, low: null, high: null, notes: [`${r.tasks} task${r.tasks === 1 ? "" : "s"}, found in ${format.number(r.found_percent)} %`] })) })).filter(s => s.points.length);
      const evaluations = { linear: true, tick: x => "try " + format.number(x) };
      root.append(Report.keys(agents.map(name => ({ label: name, look: looks(name) }))), el("div", { class: "panels" },
        traces.length ? Report.lineChart({ caption: `Each try of ${chosenTask}`, title: "Time of each try", series: traces, x: evaluations, range: Report.yRange(traces, reference ? [reference, reference] : null),
          tick: format.time, text: p => format.time(p.value), reference: reference ? { value: reference, low: reference, high: reference } : null }) : null,
        regret.length ? Report.lineChart({ caption: "Best so far, against the best that any search saw", title: "Regret over evaluations", series: regret, x: evaluations,
          range: Report.yRange(regret, [1, 1.05]), tick: format.ratio, text: p => format.ratio(p.value), reference: { value: 1, low: 1, high: 1.02 } }) : null));
      root.append(el("p", { class: "method" }, "Left: time of a call under the setting of each step; grey line: the library's default. Right: mean over tasks and searches of the best setting so far over the best of the run; " +
        "a setting counts with its mean over the run. One launch per try has no interval."),
        Report.tableBehind(() => Report.table({ caption: `Each try of ${chosenTask}`, rows: steps.filter(r => `${r.environment}: ${r.task}` === chosenTask), columns: [
          { name: "step", right: true, text: r => String(r.step + 1) }, { name: "agent", text: searcher }, { name: "kind", text: r => r.kind }, { name: "setting", wide: true, text: r => r.arm },
          { name: "time", right: true, text: r => format.time(r.time_us) }, { name: "default", right: true, text: r => format.time(r.reference_us) },
          { name: "probability", right: true, text: r => format.number(r.propensity) }, { name: "guard", wide: true, text: r => r.guard }] })));
      if (own.policy && own.policy.training && own.policy.training.curves) drawTraining(root, own.policy);
    },
  });

  const kBin = 5; // updates that make one point
  // Policies that searches of places trained say what is left to gain, ln(time over the best); older ones the reward of simulated calls.
  const percent = regret => `${(100 * Math.expm1(regret)).toFixed(1)} %`;
  const rewarded = { caption: "Cost per simulated call while training, each seed", value: mean => -mean, text: value => Report.format.number(value), reference: row => -row.mean_reward,
    method: "Cost: minus the mean reward of a step; 1 is about a call under the default, lower is better. ", held: "On simulated regimes that never trained", columns: () => [
      { name: "mean reward", right: true, text: r => r.mean_reward.toFixed(4) },
      { name: "regret at a task's end", right: true, text: r => r.final_regret_percent.toFixed(1) + " %" },
      { name: "tries to 95 % of the oracle", right: true, text: r => Report.format.number(r.evaluations_to_95) },
      { name: "tasks that get there", right: true, text: r => r.reached_95_percent.toFixed(0) + " %" },
      { name: "time saved, of the oracle's", right: true, text: r => r.gain_percent_of_oracle.toFixed(1) + " %" }] };
  const looksOf = row => Object.keys(row).filter(key => /^regret_\d+$/.test(key));
  const searched = { caption: "Regret at the end of simulated searches while training, each seed", value: Math.expm1, text: value => `${Report.format.number(100 * value)} %`,
    reference: row => Math.expm1(looksOf(row).reduce((sum, key) => sum + row[key], 0) / looksOf(row).length),
    method: "Regret: time over that of the best setting, less one; lower is better. ", held: "On simulated places that never trained", columns: rows => [
      { name: "regret of the default", right: true, text: r => percent(r.default_regret) },
      ...looksOf(rows[0]).map(key => ({ name: `after ${key.slice(7)} look${key === "regret_1" ? "" : "s"} a cell`, right: true, text: r => percent(r[key]) }))] };
  function drawTraining(root, policy) {
    const { el, format, look } = Report, training = policy.training, held = training.held_out || [];
    const record = held.some(r => "mean_reward" in r) ? rewarded : searched;
    const seeds = Object.keys(training.curves);
    const curve = points => points.filter((_, i) => i % kBin === kBin - 1).map((p, i) => {
      const bin = points.slice(i * kBin, (i + 1) * kBin), mean = bin.reduce((sum, q) => sum + q[1], 0) / bin.length;
      return { x: p[0], value: record.value(mean), low: null, high: null, notes: [`mean of ${bin.length} updates`] };
    });
    const series = seeds.map((seed, i) => ({ label: `seed ${seed}`, look: look(i + 1), points: curve(training.curves[seed]) })).filter(s => s.points.length);
    const bandit = held.filter(r => r.agent === "bandit").map(record.reference)[0];
    root.append(el("h3", {}, "How the ppo policy was trained"), Report.keys(series.map(s => ({ label: s.label, look: s.look }))),
      el("div", { class: "panels" }, Report.lineChart({ caption: record.caption, title: "Learning curves", series,
        x: { linear: true, tick: x => format.number(x / 1000) + "k steps" }, range: Report.yRange(series, null), tick: record.text, text: p => record.text(p.value),
        reference: bandit === undefined ? null : { value: bandit, low: bandit, high: bandit } })),
      el("p", { class: "method" }, `Policy ${policy.version}, kept from seed ${training.seed}. ${record.method}` +
        "The simulator gets harder from stage to stage (a third of the steps each). Grey line: the bandit on what never trained, of all stages."));
    if (held.length) root.append(Report.table({ caption: record.held, rows: held, columns: [{ name: "agent", text: r => r.agent }, ...record.columns(held)] }));
  }
})();
