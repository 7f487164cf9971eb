// Elements, formats and parts that pages share. Texts from outside become text nodes only.
import { Problem, get } from "./api.js";

// --- elements ---------------------------------------------------------------------------------

/** h("a", {href: "#/", class: "x", onclick: f}, "text", element, …) */
export function h(name, attributes = {}, ...children) {
	const element = document.createElement(name);
	for (const [key, value] of Object.entries(attributes)) {
		if (value === null || value === undefined || value === false)
			continue;
		if (key.startsWith("on"))
			element.addEventListener(key.slice(2), value);
		else
			element.setAttribute(key, value === true ? "" : String(value));
	}
	add(element, children);
	return element;
}

export function add(element, children) {
	for (const child of children.flat(Infinity))
		if (child !== null && child !== undefined && child !== false)
			element.append(child instanceof Node ? child : document.createTextNode(String(child)));
	return element;
}

export function fill(element, ...children) {
	element.replaceChildren();
	return add(element, children);
}

// --- formats ----------------------------------------------------------------------------------

/** 64-bit numbers come as strings; null: unknown. */
export function number(value) {
	if (value === null || value === undefined)
		return "unknown";
	return (typeof value === "string" ? BigInt(value) : value).toLocaleString();
}

/** "1 row", "2 rows" */
export function counted(value, one, many = `${one}s`) {
	return `${number(value)} ${Number(value) === 1 ? one : many}`;
}

/** "1.5 MiB" */
export function bytes(value) {
	if (value === null || value === undefined)
		return "unknown";
	const units = ["B", "KiB", "MiB", "GiB", "TiB"];
	const place = Math.min(Math.max(Math.floor(Math.log2(Math.max(Number(value), 1)) / 10), 0), units.length - 1);
	const amount = Number(value) / 1024 ** place;
	return `${place > 0 && amount < 10 ? amount.toFixed(1) : Math.round(amount)} ${units[place]}`;
}

/** A rate of 0 to 1, as "0.1 %" */
export function share(rate) {
	return rate === null || rate === undefined ? "unknown" : `${Number((rate * 100).toPrecision(3))} %`;
}

export function duration(milliseconds) {
	if (milliseconds === null || milliseconds === undefined)
		return "unknown";
	const ms = Number(milliseconds);
	if (ms < 1000)
		return `${ms} ms`;
	const units = [[86400e3, "d"], [3600e3, "h"], [60e3, "min"], [1e3, "s"]];
	const [size, unit] = units.find(([least]) => ms >= least);
	const amount = ms / size;
	return `${amount < 10 && unit !== "s" ? amount.toFixed(1) : Math.floor(amount)} ${unit}`;
}

/** A moment in the viewer's zone, with UTC on hover. */
export function when(text) {
	if (!text)
		return "";
	const moment = new Date(text);
	const local = moment.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
	return h("time", { datetime: text, title: `${moment.toISOString().replace("T", " ").replace(".000", "").replace("Z", "")} UTC` }, local);
}

/** The value of <input type="datetime-local"> in UTC, and back. */
export function toUtc(local) {
	return local ? new Date(local).toISOString() : "";
}

