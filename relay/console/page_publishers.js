// Publishers with their shards: who owns them, and what is not published yet.
import { get, mayDo, post, Problem } from "./api.js";
import { dropDialog } from "./drop.js";
import { jobProgress } from "./page_jobs.js";
import { onEvents } from "./stream.js";
import { address, badge, consoleOf, counted, duration, exportLink, facts, field, h, input, live, number, select, table, verbDialog, when } from "./view.js";

/** Number of unpublished rows, and how sure it is. */
function unpublishedText(shard) {
	if (shard.unpublished === null)
		return "unknown";
	if (shard.unpublished_exact)
		return counted(shard.unpublished, "row");
	return shard.unpublished_estimated === null ? `more than ${number(shard.unpublished)} rows` : `about ${number(shard.unpublished_estimated)} rows`;
}

export const PARKED_STATES = ["waiting", "dead", "stalled", "paused", "free", "behind"];

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

/** The name of a process, as a link to its own console if it advertises one. */
export function processNode(name, url, path) {
	const there = consoleOf(url, path);
	const shown = h("code", {}, name);
	return there ? h("a", { href: there, rel: "noreferrer" }, shown) : shown;
}

function ownerNode(shard) {
	if (shard.elsewhere)
		return badge("bad", "carried here from another cluster");
	if (!shard.owner)
		return badge("bad", "nobody");
	return [processNode(shard.owner, shard.url, ["publishers", shard.publisher]), ` for ${duration(shard.lease_left_ms)}`];
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

function verify(publisher, done) {
	return verbDialog({
		title: `Verify: ${publisher.name}`, verb: "Verify", done,
		prepare: async () => ({ nodes: h("p", {}, "A relay compares every row of the table with every record of its topics, and changes nothing. That reads all of them, which costs the database and Kafka work.") }),
		run: async reason => {
			const { job, postgres } = await post("/v1/verifications", { publisher: publisher.name, reason });
			return [h("p", {}, "The verification is stored."), jobProgress(job, postgres),
				h("p", {}, "It can be followed and cancelled as the job ", h("a", { href: address(["jobs", job], { postgres }) }, job), ".")];
		},
	});
}

// --- one topic --------------------------------------------------------------------------------

/** Topics that an operator pauses: [name, since]. Every shard of a publisher has the same. */
function pausedTopics(publisher) {
	return Object.entries(publisher.shards?.[0]?.paused_topics ?? {});
}

async function orderTopic(publisher, verb, topic, reason) {
	const answer = await post(`/v1/publishers/${encodeURIComponent(publisher)}/${verb}`, { topic, reason });
	return h("p", {}, `${answer.topic} of ${answer.publisher} is ${answer.paused ? "paused" : "publishing"}${answer.changed ? "" : ", as it was before"}.`);
}

function pauseTopic(publisher, done) {
	const topic = input("topic", "", { required: true, maxlength: 249, pattern: "[A-Za-z0-9._\\-]+" });
	return verbDialog({
		title: `Pause a topic: ${publisher.name}`, verb: "Pause the topic", done,
		prepare: async () => ({ nodes: [
			h("p", {}, "Messages of the topic wait until somebody resumes it. Running relays park them in the state paused, which copies each of them; each key keeps its order. Other topics of the publisher go on."),
			field("Kafka topic", topic)] }),
		run: reason => orderTopic(publisher.name, "pause", topic.value.trim(), reason),
	});
}

function resumeTopic(publisher, topic, done) {
	return verbDialog({
		title: `Resume ${topic}: ${publisher.name}`, verb: "Resume the topic", done,
		prepare: async () => ({ nodes: h("p", {}, "The parked messages of the topic are published, and later ones after them.") }),
		run: reason => orderTopic(publisher.name, "resume", topic, reason),
	});
}

function pausedTopicNodes(publisher, done) {
	return pausedTopics(publisher).map(([topic, since]) => h("p", {}, badge("warn", "paused"), " topic ", h("code", {}, topic), " since ", when(since), " ",
		publisher.configured && mayDo("operate") ? h("button", { type: "button", onclick: () => resumeTopic(publisher, topic, done) }, `Resume ${topic} …`) : null));
}

// --- split and rebase -------------------------------------------------------------------------

const MOST_SHARDS = 64;
const QUESTION = "Rebase all publishers?"; // as on the command line

function split(publisher, done) {
	const now = publisher.shards.length;
	const shards = input("shards", now + 1, { type: "number", min: "1", max: MOST_SHARDS, required: true });
	return verbDialog({
		title: `Split: ${publisher.name}`, verb: "Split", done,
		prepare: async () => ({ nodes: [
			h("p", {}, "The shards come to a common end, and the new ones go on from there: each key keeps its order. If that takes longer than 8 s, the split is cancelled, and the publisher goes on as before."),
			facts([["Shards now", number(now)]]), field("New number of shards", shards)] }),
		run: async reason => {
			const answer = await post(`/v1/publishers/${encodeURIComponent(publisher.name)}/split`, { shards: Number(shards.value), reason });
			return h("p", {}, `${answer.publisher} has ${counted(answer.shards, "shard")}.`);
		},
	});
}

function cancelSplit(publisher, done) {
	return verbDialog({
		title: `Cancel the split: ${publisher.name}`, verb: "Cancel the split", done,
		prepare: async () => ({ nodes: h("p", {}, "Only for a split whose process was killed: the publisher goes on with the shards that it has.") }),
		run: async reason => {
			await post(`/v1/publishers/${encodeURIComponent(publisher.name)}/split`, { cancel: true, reason });
			return h("p", {}, "The split is cancelled.");
		},
	});
}

const PLAN = [
	{ title: "Publisher", cell: row => row.publisher ?? "all" },
	{ title: "Rows", cell: row => (row.publisher === null ? "published by every publisher" : row.carried ? "carried here" : "written here") },
	{ title: "To publish", kind: "number", cell: row => number(row.rows) },
	{ title: "Identity", kind: "number", cell: row => row.identity ?? "" },
];

/** A rebase changes every publisher of the database: its plan is shown, and the question of the command line is answered. */
function rebase(publisher, done) {
	const path = `/v1/publishers/${encodeURIComponent(publisher.name)}/rebase`;
	const confirm = input("confirm", "", { required: true });
	const identity = h("input", { type: "checkbox", name: "new_identity" });
	return verbDialog({
		title: `Rebase the publishers of [postgres "${publisher.postgres}"]`, verb: "Rebase", danger: true, done,
		prepare: async () => {
			const { plan } = await post(path, { dry_run: true });
			return { nodes: [
				h("p", {}, "Makes a restored or copied database publish again: its rows get transaction ids of this cluster, and every shard a new epoch. Unfinished replays and an unfinished split end. It is refused while a process owns a publisher."),
				table("Plan of the rebase", PLAN, plan),
				h("label", { class: "check" }, identity, " New identities: the original goes on publishing"),
				field("Confirm", confirm, `Type “${QUESTION}” to change every publisher of the table above.`)] };
		},
		run: async reason => {
			const answer = await post(path, { confirm: confirm.value.trim(), all: true, new_identity: identity.checked, reason });
			return h("p", {}, `Rebased: ${counted(answer.rows, "row")} with another transaction id. Every publisher has a new epoch.`);
		},
	});
}

// --- create and drop --------------------------------------------------------------------------

const FORCE = {
	owned: "a process owns a shard, and releases it then",
	last: "it is the last publisher of the database",
	configured: "this process is configured for it, and would not start without it",
};

function create(databases, done) {
	const name = input("name", "", { required: true });
	const shards = input("shards", 1, { type: "number", min: "1", max: MOST_SHARDS, required: true });
	const start = input("start", "beginning", { required: true });
	const postgres = databases.length > 1 ? select("postgres", "", databases) : null;
	return verbDialog({
		title: "Create a publisher", verb: "Create", done,
		prepare: async () => ({ nodes: [
			h("p", {}, "A publisher is a reader of the table with progress of its own. A relay with a [publisher] section of the name publishes it. Until one does, it keeps partitions from being dropped."),
			field("Name", name), postgres ? field("Database", postgres) : null, field("Shards", shards),
			field("Start", start, "beginning: every row in the table; now: rows that commit from now on; or a time such as 2026-01-02T03:04:05Z: rows that were written then or later.")] }),
		run: async reason => {
			const answer = await post("/v1/publishers", { name: name.value.trim(), shards: Number(shards.value), start: start.value.trim(),
				...(postgres ? { postgres: postgres.value } : {}), reason });
			return h("p", {}, `${answer.publisher} has ${counted(answer.shards, "shard")} in [postgres "${answer.postgres}"].`);
		},
	});
}

/** The page of one publisher is left: it is gone. */
function drop(publisher) {
	const rows = (plan, kind) => `${plan.exact ? "" : "at least "}${counted(plan[kind], "message")}`;
	return dropDialog({
		title: `Drop the publisher ${publisher.name}`, verb: "Drop", done: () => leavePage(),
		path: `/v1/publishers/${encodeURIComponent(publisher.name)}/drop`, order: { postgres: publisher.postgres },
		question: `Drop publisher ${publisher.name}?`, force: FORCE,
		shown: plan => [h("p", {}, "The publisher goes with its progress, its parked and its scheduled messages, which it never publishes. The rows of the table stay."),
			facts([["Parked messages that go", h("strong", {}, rows(plan, "parked"))], ["Scheduled messages that go", h("strong", {}, rows(plan, "scheduled"))]])],
		run: answer => h("p", {}, `The publisher ${answer.publisher} is dropped.`),
	});
}

function leavePage() {
	location.hash = address(["publishers"]);
}

function buttons(publisher, verb, done) {
	const button = (text, act, kind = "") => h("button", { type: "button", class: kind, onclick: act }, text);
	const shards = publisher.shards || [];
	const dropButton = mayDo("decide") ? button("Drop …", () => drop(publisher), "danger") : null;
	if (!publisher.configured)
		return h("div", { class: "buttons" }, dropButton);
	return h("div", { class: "buttons" },
		mayDo("operate") ? [button(VERBS[verb].title, () => operate(publisher.name, verb, done)), button("Pause a topic …", () => pauseTopic(publisher, done)), button("Verify …", () => verify(publisher, done))] : null,
		mayDo("decide") && shards.length > 0 ? [
			button("Split …", () => split(publisher, done)),
			shards.some(shard => shard.split_to) ? button("Cancel the split …", () => cancelSplit(publisher, done)) : null,
			button("Rebase …", () => rebase(publisher, done), "danger")] : null,
		dropButton);
}

// --- the pages --------------------------------------------------------------------------------

function publisherCard(publisher, done) {
	const paused = (publisher.shards || []).map(shard => shard.paused_at).find(Boolean);
	const verb = paused ? "resume" : "pause";
	const unknown = (publisher.shards || []).map(shard => shard.unknown).find(Boolean);
	return h("section", { class: "card" },
		h("h2", {}, h("a", { href: address(["publishers", publisher.name]) }, publisher.name)),
		publisher.configured ? null : h("p", {}, badge("warn", "not configured"), " This process has no [publisher] section of the name."),
		paused ? h("p", {}, badge("warn", "paused"), " since ", when(paused)) : null,
		...pausedTopicNodes(publisher, done),
		unknown ? h("p", {}, badge("warn", "figures are missing"), ` ${unknown}`) : null,
		facts([["Database", `[postgres "${publisher.postgres}"]`], ["Parked", parkedLinks(publisher)],
			["Scheduled", scheduledText(publisher.scheduled)], ["Source of the figures", publisher.source]]),
		publisher.shards ? table(`Shards of ${publisher.name}`, COLUMNS, publisher.shards) : h("p", { class: "muted" }, "The shards are unknown."),
		buttons(publisher, verb, done));
}

/** Names of the publishers of the configuration that the caller may see. */
export async function publisherNames(signal) {
	const { publishers: found } = await get("/v1/publishers", {}, signal);
	return found.filter(publisher => publisher.configured).map(publisher => publisher.name);
}

export function databaseNotes(databases) {
	return databases.filter(database => !database.error && database.unknown.length > 0).map(database =>
		h("p", {}, badge("warn", `[postgres "${database.name}"]`), ` Locks hide: ${database.unknown.join(", ")}`));
}

/** Of those that are away, where others answer. */
export function databaseProblems(databases) {
	return databases.filter(database => database.error).map(database =>
		new Problem(503, `The figures of [postgres "${database.name}"] are missing`, `${database.error}.`));
}

export const publishers = {
	title: "Publishers",
	async render({ root, heading, path, signal, refresh }) {
		onEvents(["shard"], signal);
		await live(root, signal, async () => {
			if (path.length > 0) {
				heading.textContent = `Publisher ${path[0]}`;
				return publisherCard(await get(`/v1/publishers/${encodeURIComponent(path[0])}`, {}, signal), refresh);
			}
			const answer = await get("/v1/publishers", {}, signal);
			const createButton = h("button", { type: "button", onclick: () => create(answer.postgres.map(database => database.name), refresh) }, "Create a publisher …");
			const nodes = [databaseNotes(answer.postgres), mayDo("operate") ? h("div", { class: "buttons" }, createButton) : null,
				answer.publishers.map(publisher => publisherCard(publisher, refresh)),
				answer.publishers.length === 0 ? h("p", { class: "muted" }, "There is no publisher here that your token may see.") : null, exportLink("publishers", {}, null)];
			return { nodes, problems: databaseProblems(answer.postgres) };
		}, { ms: 5000 });
	},
};
