// What each environment promised, and what the ranks found.
Report.section({
  id: "regimes", short: "Regimes", title: "What each environment really is",
  lead: "Promised by its profile, detected by the ranks, and the transports that really moved the data. A launch that breaks its promise counts as failed.",
  shown: own => own && own.regimes.length > 0,  // imported figures have no ranks that looked around
  draw(root, own) {
    const { el, lists, state, format } = Report;
    const chosenEnvironment = name => { const i = lists.environments.indexOf(name); return i < 0 || state.environments.has(i); };
    const chosenBackend = name => { const i = lists.backends.indexOf(name); return i < 0 || state.backends.has(i); };
    const order = name => { const i = lists.environments.indexOf(name); return i < 0 ? 1e6 : Report.environmentRank[i]; };
    const regimes = own.regimes.filter(r => chosenEnvironment(r.environment) && chosenBackend(r.backend))
      .sort((a, b) => order(a.environment) - order(b.environment) || (a.backend < b.backend ? -1 : 1));
    const name = { boundary: "boundary", intra_link: "link between ranks", single_copy: "single copy (CMA)", apart: "namespaces apart", inter_link: "link outside",
      inter_tier: "its tier", small_shm: "small /dev/shm", gpu: "GPU sharing", ina: "in-network aggregation", library: "library" };
    const word = value => Array.isArray(value) ? value.join(", ") || "none" : value === true ? "yes" : value === false ? "no" : String(value ?? "unknown");
    const transports = r => own.transports.filter(t => t.environment === r.environment && t.backend === r.backend && t.regime === r.id);
    // Backends of an environment that found the same surroundings share a row: their names differ in the library only.
    const groups = new Map();
    for (const r of regimes) {
      const where = r.name.endsWith(r.ingredients.library) ? r.name.slice(0, -r.ingredients.library.length).replace(/ \/ $/, "") : r.name;
      const key = r.environment + "\n" + where;
      if (!groups.has(key)) groups.set(key, { environment: r.environment, where, members: [] });
      groups.get(key).members.push(r);
    }
    const sum = (g, of) => g.members.reduce((all, r) => all + of(r), 0);
    const unique = list => [...new Set(list)];
    root.append(Report.table({ caption: "One row per environment and what was found in it", rows: [...groups.values()], columns: [
      { name: "environment", text: g => g.environment },
      { name: "promised", wide: true, text: g => own.profiles[g.environment]?.promised || "-" },
      { name: "detected", wide: true, text: g => g.where },
      { name: "data moved by", wide: true, text: g => g.members.map(r => `${r.backend}: ${unique(transports(r).map(t => t.transport)).join(", ") || "not recorded"}`)
        .flatMap((line, i) => (i ? [el("br"), line] : [line])) },
      { name: "what slows it", wide: true, text: g => unique(g.members.flatMap(r => r.causes)).join("; ") || "no shared-memory or link cause found" },
      { name: "launches", right: true, text: g => { const ok = sum(g, r => r.launches), all = sum(g, r => r.attempts); return ok === all ? String(ok) : `${ok} of ${all}`; } }] }));
    root.append(Report.tableBehind(() => Report.table({ caption: "Each ingredient of the regimes and how it is known",
      rows: regimes.flatMap(r => Object.keys(name).filter(key => key in r.ingredients).map(key => ({ r, key }))), columns: [
        { name: "environment", text: x => x.r.environment }, { name: "backend", text: x => x.r.backend },
        { name: "what", text: x => name[x.key] }, { name: "found", text: x => word(x.r.ingredients[x.key]) },
        { name: "known from", wide: true, text: x => x.r.evidence[x.key] || "-" }] }), "How the regimes are known"));
    root.append(Report.tableBehind(() => Report.table({ caption: "Bytes are sums over ranks and launches", rows: regimes.flatMap(transports), columns: [
      { name: "environment", text: t => t.environment }, { name: "backend", text: t => t.backend }, { name: "transport", text: t => t.transport },
      { name: "launches", right: true, text: t => String(t.launches) }, { name: "asked to move", right: true, text: t => format.size(t.payload_bytes) },
      { name: "over TCP", right: true, text: t => format.size(t.tcp_bytes) }, { name: "by CMA", right: true, text: t => format.size(t.cma_bytes) },
      { name: "CMA calls refused", right: true, text: t => String(t.cma_errors) }, { name: "known from", wide: true, text: t => t.evidence }] }), "Transports with their counters"));
    root.append(el("p", { class: "method" }, "What slows it is read from the regime (shared memory, links, namespaces) and from where the ranks were let run (shared cores). dynamiccl doctor also looks for interfaces, quotas and libraries. Regimes are derived from the ranks' own namespaces, devices, mounts and a try of process_vm_readv; transports from counters of each rank's sockets and calls."));
  },
});