export function toLocal(utc) {
	const moment = new Date(utc);
	if (!utc || Number.isNaN(moment.getTime()))
		return "";
	return new Date(moment - moment.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
}

// --- addresses --------------------------------------------------------------------------------

/** "#/parked/17?publisher=main": every view has an address that can be shared. */
export function address(path, parameters = {}) {
	const query = new URLSearchParams();
	for (const [name, value] of Object.entries(parameters))
		if (value !== undefined && value !== null && value !== "")
			query.append(name, value);
	const text = query.toString();
	return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** A page of the console of another process, by the URL that the process advertises; null: none that a browser may follow. */
export function consoleOf(url, path) {
	if (!url || !URL.canParse(url) || !["http:", "https:"].includes(new URL(url).protocol))
		return null;
	return `${new URL(url).origin}/console/${address(path)}`;
}

// --- problems ---------------------------------------------------------------------------------

const NEXT = {
	forbidden: "Log out, and log in with a token that has the role.",
	out_of_scope: "Choose a publisher, section or type that your token is for.",
	no_database: "Pages that need no database work meanwhile.",
	no_kafka: "Check the brokers and the network between them and the relay. Pages that need no Kafka work meanwhile.",
	busy: "Try again in a moment.",
	locked: "Try again in a moment.",
	ending: "Try again in a moment: another process may take over.",
	changed: "Make a new preview and look at it.",
	token_expired: "Make a new preview and look at it.",
	wrong_csrf_token: "Reload the page.",
};

function asProblem(error) {
	if (error instanceof Problem)
		return error;
	console.error(error);
	return new Problem(0, "The console has an error", `${error.message}. Reload the page; report it with this text if it comes back.`, { code: "console" });
}

/** What failed and what to do next; announced, and put where the reader is looking. */
export function problemBox(error, again = null) {
	const problem = asProblem(error);
	return h("div", { class: "problem", role: "alert" },
		h("strong", {}, problem.title),
		h("p", {}, problem.detail, NEXT[problem.code] ? ` ${NEXT[problem.code]}` : ""),
		problem.request ? h("p", { class: "small" }, "Request ", h("code", {}, problem.request), ", as in the log of the relay.") : null,
		again ? h("button", { type: "button", onclick: again }, "Try again") : null);
}

/** May the same request work later, without another choice of the reader? */
export function mayPass(problem) {
	return problem.status === 429 || problem.status >= 500 || (problem.status === 0 && problem.code !== "console");
}

// --- what goes on -----------------------------------------------------------------------------

const REFRESH_MS = 10000, RETRY_MS = 3000;
const CONTROLS = "a[href], button, input, select, textarea, [tabindex]";

/** The focus of a control that is gone. */
function focusHeading() {
	document.querySelector("h1").focus({ preventScroll: true });
}

/** A problem that lasts is announced once: its box stays until it changes, or somebody tries again. */
function problemPlace(again) {
	const place = h("div", {});
	let shown = "[]";
	const tryAgain = () => { shown = ""; again(); };
	const show = errors => {
		const problems = errors.map(asProblem);
		const text = JSON.stringify(problems.map(({ code, title, detail }) => [code, title, detail]));
		if (text === shown)
			return;
		const had = place.contains(document.activeElement);
		shown = text;
		fill(place, problems.map(problem => problemBox(problem, tryAgain)));
		if (had && problems.length > 0)
			place.querySelector("button").focus();
		else if (had)
			focusHeading();
	};
	return { place, show };
}

function nameOf(control) {
	return [control.tagName, control.getAttribute("aria-label") || control.getAttribute("href") || control.textContent].join();
}

/**
 * Other nodes, unless they look the same. The focus stays at the control with the same name, or goes to the heading of the page;
 * elements with the same data-kept stay as they are.
 */
function renew(element, nodes) {
	const fresh = add(h("div", {}), [nodes]);
	if (fresh.innerHTML === element.innerHTML)
		return;
	const had = element.contains(document.activeElement) ? nameOf(document.activeElement) : null;
	const same = () => [...element.querySelectorAll(CONTROLS)].filter(control => nameOf(control) === had);
	const place = had ? same().indexOf(document.activeElement) : 0;
	for (const kept of element.querySelectorAll("[data-kept]"))
		fresh.querySelector(`[data-kept="${kept.dataset.kept}"]`)?.replaceWith(kept);
	element.replaceChildren(...fresh.childNodes);
	if (had && same()[place])
		same()[place].focus({ preventScroll: true });
	else if (had)
		focusHeading();
}

/** Loads what is shown anew, at once. */
export function refreshAll() {
	window.dispatchEvent(new Event("refresh"));
}

/**
 * Shows what load() gives: nodes, or {nodes, problems} where parts of it failed. Loads it again each `ms` (0: never), when the
 * browser is seen again, and at refreshAll(). While load() fails, the old nodes stay, marked as old with their time, and it is
 * tried again; a problem that does not pass by itself removes them. Returns when it has been shown for the first time.
 */
export function live(root, signal, load, { ms = REFRESH_MS, kind = null } = {}) {
	const { place, show } = problemPlace(() => refresh());
	const note = h("p", {}), shown = h("div", { class: kind }, h("p", { class: "muted" }, "Loading …"));
	const part = h("div", {}, place, note, shown);
	let loaded = null, runs = false, again = false, timer = null, begun = null;

	function succeed(made) {
		renew(shown, made.nodes ?? made);
		loaded = new Date();
		part.classList.remove("old");
		fill(note);
		show(made.problems ?? []);
		begun();
	}

	function fail(problem) {
		show([problem]);
		if (loaded && mayPass(problem)) {
			part.classList.add("old");
			fill(note, badge("warn", "old"), " What follows is of ", when(loaded.toISOString()), ". The console tries again by itself.");
			return;
		}
		loaded = null;
		part.classList.remove("old");
		fill(shown);
		fill(note, mayPass(problem) ? "The console tries again by itself." : "");
	}

	async function refresh() {
		again = runs; // what is under way may have begun before the change
		if (runs || signal.aborted || (loaded && ms === 0))
			return;
		runs = true;
		clearTimeout(timer);
		let wait = ms;
		try {
			const made = await load();
			// under a dialog stays what its operator has seen; its end refreshes
			if (!signal.aborted && !(loaded && document.querySelector("dialog[open]")))
				succeed(made);
		} catch (problem) {
			if (problem.status === 401)
				return;
			if (!signal.aborted)
				fail(problem);
			wait = Math.min(ms || RETRY_MS, RETRY_MS);
		} finally {
			runs = false;
		}
		if (wait > 0)
			timer = setTimeout(refreshIfSeen, again ? 0 : wait);
	}

	/** A hidden page costs the relay nothing. */
	function refreshIfSeen() {
		if (!document.hidden)
			refresh();
	}

	root.append(part);
	signal.addEventListener("abort", () => clearTimeout(timer));
	window.addEventListener("refresh", refreshIfSeen, { signal });
	document.addEventListener("visibilitychange", refreshIfSeen, { signal });
	refresh();
	return new Promise(resolve => { begun = resolve; });
}

/** Calls again while the page is seen. */
export function every(milliseconds, signal, refresh) {
	const timer = setInterval(() => {
		if (!document.hidden)
			refresh();
	}, milliseconds);
	signal.addEventListener("abort", () => clearInterval(timer));
}

// --- parts ------------------------------------------------------------------------------------

/** columns: [{title, cell: row => node, narrow: class}] */
export function table(caption, columns, rows, empty = "There is nothing here.") {
	if (rows.length === 0)
		return h("p", { class: "muted" }, empty);
	return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
		h("table", {},
			h("caption", { class: "hidden" }, caption),
			h("thead", {}, h("tr", {}, columns.map(column => h("th", { scope: "col", class: column.kind }, column.title)))),
			h("tbody", {}, rows.map(row => h("tr", {}, columns.map(column =>
				h("td", { "data-title": column.label || (typeof column.title === "string" ? column.title : ""), class: column.kind }, column.cell(row))))))));
}

export function facts(pairs) {
	return h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, value]) =>
		h("div", {}, h("dt", {}, name), h("dd", {}, value === "" || value === null || value === undefined ? "none" : value))));
}

