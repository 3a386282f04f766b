// Where the figures come from, and how to make them again.
(() => {
  const find = (host, ...paths) => {
    for (const path of paths) {
      const value = path.split(".").reduce((at, key) => (at && typeof at === "object" ? at[key] : undefined), host);
      if (value !== undefined && value !== null && value !== "") return value;
    }
    return null;
  };
  /** The machine in one line, from what its host document holds. */
  Report.hostLine = host => {
    if (!host || typeof host !== "object") return "";
    const cpu = find(host, "cpu.model"), cores = find(host, "cpu.cores");
    const memory = find(host, "memory.total_bytes");
    const gpus = find(host, "gpu.nvml.devices") || find(host, "gpu.devices") || [];
    const gpu = gpus.length ? `${gpus.length}x ${gpus[0].name || "GPU"}` : null;
    return [find(host, "system.hostname"), [cores ? cores + "x" : "", cpu].filter(Boolean).join(" "), gpu, memory ? Report.format.size(memory) : null,
      find(host, "system.kernel", "kernel") ? "Linux " + find(host, "system.kernel", "kernel") : null].filter(Boolean).join(", ");
  };
  /** Engine and image of a launch's container. */
  const containerLine = container => leaves(container || {}, "", []).filter(([name]) => /engine|image|digest|version/.test(name))
    .map(([name, value]) => `${name} ${value}`).join(", ") || "none";
  function leaves(value, name, into) {
    if (value && typeof value === "object" && Object.keys(value).length && !Array.isArray(value))
      for (const [key, inner] of Object.entries(value)) leaves(inner, name ? name + "." + key : key, into);
    else into.push([name, typeof value === "string" ? value : JSON.stringify(value)]);
    return into;
  }

  Report.section({
    id: "provenance", short: "Provenance", title: "Where the figures come from",
    draw(root, own) {
      const { el, format } = Report;
      const run = own.run;
      const list = pairs => el("dl", {}, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "").flatMap(([key, value]) => [el("dt", {}, key), el("dd", {}, value)]));
      root.append(list([
        ["run", run.uuid], ["status", run.status], ["experiment", `${run.spec_path} (SHA-256 ${run.sha256})`], ["command", el("code", {}, run.command)],
        ["started", run.started_utc], ["ended", run.ended_utc || "not yet"], ["random seed", run.seed], ["made by", run.tool_version],
        ["machine", Report.hostLine(run.host)],
        ["launches", `${own.launches.ok} ended well of ${own.launches.attempts} attempts in ${own.launches.blocks} blocks` +
          (own.launches.seconds ? `, ${format.time(own.launches.seconds * 1e6)} together` : "")],
        ["libraries", [...new Set(own.groups.map(g => g.library).filter(Boolean))].join("; ")]]));
      root.append(Report.tableBehind(() => Report.table({ caption: "Newest launch of every group", rows: own.groups, columns: [
        { name: "environment", text: g => g.environment }, { name: "backend", text: g => g.backend }, { name: "architecture", text: g => g.architecture },
        { name: "ranks", right: true, text: g => String(g.ranks) }, { name: "library", text: g => g.library || "-" }, { name: "settings", text: g => g.knobs === "{}" ? "" : g.knobs },
        { name: "command", wide: true, text: g => el("code", {}, g.command) },
        { name: "container", wide: true, text: g => containerLine(g.container) }] }), "Exact commands"));
      const text = (title, make) => { const details = el("details", {}, el("summary", {}, title)); details.append(make()); root.append(details); };
      text("Protocol", () => list(leaves(run.protocol, "", [])));
      text("Host", () => list(leaves(run.host, "", [])));
      text("Experiment file", () => el("pre", { tabindex: 0 }, run.spec_text));
      root.append(el("p", { class: "method" }, `The same again: dynamiccl show ${run.uuid.slice(0, 8)} has every launch with its provenance, dynamiccl report ${run.uuid.slice(0, 8)} --format csv the figures.`));
    },
  });
})();
