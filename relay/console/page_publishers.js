// Publishers with their shards: who owns them, and what is not published yet.
import { get, mayDo, post } from "./api.js";
import { onEvents } from "./stream.js";
import { address, badge, counted, duration, every, facts, h, loadInto, number, table, verbDialog, when } from "./view.js";

/** Number of unpublished rows, and how sure it is. */
function unpublishedText(shard) {
	if (shard.unpublished === null)
		return "unknown";
	if (shard.unpublished_exact)
		return counted(shard.unpublished, "row");
	return shard.unpublished_estimated === null ? `more than ${number(shard.unpublished)} rows` : `about ${number(shard.unpublished_estimated)} rows`;
}

export const PARKED_STATES = ["waiting", "dead", "stalled", "free", "behind"];

function parkedLinks(publisher) {
	if (!publisher.parked)
		return "unknown";
	const links = PARKED_STATES.filter(state => publisher.parked[state] !== "0").map(state =>
		h("a", { href: address(["parked"], { publisher: publisher.name, state }) },
			`${number(publisher.parked[state])} ${state}`));
	if (links.length === 0)
		return "none";
	const joined = links.flatMap((link, i) => (i > 0 ? [", ", link] : [link]));
	return publisher.parked.exact ? joined : [...joined, " among the first 10,000"];
}

function scheduledText(scheduled) {
	if (!scheduled)
		return "unknown";
	if (scheduled.rows === "0")
		return "none";
	const rows = `${scheduled.exact ? "" : "more than "}${counted(scheduled.rows, "row")}`;
	return scheduled.late_ms !== "0" ? `${rows}, the first is ${duration(scheduled.late_ms)} late` : `${rows}, the next in ${duration(scheduled.next_ms)}`;
}

function ownerNode(shard) {
	if (shard.elsewhere)
		return badge("bad", "carried here from another cluster");
	if (!shard.owner)
		return badge("bad", "nobody");
	return [h("code", {}, shard.owner), ` for ${duration(shard.lease_left_ms)}`];
}

const COLUMNS = [
	{ title: "Shard", cell: shard => `${shard.shard} of ${shard.shards}${shard.split_to ? `, splits to ${shard.split_to}` : ""}` },
	{ title: "Owner", cell: ownerNode },
	{ title: "Unpublished", kind: "number", cell: unpublishedText },
	{ title: "Oldest", kind: "number", cell: shard => (shard.unpublished === "0" ? "–" : duration(shard.oldest_age_ms)) },
	{ title: "Open windows", kind: "number", cell: shard => number(shard.open_windows) },
	{ title: "Newest log row", kind: "number", cell: shard => number(shard.n) },
	{ title: "Epoch", kind: "number", cell: shard => number(shard.epoch) },
];

const VERBS = {
	pause: { title: "Pause", text: "Its relays send nothing more until somebody resumes it, also after a restart. Messages wait in the table, and each key keeps its order." },
	resume: { title: "Resume", text: "Its relays publish again, from where they paused." },
};

function operate(publisher, verb, done) {
	const { title, text } = VERBS[verb];
	return verbDialog({
		title: `${title}: ${publisher}`, verb: title, done,
		prepare: async () => ({ nodes: h("p", {}, text) }),
		run: async reason => {
			const answer = await post(`/v1/publishers/${encodeURIComponent(publisher)}/${verb}`, { reason });
			return h("p", {}, `${answer.publisher} is ${answer.paused ? "paused" : "publishing"}${answer.changed ? "" : ", as it was before"}.`);
		},
	});
}

function publisherCard(publisher, done) {
	const paused = (publisher.shards || []).map(shard => shard.paused_at).find(Boolean);
	const verb = paused ? "resume" : "pause";
	const unknown = (publisher.shards || []).map(shard => shard.unknown).find(Boolean);
	return h("section", { class: "card" },
		h("h2", {}, h("a", { href: address(["publishers", publisher.name]) }, publisher.name)),
		publisher.configured ? null : h("p", {}, badge("warn", "not configured"), " This process has no [publisher] section of the name."),
		paused ? h("p", {}, badge("warn", "paused"), " since ", when(paused)) : null,
		unknown ? h("p", {}, badge("warn", "figures are missing"), ` ${unknown}`) : null,
		facts([["Database", `[postgres "${publisher.postgres}"]`], ["Parked", parkedLinks(publisher)],
			["Scheduled", scheduledText(publisher.scheduled)], ["Source of the figures", publisher.source]]),
		publisher.shards ? table(`Shards of ${publisher.name}`, COLUMNS, publisher.shards) : h("p", { class: "muted" }, "The shards are unknown."),
		publisher.configured && mayDo("operate") ? h("div", { class: "buttons" },
			h("button", { type: "button", onclick: () => operate(publisher.name, verb, done) }, VERBS[verb].title)) : null);
}

/** Names of the publishers of the configuration that the caller may see. */
export async function publisherNames(signal) {
	const { publishers: found } = await get("/v1/publishers", {}, signal);
	return found.filter(publisher => publisher.configured).map(publisher => publisher.name);
}

export function databaseNotes(databases) {
	return databases.filter(database => database.error || database.unknown.length > 0).map(database =>
		h("p", {}, badge(database.error ? "bad" : "warn", `[postgres "${database.name}"]`), " ", database.error || `Locks hide: ${database.unknown.join(", ")}`));
}

export const publishers = {
	title: "Publishers",
	async render({ root, heading, path, signal, refresh }) {
		const place = h("div", {});
		root.append(place);
		const load = async () => {
			if (path.length > 0) {
				heading.textContent = `Publisher ${path[0]}`;
				return publisherCard(await get(`/v1/publishers/${encodeURIComponent(path[0])}`, {}, signal), refresh);
			}
			const answer = await get("/v1/publishers", {}, signal);
			return [databaseNotes(answer.postgres), answer.publishers.map(publisher => publisherCard(publisher, refresh)),
				answer.publishers.length === 0 ? h("p", { class: "muted" }, "There is no publisher here that your token may see.") : null];
		};
		await loadInto(place, signal, load);
		const redraw = () => { if (!place.contains(document.activeElement) && !document.querySelector("dialog")) loadInto(place, signal, load); };
		every(5000, signal, redraw);
		onEvents(["shard"], signal, redraw);
	},
};
