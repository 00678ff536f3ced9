"use strict";
(() => {
  const $ = id => document.getElementById(id);
  const grid = JSON.parse($("grid").textContent);
  const { batches, contexts, parts, runs } = grid;
  const state = { b: batches.indexOf(grid.at[0]), c: contexts.indexOf(grid.at[1]), format: "", device: "" };
  const point = () => state.b * contexts.length + state.c;
  const esc = text => String(text).replace(/[&<>"']/g, s => `&#${s.charCodeAt(0)};`);
  const count = n => n.toLocaleString("en-US");
  const PHASES = ["prefill", "decode"], COLOURS = 8, LENGTH = 1000, THICK = 20;
  const BOUNDS = { c: "compute", m: "memory", l: "communication" };
  const MEMORY = ["weights", "cache", "activations", "runtime"];

  // ---- numbers in words
  const digits = value => {
    if (!value) return "0";
    const before = Math.floor(Math.log10(Math.abs(value) * (1 + 1e-12))) + 1;
    const places = Math.max(0, 4 - before);
    return value.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
  };
  const prefixed = (value, unit, steps) => {
    const [sign, size] = steps.find(step => Math.abs(value) >= step[1]) || steps[steps.length - 1];
    return `${digits(value / size)} ${sign}${unit}`;
  };
  const ms = value => prefixed(value / 1e3, "s", [["", 1], ["m", 1e-3], ["µ", 1e-6], ["n", 1e-9]]);
  const gb = value => prefixed(value * 1e9, "B", [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3], ["", 1]]);
  const few = value => Number(value.toPrecision(3)).toLocaleString("en-US", { maximumSignificantDigits: 3 });
  const until = (low, high) => {
    const [number, unit] = ms(low).split(" ");
    return ms(high).endsWith(` ${unit}`) ? `${number} to ${ms(high)}` : `${ms(low)} to ${ms(high)}`;
  };
  const share = value => `${(100 * value).toFixed(1)} %`;
  const some = names => names.slice(0, 3).join(", ") + (names.length > 3 ? ` and ${count(names.length - 3)} more` : "");

  // ---- what is shown
  const shown = () => runs.filter(run =>
    (state.format ? run.fmt === state.format : run.c) && (!state.device || run.hw === state.device));
  const fits = (run, at) => run.fits[at] === "1";
  const free = (run, at) => run.usable - run.w - run.rt - run.kv[at] - run.act[at];
  const rates = (run, at) => {
    if (!run.decode || !fits(run, at)) return null;
    const batch = batches[Math.floor(at / contexts.length)], user = 1e3 / run.decode.exp[at];
    return [user, user * batch / run.devices];
  };

  // ---- charts
  const axis = text => {
    const [low, high, start, end] = text.split(" ").map(Number);
    return value => (start + (Math.log10(value) - low) / (high - low) * (end - start)).toFixed(1);
  };
  const marks = (id, draw) => {
    const svg = $(id);
    if (svg) svg.querySelector(".marks").innerHTML = draw(axis(svg.dataset.x), axis(svg.dataset.y), svg);
  };
  const devices = [...new Set(runs.map(run => run.hw))];
  const shape = n => (n + Math.floor(n / COLOURS)) % COLOURS;
  const line = (x, y, run, points) => {
    const style = `c${run.n % COLOURS}`;
    return (points.length > 1 ? `<path class="line ${style}" d="M${points.map(p => `${x(p[0])} ${y(p[1])}`).join("L")}"/>` : "") +
      points.map(p => `<use href="#g${shape(run.n)}" class="${style}" x="${x(p[0])}" y="${y(p[1])}"><title>${esc(p[2])}</title></use>`).join("");
  };
  const table = (id, rows) => {
    const found = $(id);
    if (found) found.tBodies[0].innerHTML = rows.map(row =>
      `<tr>${row.map((cell, i) => i ? `<td${String(cell).length > 44 ? ' class="w"' : ""}>${esc(cell)}</td>` : `<th scope="row">${esc(cell)}</th>`).join("")}</tr>`).join("");
  };
  const hide = (id, empty) => { const found = $(id); if (found) found.closest("figure").hidden = empty; };
  const caption = (key, text) => { const found = $(`${key}-caption`); if (found) found.textContent = text; };
  const bar = b => {
    let at = 0;
    const pieces = b.pieces.map(([colour, share, words]) => {
      const size = LENGTH * share;
      const made = `<rect class="p${Math.min(colour, COLOURS - 1)}" x="${at.toFixed(1)}" width="${size.toFixed(1)}" height="${THICK}"><title>${esc(words)}</title></rect>`;
      at += size;
      return made;
    }).join("");
    const room = b.room ? `<rect class="room" x="0" width="${(LENGTH * b.room).toFixed(1)}" height="${THICK}"/>` : "";
    const span = b.span ? `<rect class="span" x="${(LENGTH * b.span[0]).toFixed(1)}" y="8.5" width="${(LENGTH * (b.span[1] - b.span[0])).toFixed(1)}" height="3"/>` : "";
    const tick = `<rect class="tick" x="${(LENGTH * b.tick - 1.5).toFixed(1)}" width="3" height="${THICK}"/>`;
    return `<div class="bar"><span class="who">${esc(b.label)}</span><svg viewBox="0 0 ${LENGTH} ${THICK}" preserveAspectRatio="none" aria-hidden="true">${pieces}${span}${tick}${room}</svg><span class="val">${esc(b.value)}</span></div>`;
  };

  const where = () => `Batch ${count(batches[state.b])}, ${count(contexts[state.c])} prompt tokens${state.format ? `, weights in ${state.format}` : ""}. `;

  const time = () => {
    const at = point(), rows = [];
    for (const name of PHASES) {
      const box = $(`time-${name}`), listed = shown().filter(run => run[name]);
      if (!box) continue;
      const top = Math.max(...listed.map(run => run[name].high[at]));
      box.innerHTML = listed.map(run => {
        const phase = run[name];
        const pieces = Object.entries(phase.parts).map(([i, values]) => [Number(i), values[at] / top, `${parts[i]}: ${ms(values[at])}`]).filter(p => p[1] > 0);
        return bar({ label: run.label, value: ms(phase.exp[at]) + (fits(run, at) ? "" : " *"), pieces, span: [phase.low[at] / top, phase.high[at] / top], tick: phase.ideal[at] / top });
      }).join("");
    }
    for (const run of shown()) for (const name of PHASES) {
      const phase = run[name];
      if (!phase) continue;
      const split = Object.entries(phase.parts).map(([i, values]) => [parts[i], values[at]]).filter(p => p[1] > 0).sort((a, b) => b[1] - a[1]);
      rows.push([run.label, name, ms(phase.exp[at]), until(phase.low[at], phase.high[at]), ms(phase.ideal[at]), BOUNDS[phase.bound[at]], split.map(p => `${p[0]} ${ms(p[1])}`).join("; ")]);
    }
    table("time-table", rows);
    const able = shown().filter(run => fits(run, at)), slowest = able.every(run => run.decode) ? "decode" : "prefill", slow = run => run[slowest].exp[at];
    const best = able.length ? able.reduce((a, b) => slow(b) < slow(a) ? b : a) : null;
    const missing = shown().length > able.length ? " *: does not fit the memory." : "";
    const most = best ? Object.entries(best[slowest].parts).map(([i, values]) => [parts[i], values[at]]).reduce((a, b) => b[1] > a[1] ? b : a) : null;
    const told = best ? `Shortest ${slowest}: ${best.label}, ${ms(slow(best))}, of which ${most[0]} ${share(most[1] / slow(best))}.` : "Nothing fits.";
    caption("time", `${where()}${told} Vertical tick: speed of light. Thin line: 80 % interval.${missing}`);
  };

  const memory = () => {
    const box = $("memory"), at = point(), listed = shown();
    const sizes = run => [run.w, run.kv[at], run.act[at], run.rt];
    const needed = run => sizes(run).reduce((a, b) => a + b);
    const top = Math.max(...listed.map(run => Math.max(run.cap, needed(run))));
    const used = run => run.usable ? share(needed(run) / run.usable) : "–";
    box.innerHTML = listed.map(run => bar({
      label: run.label, value: `${gb(needed(run))}, ${used(run)} of usable${fits(run, at) ? "" : ": no fit"}`,
      pieces: sizes(run).map((size, i) => [i, size / top, `${MEMORY[i]}: ${gb(size)}`]).filter(p => p[1] > 0), tick: run.usable / top, room: run.cap / top,
    })).join("");
    table("memory-table", listed.map(run => [run.label, ...sizes(run).map(gb), gb(free(run, at)), gb(run.usable), fits(run, at) ? "fits" : "does not fit"]));
    const out = listed.filter(run => !fits(run, at)).map(run => run.label);
    const full = listed.length ? listed.reduce((a, b) => needed(b) / b.usable > needed(a) / a.usable ? b : a) : null;
    const told = out.length ? `Does not fit: ${some(out)}.` : listed.length > 1 ? "All fit." : "It fits.";
    caption("memory", full ? `${where()}${told} Fullest: ${full.label}, ${used(full)} of what is usable. Outline: the device's memory. Vertical tick: usable memory.` : "Nothing shown.");
  };

  const cache = () => {
    const row = run => contexts.map((c, i) => [c, run.kv[state.b * contexts.length + i], state.b * contexts.length + i]);
    marks("cache", (x, y, svg) => shown().map(run => {
      const listed = row(run).filter(p => p[1] > 0).map(p => [p[0], p[1], `${run.label}, ${count(p[0])} tokens: ${gb(p[1])}`]);
      const at = point(), room = free(run, at) + run.kv[at], style = `c${run.n % COLOURS}`, [, , left, right] = svg.dataset.x.split(" ");
      const limit = room > 0 && listed.length ? `<path class="line beyond ${style}" d="M${left} ${y(room)}H${right}"/><use href="#g${shape(run.n)}" class="${style}" x="${right}" y="${y(room)}"/>` : "";
      return line(x, y, run, listed) + limit;
    }).join(""));
    table("cache-table", shown().map(run => [run.label, ...row(run).map(p => gb(p[1]))]));
    const reach = run => [contexts.filter((c, i) => fits(run, state.b * contexts.length + i)).pop() || 0, run.label], all = shown().map(reach);
    const high = all.reduce((a, b) => b[0] > a[0] ? b : a, [0, ""]), low = all.reduce((a, b) => b[0] < a[0] ? b : a, [Infinity, ""]);
    const rest = high[0] <= low[0] ? "" : low[0] ? `, of ${count(low[0])} ${low[1]}` : `, none shown fits ${low[1]}`;
    const told = high[0] ? `At batch ${count(batches[state.b])} prompts of ${count(high[0])} tokens fit ${high[1]}` : "No prompt shown fits";
    caption("cache", `${told}${rest}. Dashed: what a device has left for the cache beside weights and activations.`);
  };

  const frontier = () => {
    marks("frontier", (x, y, svg) => {
      const [, , left, right] = svg.dataset.x.split(" "), [, , bottom, top] = svg.dataset.y.split(" ");
      const here = `<path class="here" d="M${x(contexts[state.c])} ${bottom}V${top}M${left} ${y(batches[state.b])}H${right}"/>`;
      return shown().map(run => line(x, y, run, contexts.map((c, i) => [c, run.most[i], `${run.label}, ${count(c)} tokens: batch ${count(run.most[i])}`]).filter(p => p[1] > 0))).join("") + here;
    });
    table("frontier-table", shown().map(run => [run.label, ...run.most.map(count)]));
    const best = shown().length ? shown().reduce((a, b) => b.most[state.c] > a.most[state.c] ? b : a) : null;
    const told = best && best.most[state.c] ? `At ${count(contexts[state.c])} tokens ${best.label} holds most: ${count(best.most[state.c])} sequences.` : "Nothing fits.";
    caption("frontier", `${told} What fits lies below a line; dotted: the workload shown.`);
  };

  const pareto = () => {
    const row = run => batches.map((b, i) => [b, rates(run, i * contexts.length + state.c), i * contexts.length + state.c, i]).filter(p => p[1]);
    const points = shown().flatMap(run => row(run).map(p => p[1]));
    const front = points.sort((a, b) => b[0] - a[0] || b[1] - a[1]).reduce((kept, p) => kept.length && p[1] <= kept[kept.length - 1][1] ? kept : [...kept, p], []);
    devices.forEach((hw, number) => {
      const listed = shown().filter(run => run.hw === hw), every = [];
      marks(`pareto${number}`, (x, y) => {
        const path = points => points.map(p => `${x(p[0])} ${y(p[1])}`).join("L");
        const best = front.length ? `<path class="front" d="M${path(front)}"/>` : "";
        const band = run => {
          const ends = key => row(run).map(p => { const f = run.decode.exp[p[2]] / run.decode[key][p[2]]; return [p[1][0] * f, p[1][1] * f]; });
          return row(run).length ? `<path class="band c${run.n % COLOURS}" d="M${path([...ends("high"), ...ends("low").reverse()])}Z"/>` : "";
        };
        return best + listed.map(band).join("") + listed.map(run => {
          row(run).forEach(p => every.push([run, p]));
          const now = row(run).find(p => p[3] === state.b);
          const ring = now ? `<circle class="seen" cx="${x(now[1][0])}" cy="${y(now[1][1])}" r="7"/>` : "";
          return line(x, y, run, row(run).map(([b, r]) => [r[0], r[1], `${run.label}, batch ${count(b)}: ${digits(r[0])} tokens/s per user, ${digits(r[1])} of a device`])) + ring;
        }).join("");
      });
      hide(`pareto${number}`, !listed.length);
      table(`pareto${number}-table`, listed.map(run => {
        const known = new Map(row(run).map(p => [p[3], p[1]]));
        return [run.label, ...batches.map((_, i) => known.has(i) ? known.get(i).map(digits).join(" / ") : "–")];
      }));
      const top = i => every.reduce((a, b) => b[1][1][i] > a[1][1][i] ? b : a), name = ([run, p], i) => `${digits(p[1][i])}${i ? "" : " tokens/s"} (${run.label}, batch ${count(p[0])})`;
      caption(`pareto${number}`, every.length ? `${hw}: for one user at most ${name(top(0), 0)}, of a device at most ${name(top(1), 1)}.` : `${hw}: nothing ${listed.length ? "fits" : "shown"}.`);
    });
    const told = $("trade-told");
    if (told) told.textContent = `At ${count(contexts[state.c])} tokens, batch ${count(batches[0])} to ${count(batches[batches.length - 1])}, as far as it fits. Ring: the batch shown; pale band: 80 % interval; dotted: the best of all that is shown. Up and to the right is better.`;
  };

  const roofs = () => {
    const at = point();
    devices.forEach((hw, number) => {
      const rows = [], listed = shown().filter(run => run.hw === hw);
      marks(`roof${number}`, (x, y) => listed.map(run => PHASES.map(name => {
        const phase = run[name];
        return !phase ? "" : phase.ops.map((op, i) => {
          const [across, rate, ideal, share] = phase.roof[at].slice(4 * i, 4 * i + 4);
          if (!rate) return "";
          rows.push([run.label, name, op, few(across), few(rate), few(ideal), `${few(100 * share)} %`]);
          const px = Number(x(across)), py = Number(y(rate)), r = 2.2 + 9 * Math.sqrt(share), style = `c${run.n % COLOURS}`;
          const words = `<title>${esc(`${run.label}, ${name}, ${op}: ${few(across)} FLOP/B, ${few(rate)} TFLOP/s, ${few(100 * share)} % of the time`)}</title>`;
          const dot = name === "decode" ? `<circle class="op ${style}" cx="${px}" cy="${py}" r="${r.toFixed(1)}">${words}</circle>`
            : `<rect class="op ${style}" x="${(px - r).toFixed(1)}" y="${(py - r).toFixed(1)}" width="${(2 * r).toFixed(1)}" height="${(2 * r).toFixed(1)}">${words}</rect>`;
          return (py - y(ideal) >= 1 ? `<path class="gap ${style}" d="M${px} ${py}V${y(ideal)}"/>` : "") + dot;
        }).join("");
      }).join("")).join(""));
      table(`roof${number}-table`, rows);
      hide(`roof${number}`, !listed.length);
      const found = PHASES.map(name => [name, listed.filter(run => run[name]).map(run => run[name].limited[at]).sort((a, b) => a - b)]).filter(p => p[1].length)
        .map(([name, v]) => [name, [...new Set([v[0], v[v.length - 1]].map(s => (100 * s).toFixed(0)))]])
        .map(([name, ends]) => `${ends.join() === "0" ? "none" : `${ends.join(" to ")} %`} of ${name}`);
      const box = $(`roof${number}-caption`);
      if (box && found.length) box.textContent = box.textContent.replace(/: arithmetic limits .*?\. The ridge/, `: arithmetic limits ${found.join(" and ")}. The ridge`);
    });
  };

  const say = () => {
    const at = point(), over = [...new Set(shown().filter(run => run.limit && contexts[state.c] > run.limit).map(run => `${run.model} has a context length of ${count(run.limit)} tokens`))];
    const speeds = shown().map(run => `${run.label} ${!fits(run, at) ? "does not fit" : run.decode ? `${ms(run.decode.exp[at])} per token` : ms(run.prefill.exp[at])}`);
    $("shown").textContent = `${where()}${speeds.slice(0, 8).join("; ")}.${over.length ? ` Note: ${over.slice(0, 3).join("; ")}.` : ""}`;
  };
  const show = () => { time(); memory(); cache(); frontier(); pareto(); roofs(); say(); };

  // ---- controls
  const slider = (id, values, unit, key) => {
    const input = $(id), output = $(`${id}-value`);
    const read = () => {
      state[key] = Number(input.value);
      const words = `${count(values[state[key]])} ${unit}`;
      input.setAttribute("aria-valuetext", words);
      if (output) output.textContent = words;
    };
    input.addEventListener("input", () => { read(); show(); });
    return read;
  };
  const reads = [slider("batch", batches, "sequences", "b"), slider("context", contexts, "tokens", "c")];
  for (const key of ["format", "device"]) {
    const read = () => { state[key] = $(key).value; };
    $(key).addEventListener("change", () => { read(); show(); });
    reads.push(read);
  }
  $("controls").addEventListener("reset", () => setTimeout(() => { reads.forEach(read => read()); show(); }));
  $("controls").addEventListener("submit", event => event.preventDefault());
  $("controls").hidden = false;

  const button = $("download");
  button.hidden = false;
  button.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([$("data").textContent], { type: "application/json" }));
    link.download = "estimates.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });

  // ---- print: everything open
  let closed = [];
  addEventListener("beforeprint", () => { closed = [...document.querySelectorAll("details:not([open]):not(.long)")]; closed.forEach(d => { d.open = true; }); });
  addEventListener("afterprint", () => closed.forEach(d => { d.open = false; }));
  const before = JSON.stringify(state);
  reads.forEach(read => read());
  if (JSON.stringify(state) !== before) show(); // a browser that kept the controls over a reload
})();