export function badge(kind, text) {
	return h("span", { class: `badge ${kind}` }, text);
}

/** label: text; input: element. */
export function field(label, input, hint = null) {
	return h("label", { class: "field" }, h("span", {}, label), input, hint ? h("small", {}, hint) : null);
}

export function input(name, value, more = {}) {
	return h("input", { name, value: value || "", autocomplete: "off", spellcheck: "false", ...more });
}

export function select(name, value, choices) {
	return h("select", { name }, choices.map(choice => {
		const [key, text] = Array.isArray(choice) ? choice : [choice, choice];
		return h("option", { value: key, selected: key === (value || "") }, text);
	}));
}

/** A form whose fields become the parameters of the address. */
export function filterForm(path, fields, convert = {}) {
	return h("form", {
		class: "filters", role: "search",
		onsubmit: event => {
			event.preventDefault();
			const parameters = {};
			for (const [name, value] of new FormData(event.target))
				parameters[name] = convert[name] ? convert[name](value) : value.trim();
			location.hash = address(path, parameters);
		},
	}, fields, h("div", { class: "buttons" },
		h("button", { type: "submit", class: "primary" }, "Show"),
		h("a", { class: "button", href: address(path) }, "Clear")));
}

/** Removes from the set what the list no longer has. */
export function keepOnly(chosen, list) {
	for (const each of chosen)
		if (!list.includes(each))
			chosen.delete(each);
}

/** How many rows match in each state, with links to them; null if the answer to a list has no totals. */
export function totalsNode(path, parameters, { totals, exact }, states, meaning, rows) {
	if (!totals)
		return null;
	return h("ul", { class: "totals", "aria-label": `Matching ${rows} by state` }, states.map(state =>
		h("li", { class: totals[state] === "0" ? "muted" : "" }, h("a", { href: address(path, { ...parameters, state, after: "" }), title: meaning[state] },
			h("strong", {}, number(totals[state])), ` ${state}`))),
		exact ? null : h("li", { class: "muted" }, `among the first 100,000 ${rows}`));
}

