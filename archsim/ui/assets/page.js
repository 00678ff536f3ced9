// What the browser does by itself. The controls are gathered into the query of the page's URL. One request at a time is
// on its way; of the changes meanwhile only the last one goes next, so that dragging never queues.
(function () {
  "use strict";
  const MOST = 4, PATIENCE = 8000, SENT_OF_A_FILE = 32 * 1024 * 1024;
  const FIELDS = ["model", "hw", "devices", "weights", "kv", "engine", "tp", "price", "set"];
  const FOLDED = ["tp", "price", "set"];
  const CHARTS = ["memory", "prefill", "decode", "growth", "roof0", "roof1", "roof2", "roof3"];
  const KEYS = { kv: "kv-cache-dtype" };
  const whole = (value) => Math.max(1, Math.round(value));
  const significant = (value) => Number(value.toPrecision(2));
  const log2 = (least, parts) => [(p) => whole(2 ** (least + p / parts)), (v) => parts * (Math.log2(v) - least)];
  // name -> value at a position of its slider, and the position of a value
  const SCALES = {
    "input-len": log2(7, 4), "output-len": log2(4, 4), "batch": log2(0, 4), "concurrency": log2(0, 4),
    "rate": [(p) => significant(10 ** (p / 20 - 1)), (v) => 20 * (Math.log10(v) + 1)],
  };
  const byId = (id) => document.getElementById(id);
  const none = () => window.dash_clientside.no_update;
  const set = (id, props) => window.dash_clientside.set_props(id, props);
  const control = (slot, field) => document.querySelector(`[data-slot="${slot}"][data-field="${field}"]`);
  const uploaded = {};  // label -> key

  // ------------------------------------------------------------------ requests
  let since = 0, sent = [], waiting = null, lastQuery = null, count = 1;

  function submit(query, link) {
    waiting = { query: query, link: Boolean(link) };
    next();
  }
  function next() {
    if (waiting === null || (since && Date.now() - since < PATIENCE)) return;
    const request = Object.assign(waiting, { charts: inSight() });
    waiting = null;
    lastQuery = request.query;
    send(request);
  }
  function send(request) {
    since = Date.now();
    sent = request.charts;
    set("request", { data: Object.assign({ theme: theme(), width: chartWidth(), at: Date.now() }, request) });
  }

  // Pixels that a chart has: a half of the answers, or all of them where they stand in one column.
  function chartWidth() {
    const grid = document.querySelector(".charts");
    if (!grid) return 640;
    const columns = getComputedStyle(grid).gridTemplateColumns.split(" ").length;
    return Math.round(grid.clientWidth / columns) - 60;
  }

  const say = (text) => set("spoken", { children: text });

  // The server's refusals (too many requests) come as plain text: wait as long as it says, then ask once more.
  const plainFetch = window.fetch.bind(window);
  window.fetch = function (url, options) {
    return plainFetch(url, options).then((response) => {
      if (!String(url).includes("_dash-update-component")) return response;
      if (response.status === 429 || response.status === 503) {
        since = 0;
        setTimeout(() => submit(query(), false), 1000 * Number(response.headers.get("Retry-After") || 1));
      }
      return response;
    }, (error) => { since = 0; set("findings", { children: "The server does not respond. Is `archsim ui` still running?" }); throw error; });
  };

  // ------------------------------------------------------------------ controls to a query, and back
  function valueOf(slot, field) {
    const text = control(slot, field).value.trim();
    if (field === "set") return text.split(";").map((part) => part.trim()).filter(Boolean).join(";");
    return field === "model" && uploaded[text] ? uploaded[text] : text;
  }
  const mode = () => document.querySelector("input[name=mode]:checked").value;
  const encode = (text) => encodeURIComponent(text).replace(/%(40|2F|3A)/g, decodeURIComponent);

  function query() {
    const parts = [];
    for (let i = 0; i < count; i++) {
      for (const field of FIELDS) {
        const value = valueOf(i, field);
        if (value) parts.push(`${KEYS[field] || field}${i ? i + 1 : ""}=${encode(value)}`);
      }
    }
    for (const name of ["input-len", "output-len", mode()]) {
      if (byId(name).value) parts.push(`${name}=${encode(byId(name).value)}`);
    }
    return parts.join("&");
  }

  function changed() {
    arrange();
    const now = query();
    if (now !== lastQuery) submit(now, false);
  }

  function arrange() {
    for (let i = 0; i < MOST; i++) byId(`candidate-${i}`).hidden = i >= count;
    for (const name of ["batch", "concurrency", "rate"]) byId(`${name}-row`).hidden = mode() !== name;
    byId("add").disabled = count >= MOST;
    document.body.classList.toggle("several", count > 1);
  }

  function place(controls) {
    count = controls.candidates.length;
    controls.candidates.forEach((one, i) => FIELDS.forEach((field) => {
      const box = control(i, field), value = one[field] === null ? "" : String(one[field]);
      if (field === "model" && one.label) uploaded[one.label] = value;
      if (box.tagName === "SELECT" && ![...box.options].some((option) => option.value === value)) box.add(new Option(value));
      box.value = field === "model" && one.label ? one.label : value;
      if (value && FOLDED.includes(field)) box.closest("details").open = true;
    }));
    document.querySelector(`input[name=mode][value=${controls.mode}]`).checked = true;
    for (const name of Object.keys(SCALES)) { byId(name).value = controls[name]; slide(name); }
    arrange();
  }

  // the slider follows the number
  function slide(name) {
    const slider = byId(`${name}-slider`), value = Number(byId(name).value);
    if (value > 0) slider.value = SCALES[name][1](value);
    slider.setAttribute("aria-valuetext", byId(name).value);
  }

  function add() {
    for (const field of FIELDS) control(count, field).value = control(count - 1, field).value;
    count += 1;
    changed();
    control(count - 1, "model").focus();
  }

  function remove(slot) {
    for (let i = slot; i + 1 < count; i++) for (const field of FIELDS) control(i, field).value = control(i + 1, field).value;
    count -= 1;
    changed();
    byId("add").focus();
  }

  function listen() {
    const form = byId("asked");
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", (event) => {
      const id = event.target.id;
      if (id.endsWith("-slider")) {
        const name = id.slice(0, -"-slider".length);
        byId(name).value = SCALES[name][0](Number(event.target.value));
        event.target.setAttribute("aria-valuetext", byId(name).value);
        changed();
      } else if (id in SCALES) {
        slide(id);
        if (event.target.value) changed();
      }
    });
    form.addEventListener("change", (event) => {
      if (event.target.id === "file") upload(event.target);
      else if (!event.target.id.startsWith("hub")) changed();
    });
    form.addEventListener("click", (event) => {
      if (event.target.id === "add") add();
      else if (event.target.id === "hub-fetch") fromHub();
      else if (event.target.dataset.remove !== undefined) remove(Number(event.target.dataset.remove));
    });
    // A list of names shows all of them when one comes to it, and what stood there where nothing is picked.
    form.addEventListener("focusin", (event) => {
      const box = event.target;
      if (!box.list) return;
      box.dataset.before = box.value;
      box.dataset.words = box.placeholder;
      if (box.value) box.placeholder = box.value;
      box.value = "";
    });
    form.addEventListener("focusout", (event) => {
      const box = event.target;
      if (!box.list) return;
      if (!box.value && !("cleared" in box.dataset)) box.value = box.dataset.before || "";
      delete box.dataset.cleared;
      box.placeholder = box.dataset.words || "";
    });
    // Delete or Backspace in an empty list of formats: back to the usual one.
    form.addEventListener("keydown", (event) => {
      const box = event.target;
      if (box.list && !("needed" in box.dataset) && !box.value && ["Backspace", "Delete"].includes(event.key)) {
        box.dataset.cleared = "";
        box.placeholder = box.dataset.words || "";
        changed();
      }
    });
    byId("copy-link").addEventListener("click", () => copy(location.href, "The link"));
    document.addEventListener("click", (event) => {
      if (event.target.dataset && event.target.dataset.copy) copy(event.target.dataset.copy, "The command");
    });
    byId("theme-button").addEventListener("click", turn);
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { shown(); again(); });
    shown();
    arrange();
  }

  // ------------------------------------------------------------------ files
  function opened(answer) {
    byId("upload-message").textContent = answer.message;
    if (!answer.key) return;
    uploaded[answer.label] = answer.key;
    byId("models").prepend(new Option(answer.label, answer.label));
    control(count - 1, "model").value = answer.label;
    changed();
  }
  const failed = () => { byId("upload-message").textContent = "The file could not be sent."; };

  function upload(input) {
    const file = input.files[0];
    if (!file) return;
    byId("upload-message").textContent = `Reading ${file.name} ...`;
    const headers = { "Content-Type": "application/octet-stream", "X-File-Name": encodeURIComponent(file.name.slice(-200)) };
    const isText = /\.(json|ya?ml)$/i.test(file.name);
    const body = isText ? file : file.slice(0, SENT_OF_A_FILE);
    plainFetch("upload", { method: "POST", headers: headers, body: body })
      .then((response) => response.headers.get("Content-Type").startsWith("application/json") ? response.json() : response.text().then((text) => ({ message: text })))
      .then(opened, failed);
    input.value = "";
  }

  function fromHub() {
    const headers = { "Content-Type": "application/json" };
    byId("upload-message").textContent = `Asking the Hub for ${byId("hub-id").value} ...`;
    plainFetch("hub", { method: "POST", headers: headers, body: JSON.stringify({ id: byId("hub-id").value }) })
      .then((response) => response.json()).then(opened, failed);
  }

  // ------------------------------------------------------------------ theme and link
  const system = () => window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const theme = () => document.documentElement.dataset.theme || system();
  const again = () => { if (lastQuery !== null) submit(query(), false); };
  function shown() {
    byId("theme-button").setAttribute("aria-pressed", String(theme() === "dark"));
  }
  function turn() {
    document.documentElement.dataset.theme = theme() === "dark" ? "light" : "dark";
    shown();
    again();
  }
  function copy(text, what) {
    navigator.clipboard.writeText(text).then(
      () => say(`${what} is in the clipboard.`),
      () => say("The browser does not allow this page to copy to the clipboard."));
  }

  // ------------------------------------------------------------------ charts
  function inSight() {
    const seen = CHARTS.filter((key) => {
      const box = byId(`${key}-figure`);
      if (!box || box.hidden) return false;
      const place = box.getBoundingClientRect();
      return place.bottom > 0 && place.top < window.innerHeight;
    });
    return seen.length || drawnOnce ? seen : CHARTS.slice(0, 2);
  }
  let drawnOnce = false;
  const drawn = {};  // key of a chart -> what it shows

  // plotly.js takes a second to start: the first answer is on the page before it.
  function startPlotly() {
    const script = document.createElement("script");
    script.src = byId("plotly").href;
    return new Promise((ready, failed) => {
      script.onload = ready;
      script.onerror = failed;
      document.head.append(script);
    });
  }
  const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  let plotly = null;

  function draw(charts) {
    if (!window.Plotly) {
      plotly = plotly || painted().then(startPlotly);
      plotly.then(() => draw(charts));
      return;
    }
    drawnOnce = true;
    for (const [key, chart] of Object.entries(charts)) byId(`${key}-figure`).hidden = chart === null;
    for (const [key, chart] of Object.entries(charts)) {
      const shows = JSON.stringify(chart);
      if (drawn[key] === shows) continue;
      drawn[key] = shows;
      if (chart === null) continue;
      byId(`${key}-title`).textContent = chart.title;
      byId(`${key}-finding`).textContent = chart.finding;
      const place = byId(`${key}-chart`);
      place.style.height = `${chart.figure.layout.height}px`;
      window.Plotly.react(place, chart.figure.data, chart.figure.layout, chart.figure.config);
      const twin = byId(`${key}-table`), details = twin.parentElement;
      const fill = () => twin.replaceChildren(...(details.open ? [table(chart)] : []));
      details.ontoggle = fill;
      fill();
      twin.tabIndex = 0;
      twin.setAttribute("role", "region");
      twin.setAttribute("aria-label", `${chart.title}: numbers`);
    }
  }

  function table(chart) {
    const element = (name, text, scope) => {
      const made = document.createElement(name);
      if (text !== undefined) made.textContent = text;
      if (scope) made.scope = scope;
      return made;
    };
    const row = (cells) => { const made = element("tr"); made.append(...cells); return made; };
    const whole = element("table"), head = element("thead"), body = element("tbody");
    head.append(row(chart.head.map((text) => element(text ? "th" : "td", text, text ? "col" : ""))));
    body.append(...chart.rows.map((cells) => row(cells.map((text, i) => element(i ? "td" : "th", text, i ? "" : "row")))));
    whole.append(head, body);
    return whole;
  }

  // ------------------------------------------------------------------ what Dash calls
  let resting = null;
  function linked(search) {
    const text = (search || "").replace(/^\?/, "");
    if (text !== lastQuery) submit(text, true);
    return none();
  }
  function answered(data, sentence) {
    if (!data) return none();
    since = 0;
    draw(data.charts);
    if (data.rest) {
      next();
      return none();
    }
    window.archsimUpdate = { query: data.query, took: Date.now() - data.at };
    if (data.link) place(data.controls);
    if (waiting !== null) {
      next();
      return none();
    }
    lastQuery = query();
    history.replaceState(history.state, "", `${location.pathname}?${data.query}`);
    clearTimeout(resting);
    resting = setTimeout(() => rest(data.query, sentence), 300);
    return none();
  }
  // Once the controls rest: what is out of sight, and what takes longer.
  function rest(query, sentence) {
    if (waiting !== null || since) return;
    send({ query: query, rest: true, charts: CHARTS.filter((key) => !sent.includes(key)) });
    set("load-request", { data: { query: query } });
    setTimeout(() => say(sentence), 700);
  }

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.archsim = { linked: linked, answered: answered };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", listen);
  else listen();
})();
