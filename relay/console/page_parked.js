// Parked messages: a list with filters and pages, one message, and retry or skip of chosen or all matching ones.
import { get, mayDo, post } from "./api.js";
import { add, address, badge, counted, duration, exportLink, facts, field, filterForm, h, input, keepOnly, live, number, pager, select, table, toLocal, totalsNode, toUtc, verbDialog, when } from "./view.js";
import { jobProgress } from "./page_jobs.js";
import { PARKED_STATES } from "./page_publishers.js";

const MEANING = {
	waiting: "Kafka refused it; the relay tries it again by itself.",
	dead: "Refused too often, or it crashes the relay: it waits for an operator.",
	stalled: "Its partition or topic accepts nothing; the relay goes on by itself when that works again.",
	paused: "An operator paused its topic: it is published after the topic is resumed, on the page of the publisher.",
	free: "Nothing blocks it: it is published as soon as possible.",
	behind: "It waits for the first message of its key.",
};
const KIND = { waiting: "warn", dead: "bad", stalled: "warn", paused: "warn", free: "good", behind: "" };
const FILTER = ["topic", "key", "error", "state", "from", "to", "from_id", "to_id"];

const VERBS = {
	retry: { title: "Retry", role: "operate", text: "The relay tries these messages again at once. Those behind them follow." },
	skip: { title: "Skip", role: "decide", text: "These messages are never published: consumers do not see them. Those behind them follow." },
};

let databaseOf = {}; // of each publisher: jobs are found by their database

function filterOf(parameters) {
	return Object.fromEntries(FILTER.filter(name => parameters[name]).map(name => [name, parameters[name]]));
}

function filterText(filter) {
	const terms = Object.entries(filter).map(([name, value]) => `${name.replace("_", " ")} ${value}`);
	return terms.length > 0 ? terms.join(", ") : "every parked message of the publisher";
}

// --- the verbs --------------------------------------------------------------------------------

function sampleTable(rows) {
	return table("The first messages", [
		{ title: "Number", kind: "number", cell: row => row.id },
		{ title: "Topic", kind: "long", cell: row => row.topic },
		{ title: "Key", kind: "long", cell: row => row.key ?? "none" },
		{ title: "State", cell: row => badge(KIND[row.state], row.state) },
	], rows);
}

function previewNodes(verb, selection, preview) {
	const { behind, free, paused } = preview.left_out;
	const bound = preview.exact ? "" : "at least ";
	return [
		h("p", {}, VERBS[verb].text),
		facts([["Selection", selection],
			["Changes", h("strong", {}, `${bound}${counted(preview.count, "message")}`)],
			["Match", `${bound}${counted(preview.matching, "message")}`],
			behind !== "0" ? ["Left out", `${counted(behind, "message")} behind the first of the key: they follow by themselves`] : null,
			free !== "0" ? ["Left out", `${counted(free, "message")} in the state free: they are published anyway`] : null,
			paused !== "0" ? ["Left out", `${counted(paused, "message")} of paused topics: they are published when the topic is resumed`] : null]),
		preview.exact ? null : h("p", {}, "The relay counts no more than the first 100,000 parked messages of the publisher. All others that match change, too."),
		sampleTable(preview.sample),
	];
}

function resultNodes(verb, publisher, answer) {
	const id = `parked-${answer.audit}`, postgres = databaseOf[publisher];
	return [
		h("p", {}, `The request is stored: ${verb} of ${counted(answer.count, "message")}${answer.exact ? "" : " or more"}. The owners of the shards carry it out, also when this page is closed.`),
		jobProgress(id, postgres),
		h("p", {}, "It can be followed and cancelled as the job ", h("a", { href: address(["jobs", id], { postgres }) }, id), "."),
	];
}

/** chosen: {ids} or {filter}. */
function operate(verb, publisher, chosen, selection, done) {
	return verbDialog({
		title: `${VERBS[verb].title} parked messages of ${publisher}`, verb: VERBS[verb].title, danger: verb === "skip", done,
		prepare: async () => {
			const preview = await post("/v1/parked/preview", { publisher, verb, ...chosen });
			if (preview.count === "0" && preview.exact)
				return { nothing: true, nodes: [previewNodes(verb, selection, preview), h("p", { role: "status" }, h("strong", {}, `There is nothing to ${verb}.`))] };
			return { nodes: previewNodes(verb, selection, preview), token: preview.token };
		},
		run: async (reason, { token }) =>
			resultNodes(verb, publisher, await post(`/v1/parked/${verb}`, { publisher, ...chosen, ...(chosen.filter ? { token } : {}), reason })),
	});
}

function verbButtons(text, act) {
	return Object.keys(VERBS).filter(verb => mayDo(VERBS[verb].role)).map(verb =>
		h("button", { type: "button", class: verb === "skip" ? "danger" : "", onclick: () => act(verb) }, text(VERBS[verb].title)));
}

// --- the list ---------------------------------------------------------------------------------

function requestNode(row) {
	return row.request ? badge("warn", `${row.request} requested`) : "";
}