/** Links to the first and the next page; the browser's own Back goes back. */
export function pager(path, parameters, name, next) {
	if (!parameters[name] && !next)
		return null;
	return h("nav", { class: "pager", "aria-label": "Pages" },
		parameters[name] ? h("a", { class: "button", href: address(path, { ...parameters, [name]: "" }) }, "First page") : null,
		next ? h("a", { class: "button", href: address(path, { ...parameters, [name]: next }) }, "Next page") : null);
}

/**
 * The whole list as a file, with the filter of the page. cursor: the parameter that says where a page of it begins; null: the
 * list has one page. A request for one row comes first: a refused download would say nothing to the reader.
 */
export function exportLink(list, parameters, cursor) {
	const { [cursor]: begun, ...filter } = parameters;
	const query = new URLSearchParams(Object.entries({ ...filter, format: "csv" }).filter(([, value]) => value));
	const href = `/v1/${list}?${query}`;
	const save = async event => {
		const problems = event.target.parentElement.nextElementSibling;
		event.preventDefault();
		fill(problems);
		try {
			await get(`/v1/${list}`, cursor ? { ...filter, limit: 1 } : filter);
			location.assign(href);
		} catch (problem) {
			if (problem.status !== 401)
				fill(problems, problemBox(problem));
		}
	};
	return [h("p", {}, h("a", { class: "button", href, download: `${list}.csv`, onclick: save }, "Save the list as CSV")), h("div", { "data-kept": list })];
}

/** What the operator has seen is over: the page shows what is there now. */
function overNode({ status }) {
	return [404, 409].includes(status) ? h("p", {}, "Close this dialog: the page is loaded again then, and shows what is there now.") : null;
}

/**
 * A dialog for a verb: shows what it would change, asks for a reason, carries it out, shows the result or the problem. What was
 * typed stays until the order is carried out. prepare(): nodes and what run needs. run(reason, prepared): nodes.
 */
export function verbDialog({ title, verb, danger = false, prepare, run, done = () => {} }) {
	const body = h("div", {});
	const leave = () => {
		dialog.remove();
		refreshAll();
		if (document.activeElement === document.body)
			focusHeading(); // the button was drawn anew
	};
	const dialog = h("dialog", { "aria-labelledby": "dialog-title", onclose: leave },
		h("h2", { id: "dialog-title" }, title), body);
	const reason = h("textarea", { name: "reason", rows: "2", maxlength: "500", required: true });

	const close = text => h("button", { type: "button", onclick: () => dialog.close() }, text);

	function finish(nodes) {
		const button = h("button", { type: "button", class: "primary", onclick: () => { dialog.close(); done(); } }, "Close");
		fill(body, h("div", { role: "status", class: "result" }, nodes), h("div", { class: "buttons" }, button));
		button.focus();
	}

	function ask(shown, prepared) {
		const problems = h("div", {});
		const confirm = h("button", { type: "submit", class: danger ? "danger" : "primary" }, verb);
		const form = h("form", {
			onsubmit: async event => {
				event.preventDefault();
				confirm.disabled = true;
				fill(problems);
				try {
					finish(await run(reason.value, prepared));
				} catch (problem) {
					confirm.disabled = false;
					confirm.focus();
					// after a changed selection only a new preview helps
					const isStale = ["changed", "token_expired", "bad_token"].includes(problem.code);
					fill(problems, problemBox(problem, isStale ? load : null), isStale ? null : overNode(problem));
				}
			},
		}, shown, field("Reason, for the readers of the audit", reason), problems,
		h("div", { class: "buttons" }, confirm, close("Cancel")));
		fill(body, form);
		form.querySelector("input, select, textarea").focus();
	}

	async function load() {
		fill(body, h("p", { class: "muted", role: "status" }, "Loading …"));
		try {
			const prepared = await prepare();
			if (prepared.nothing)
				fill(body, prepared.nodes, h("div", { class: "buttons" }, close("Close")));
			else
				ask(prepared.nodes, prepared);
		} catch (problem) {
			fill(body, problemBox(problem, load), overNode(problem), h("div", { class: "buttons" }, close("Close")));
		}
	}

	document.body.append(dialog);
	dialog.showModal();
	return load();
}
