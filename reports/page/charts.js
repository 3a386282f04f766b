// Charts over message size, drawn by uPlot: a line per series, the band and whiskers of its interval.
(() => {
  const { el, format, cssValue, swatch } = Report;

  function logTicks(low, high, base, most) {
    const ticks = [];
    const first = Math.ceil(Math.log(low) / Math.log(base) - 1e-9);
    const last = Math.floor(Math.log(high) / Math.log(base) + 1e-9);
    const step = Math.max(1, Math.ceil((last - first + 1) / most));
    for (let e = first; e <= last; e += step) ticks.push(base ** e);
    return ticks;
  }
  /** 1, 2, 5 or decades, whichever gives enough of them. */
  function decimalTicks(low, high, most) {
    const decades = logTicks(low, high, 10, most);
    if (decades.length >= 3) return decades;
    const ticks = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
      for (const m of [1, 1.5, 2, 3, 5, 7]) if (m * 10 ** e >= low && m * 10 ** e <= high) ticks.push(m * 10 ** e);
    const round = ticks.filter(t => [1, 2, 5].includes(Number((t / 10 ** Math.floor(Math.log10(t) + 1e-9)).toPrecision(2))));
    return round.length >= 3 ? round : ticks;
  }
  Report.decimalTicks = decimalTicks;

  /** Shared range of several panels, so that they can be compared by eye. */
  Report.yRange = (series, floor) => {
    let low = Infinity, high = -Infinity;
    for (const one of series) for (const p of one.points) {
      low = Math.min(low, p.low ?? p.value); high = Math.max(high, p.high ?? p.value);
    }
    // An interval of few launches can span decades: it may leave the panel, the medians may not.
    let middleLow = Infinity, middleHigh = -Infinity;
    for (const one of series) for (const p of one.points) { middleLow = Math.min(middleLow, p.value); middleHigh = Math.max(middleHigh, p.value); }
    low = Math.max(low, middleLow / 3); high = Math.min(high, middleHigh * 3);
    if (floor) { low = Math.min(low, floor[0]); high = Math.max(high, floor[1]); }
    return isFinite(low) && low > 0 ? [low / 1.15, high * 1.15] : [0.5, 2];
  };

  function drawMarker(context, marker, x, y, size) {
    context.beginPath();
    if (marker === "square") context.rect(x - size, y - size, 2 * size, 2 * size);
    else if (marker === "triangle") { context.moveTo(x, y - 1.2 * size); context.lineTo(x + 1.2 * size, y + size); context.lineTo(x - 1.2 * size, y + size); context.closePath(); }
    else if (marker === "diamond") { context.moveTo(x, y - 1.35 * size); context.lineTo(x + 1.35 * size, y); context.lineTo(x, y + 1.35 * size); context.lineTo(x - 1.35 * size, y); context.closePath(); }
    else if (marker === "cross" || marker === "plus") {
      const d = marker === "cross" ? size : 0, e = marker === "cross" ? size : 1.3 * size;
      context.moveTo(x - e, y - d); context.lineTo(x + e, y + d); context.moveTo(x + d, y - e); context.lineTo(x - d, y + e);
      context.stroke();
      return;
    } else context.arc(x, y, 1.1 * size, 0, 2 * Math.PI);
    context.fill();
  }

  /** Whiskers and markers, over the lines: where there is a marker, something was measured. */
  function drawPoints(u, series) {
    const context = u.ctx, ratio = devicePixelRatio;
    context.save();
    context.beginPath();
    context.rect(u.bbox.left - 6 * ratio, u.bbox.top - 6 * ratio, u.bbox.width + 12 * ratio, u.bbox.height + 12 * ratio);
    context.clip();
    for (const one of series) {
      context.fillStyle = context.strokeStyle = cssValue(one.look.color);
      for (const p of one.points) {
        const x = u.valToPos(p.x, "x", true);
        if (p.low !== null && p.low !== undefined) {
          context.globalAlpha = .55; context.lineWidth = 1.2 * ratio;
          context.beginPath();
          context.moveTo(x, u.valToPos(Math.max(p.low, 1e-12), "y", true)); context.lineTo(x, u.valToPos(p.high, "y", true));
          context.stroke();
          context.globalAlpha = 1;
        }
        context.lineWidth = 2 * ratio;
        drawMarker(context, one.look.marker, x, u.valToPos(p.value, "y", true), 3.4 * ratio);
      }
    }
    context.restore();
  }

  /** A horizontal line with its band of equality. */
  function drawReference(u, reference) {
    const context = u.ctx, { left, width, top, height } = u.bbox;
    const y = value => Math.min(Math.max(u.valToPos(value, "y", true), top), top + height);
    context.save();
    context.fillStyle = cssValue("--c0"); context.globalAlpha = .16;
    context.fillRect(left, y(reference.high), width, Math.max(1, y(reference.low) - y(reference.high)));
    context.globalAlpha = .9; context.strokeStyle = cssValue("--c0"); context.lineWidth = 1.5 * devicePixelRatio;
    context.beginPath(); context.moveTo(left, y(reference.value)); context.lineTo(left + width, y(reference.value)); context.stroke();
    context.restore();
  }

  function tooltip(host, chart) {
    const tip = el("div", { class: "tip", hidden: true });
    const mark = el("div", { class: "mark", hidden: true });
    let at = null;  // {series, point} under pointer or keyboard
    function show(found, aloud) {
      at = found;
      tip.hidden = mark.hidden = !found;
      if (!found) return;
      const u = chart.u, p = found.point;
      const x = u.valToPos(p.x, "x"), y = u.valToPos(p.value, "y");
      mark.style.left = x + "px"; mark.style.top = y + "px";
      tip.replaceChildren(el("b", {}, found.series.label), el("br"), `${chart.spec.x.tick(p.x)}: ${chart.spec.text(p)}`,
        ...(p.notes || []).flatMap(note => [el("br"), note]));
      const width = u.over.clientWidth;
      tip.style.left = Math.max(0, Math.min(x + 14, width - tip.offsetWidth)) + "px";
      tip.style.top = (y > 90 ? y - tip.offsetHeight - 12 : y + 16) + "px";
      if (aloud) Report.say(`${found.series.label}, ${chart.spec.x.tick(p.x)}, ${chart.spec.text(p)}${(p.notes || []).map(n => ", " + n).join("")}`);
    }
    function nearest(left, top) {
      let best = null, least = 40 * 40;
      for (const series of chart.spec.series) for (const point of series.points) {
        const d = (chart.u.valToPos(point.x, "x") - left) ** 2 + (chart.u.valToPos(point.value, "y") - top) ** 2;
        if (d < least) { least = d; best = { series, point }; }
      }
      return best;
    }
    function step(sizeStep, seriesStep) {
      const all = chart.spec.series.filter(s => s.points.length);
      if (!all.length) return;
      const series = at ? at.series : all[0];
      const next = all[(all.indexOf(series) + seriesStep + all.length) % all.length];
      const x = at ? at.point.x : next.points[0].x;
      const i = at ? next.points.reduce((best, p, k) => Math.abs(p.x - x) < Math.abs(next.points[best].x - x) ? k : best, 0) : 0;
      show({ series: next, point: next.points[Math.min(Math.max(at ? i + sizeStep : 0, 0), next.points.length - 1)] }, true);
    }
    host.addEventListener("keydown", event => {
      const moves = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      if (event.key === "Escape") show(null);
      if (!moves[event.key]) return;
      event.preventDefault();
      step(...moves[event.key]);
    });
    host.addEventListener("blur", () => show(null));
    return { nodes: [mark, tip], show, nearest };
  }

  const linearEnds = xs => { const room = (xs[xs.length - 1] - xs[0]) * .04 || 1; return [xs[0] - room, xs[xs.length - 1] + room]; };

  const logEnds = xs => { const room = xs.length > 1 ? 1.4 : 4; return [xs[0] / room, xs[xs.length - 1] * room]; };

  function options(spec, width, height, chart, xs) {
    const [low, high] = spec.range;
    const axis = { stroke: () => cssValue("--soft"), font: "11px system-ui, sans-serif", ticks: { show: false },
      grid: { stroke: () => cssValue("--grid"), width: 1 }, filter: (u, splits) => splits };
    const main = spec.series.map(s => ({ label: s.label, stroke: () => cssValue(s.look.color), width: 2, dash: s.look.dash,
      spanGaps: true, points: { show: false } }));
    const edges = spec.series.flatMap(() => [0, 1].map(() => ({ stroke: "transparent", width: 0, spanGaps: false, points: { show: false } })));
    const alpha = name => { const c = cssValue(name); return c.startsWith("#") ? c + "26" : c; };
    const n = spec.series.length, letters = x => spec.x.tick(x).length;
    return {
      width, height, legend: { show: false }, padding: [8, Math.max(10, letters(xs[xs.length - 1]) * 3), 0, 0],
      cursor: { points: { show: false }, drag: { x: false, y: false, setScale: false }, y: false, sync: spec.sync ? { key: spec.sync, setSeries: false } : undefined },
      scales: {
        x: spec.x.linear ? { time: false, range: () => linearEnds(xs) } : { time: false, distr: 3, log: 2, range: () => logEnds(xs) },
        y: { distr: 3, log: 10, range: () => [low, high] },
      },
      axes: [
        { ...axis, size: 30, splits: () => {
          // From the largest down, as long as the labels have room.
          const place = spec.x.linear ? x => x : Math.log, ends = spec.x.linear ? linearEnds(xs) : logEnds(xs);
          const span = place(ends[1]) - place(ends[0]) || 1, kept = [];
          for (const x of [...xs].reverse())
            if (!kept.length || (place(kept[kept.length - 1]) - place(x)) / span * (width - 70) > Math.max(58, letters(x) * 6 + 14)) kept.push(x);
          return kept.reverse();
        }, values: (u, splits) => splits.map(spec.x.tick) },
        { ...axis, size: 58, splits: () => decimalTicks(low, high, Math.max(3, Math.floor(height / 40))), values: (u, splits) => splits.map(spec.tick) },
      ],
      series: [{}, ...main, ...edges],
      bands: spec.series.map((s, i) => ({ series: [n + 1 + 2 * i + 1, n + 1 + 2 * i], fill: () => alpha(s.look.color) })),
      hooks: {
        drawAxes: [u => { if (spec.reference) drawReference(u, spec.reference); }],
        draw: [u => drawPoints(u, spec.series)],
        setCursor: [u => {
          if (!chart.hover) return;
          const { left, top } = u.cursor;
          chart.tip.show(left < 0 ? null : chart.tip.nearest(left, top));
        }],
      },
    };
  }

  /**
   * spec: series [{label, look, points [{x, value, low, high, notes}]}], range, text(point), tick(value), title,
   * reference {value, low, high}, sync (panels whose cursors move together),
   * x {tick(value), linear}: message size on a logarithmic axis unless said.
   * @returns the figure; its chart is made once it has a width
   */
  Report.lineChart = spec => {
    spec.x = spec.x || { tick: format.size };
    for (const s of spec.series) s.points.sort((a, b) => a.x - b.x);
    const calls = spec.series.some(s => s.points.length);
    // A call of nothing has no place on a logarithmic axis.
    if (!spec.x.linear) for (const s of spec.series) s.points = s.points.filter(p => p.x > 0);
    const xs = [...new Set(spec.series.flatMap(s => s.points.map(p => p.x)))].sort((a, b) => a - b);
    const host = el("div", { class: "plot", tabindex: 0, role: "application", "aria-roledescription": "chart",
      "aria-label": `${spec.title}. ${spec.series.map(s => s.label).join(", ")}. Arrow keys read the points; the table below has all figures.` });
    const figure = el("figure", { class: "panel" }, spec.caption ? el("figcaption", {}, spec.caption) : null, host);
    if (!xs.length) { host.append(calls ? "Calls of nothing, which have no size: see the table." : "nothing measured"); return figure; }
    const chart = { spec, u: null, hover: false, tip: null };
    const column = (s, key) => { const by = new Map(s.points.map(p => [p.x, p[key] ?? null])); return xs.map(x => by.get(x) ?? null); };
    const data = [xs, ...spec.series.map(s => column(s, "value")), ...spec.series.flatMap(s => [column(s, "low"), column(s, "high")])];
    const draw = width => {
      const height = Math.max(220, Math.min(300, Math.round(width * .62)));
      host.style.setProperty("--drawn", width);  // print shrinks it into its column
      chart.tip = tooltip(host, chart);
      chart.u = new uPlot(options(spec, width, height, chart, xs), data, host);
      chart.u.over.append(...chart.tip.nodes);
      chart.u.over.addEventListener("pointerenter", () => { chart.hover = true; });
      chart.u.over.addEventListener("pointerleave", () => { chart.hover = false; chart.tip.show(null); });
    };
    const redraw = () => { if (!host.isConnected) { Report.redrawn.delete(redraw); observer.disconnect(); } else if (chart.u) chart.u.redraw(false); };
    // Drawing changes the host's height: inside the observer's own call that is an error of the page.
    const observer = new ResizeObserver(entries => requestAnimationFrame(() => {
      const width = Math.floor(entries[entries.length - 1].contentRect.width);
      if (width < 80 || !host.isConnected) return;
      if (!chart.u) draw(width);
      else if (chart.u.width !== width) { chart.u.destroy(); draw(width); }
    }));
    observer.observe(host);
    Report.redrawn.add(redraw);
    return figure;
  };

  /** The legend of panels that share their series. */
  Report.keys = entries => el("ul", { class: "keys" }, entries.map(entry => el("li", { class: "key" }, swatch(entry.look), entry.label)));
})();