function columns(publisher, ids, changed) {
	const box = row => h("input", {
		type: "checkbox", "aria-label": `Choose message ${row.id}`, checked: ids.has(row.id),
		onchange: event => { event.target.checked ? ids.add(row.id) : ids.delete(row.id); changed(); },
	});
	return [
		mayDo("operate") || mayDo("decide") ? { title: h("span", { class: "hidden" }, "Chosen"), cell: box } : null,
		{ title: "Number", kind: "number", cell: row => h("a", { href: address(["parked", row.id], { publisher }) }, row.id) },
		{ title: "Topic", kind: "long", cell: row => row.topic },
		{ title: "Key", kind: "long", cell: row => row.key ?? "none" },
		{ title: "State", cell: row => [badge(KIND[row.state], row.state), " ", requestNode(row)] },
		{ title: "Attempts", kind: "number", cell: row => number(row.attempts) },
		{ title: "Next", cell: row => when(row.next_at) },
		{ title: "Error", kind: "long", cell: row => row.error || "" },
		{ title: "Parked at", cell: row => when(row.parked_at) },
	].filter(Boolean);
}

/** ids: the chosen ones. They stay when the list is loaded again, as long as they are in it. */
function listNodes(parameters, answer, ids, refresh) {
	const filter = filterOf(parameters);
	const buttons = h("div", { class: "buttons" });
	const publisher = answer.publisher;
	const changed = () => {
		buttons.replaceChildren();
		if (ids.size > 0)
			add(buttons, verbButtons(title => `${title} the ${number(ids.size)} chosen`, verb =>
				operate(verb, publisher, { ids: [...ids] }, `${counted(ids.size, "chosen message")}`, refresh)));
		else if (answer.rows.length > 0)
			add(buttons, verbButtons(title => `${title} all that match …`, verb =>
				operate(verb, publisher, { filter }, filterText(filter), refresh)));
	};
	keepOnly(ids, answer.rows.map(row => row.id));
	changed();
	return [
		totalsNode(["parked"], parameters, answer, PARKED_STATES, MEANING, "messages"), buttons,
		table(`Parked messages of ${publisher}`, columns(publisher, ids, changed), answer.rows, "No parked message matches."),
		pager(["parked"], parameters, "after", answer.next), exportLink("parked", parameters, "after"),
		h("p", { class: "small muted" }, `The figures come from the ${answer.source}.`),
	];
}

function filters(parameters, publishers) {
	return filterForm(["parked"], [
		field("Publisher", select("publisher", parameters.publisher, publishers)),
		field("Topic", input("topic", parameters.topic)),
		field("Key", input("key", parameters.key)),
		field("Error has", input("error", parameters.error)),
		field("State", select("state", parameters.state, [["", "any"], ...PARKED_STATES])),
		field("Parked from", h("input", { name: "from", type: "datetime-local", step: "1", value: toLocal(parameters.from) })),
		field("until before", h("input", { name: "to", type: "datetime-local", step: "1", value: toLocal(parameters.to) })),
	], { from: toUtc, to: toUtc });
}

async function renderList({ root, parameters, signal, refresh }) {
	await live(root, signal, async () => {
		const { publishers } = await get("/v1/publishers", {}, signal);
		const known = publishers.filter(publisher => publisher.configured);
		const names = known.map(publisher => publisher.name);
		if (names.length === 0)
			return h("p", { class: "muted" }, "There is no publisher here that your token may see.");
		parameters.publisher = parameters.publisher || names[0];
		databaseOf = Object.fromEntries(known.map(publisher => [publisher.name, publisher.postgres]));
		return filters(parameters, names);
	}, { ms: 0 });
	const ids = new Set();
	if (parameters.publisher)
		await live(root, signal, async () =>
			listNodes(parameters, await get("/v1/parked", { ...parameters, limit: 50, totals: parameters.after ? "" : "yes" }, signal), ids, refresh));
}

// --- one message ------------------------------------------------------------------------------

function oneNodes(publisher, row, refresh) {
	return h("section", { class: "card" },
		h("p", {}, badge(KIND[row.state], row.state), ` ${MEANING[row.state]}`),
		facts([["Publisher", h("a", { href: address(["publishers", publisher]) }, publisher)],
			["Topic", h("a", { href: address(["parked"], { publisher, topic: row.topic }) }, row.topic)],
			["Key", row.key === null ? "none" : h("a", { href: address(["parked"], { publisher, key: row.key }) }, row.key || "empty")],
			["Attempts", number(row.attempts)], ["Next attempt", when(row.next_at)], ["Parked at", when(row.parked_at)],
			["Age", duration(Date.now() - new Date(row.parked_at))],
			["Open request", row.request ? `${row.request}, number ${row.request_id}` : ""]]),
		h("h2", {}, "Error"), h("pre", { class: "long", tabindex: "0" }, row.error || "none"),
		h("div", { class: "buttons" }, verbButtons(title => title, verb =>
			operate(verb, publisher, { ids: [row.id] }, `message ${row.id}`, refresh))));
}

async function renderOne({ root, heading, path, parameters, signal, refresh }) {
	heading.textContent = `Parked message ${path[0]}`;
	await live(root, signal, async () => {
		const answer = await get("/v1/parked", { publisher: parameters.publisher, from_id: path[0], to_id: path[0], limit: 1 }, signal);
		if (answer.rows.length === 0)
			return h("p", {}, `${answer.publisher} has no parked message with the number ${path[0]}: it was published or skipped meanwhile. The `, h("a", { href: address(["audit"]) }, "audit"), " says who asked for it.");
		return oneNodes(answer.publisher, answer.rows[0], refresh);
	});
}

export const parked = {
	title: "Parked",
	render: view => (view.path.length > 0 ? renderOne(view) : renderList(view)),
};
