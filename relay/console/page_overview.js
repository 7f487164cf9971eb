// Is everything published, and what is wrong now? Each trouble is a sentence with the link that repairs it.
import { get } from "./api.js";
import { charts } from "./lines.js";
import { onEvents } from "./stream.js";
import { address, badge, counted, duration, facts, h, live, number, when } from "./view.js";
import { databaseNotes, databaseProblems, PARKED_STATES } from "./page_publishers.js";

const REFRESH_MS = 5000;

function trouble(kind, text, path, parameters, link) {
	return { kind, text, link: h("a", { href: address(path, parameters) }, link) };
}

// --- what is wrong ----------------------------------------------------------------------------

function parkedTroubles({ name, parked }) {
	if (!parked)
		return [];
	const count = state => `${parked.exact ? "" : "more than "}${counted(parked[state], "message")}`;
	const one = (state, kind, text, link) => (parked[state] === "0" ? [] : [trouble(kind, `${count(state)} of ${name} ${text}`, ["parked"], { publisher: name, state }, link)]);
	return [...one("dead", "bad", "cannot be published and wait for you.", "Retry or skip them"),
		...one("stalled", "warn", "wait for a partition or topic that accepts nothing.", "Look at them"),
		...one("paused", "warn", "wait because an operator paused their topic.", "Look at them"),
		...one("waiting", "warn", "were refused by Kafka and are tried again.", "Look at them")];
}

function publisherTroubles(publisher) {
	const unowned = publisher.shards - publisher.owned;
	const look = [["publishers", publisher.name], {}, "Look at the publisher"];
	return [...(unowned > 0 ? [trouble("bad", `${counted(unowned, "shard")} of ${publisher.name} ${unowned === 1 ? "has" : "have"} no owner: nothing is published there.`, ...look)] : []),
		...(publisher.elsewhere ? [trouble("bad", `The rows of ${publisher.name} were copied from another cluster: nothing is published.`, ...look)] : []),
		...parkedTroubles(publisher)];
}

function sidecarTroubles(sections) {
	return sections.flatMap(section => {
		const link = [["sidecars"], {}, "Look at the sidecar"];
		if (section.error)
			return [trouble("bad", `The sidecar ${section.section} has an error: ${section.error}`, ...link)];
		if (section.breaker !== "closed")
			return [trouble("bad", `The circuit breaker of the sidecar ${section.section} is ${section.breaker}: its application fails.`, ...link)];
		if (section.paused)
			return [trouble("warn", `The sidecar ${section.section} is paused.`, ...link)];
		return section.last_error ? [trouble("warn", `The last request of the sidecar ${section.section} failed: ${section.last_error}`, ...link)] : [];
	});
}

function lookbackTroubles(types) {
	return types.flatMap(({ section, type, overdue, parked, exact }) => {
		const link = [["lookback"], { type }, "Ask or decide"];
		return [...(overdue !== "0" ? [trouble("warn", `${exact ? "" : "At least "}${counted(overdue, "id")} of ${section}, type ${type}, ${overdue === "1" ? "is" : "are"} undecided after the deadline.`, ...link)] : []),
			...(parked !== "0" ? [trouble("bad", `${exact ? "" : "At least "}${counted(parked, "id")} of ${section}, type ${type}, ${parked === "1" ? "is" : "are"} parked: the relay no longer asks.`, ...link)] : [])];
	});
}

/** The page that helps with an alert, by its labels. */
function alertLink({ alert, labels }) {
	if (alert === "OutboxPublisherPaused" || alert === "OutboxTopicPaused")
		return h("a", { href: address(["publishers", labels.publisher]) }, "Resume it");
	if (labels.publisher && labels.state)
		return h("a", { href: address(["parked"], { publisher: labels.publisher, state: labels.state }) }, "Look at the messages");
	if (labels.publisher)
		return h("a", { href: address(["publishers", labels.publisher]) }, "Look at the publisher");
	if (labels.type)
		return h("a", { href: address(["lookback"], { type: labels.type }) }, "Look at the ids");
	return labels.section ? h("a", { href: address(["sidecars"]) }, "Look at the sidecar") : null;
}

function alertItem(alert) {
	const kind = { critical: "bad", warning: "warn", info: "info" }[alert.severity];
	return h("li", { class: kind }, badge(kind, `${alert.severity}, ${alert.state}`),
		h("span", {}, `${alert.text.charAt(0).toUpperCase()}${alert.text.slice(1)}.`), alertLink(alert),
		h("small", {}, `${alert.alert}, since `, when(alert.since)));
}

function nowNodes(overview) {
	const troubles = [...overview.publishers.flatMap(publisherTroubles), ...lookbackTroubles(overview.lookback), ...sidecarTroubles(overview.deliver)];
	const isWell = troubles.length === 0 && overview.alerts.length === 0 && overview.postgres.every(database => !database.error);
	return [h("h2", {}, "Now"), databaseNotes(overview.postgres),
		isWell ? h("p", {}, badge("good", "all well"), " Nothing is late, parked, undecided or blocked.") : null,
		h("ul", { class: "troubles" }, troubles.map(({ kind, text, link }) =>
			h("li", { class: kind }, badge(kind, kind === "bad" ? "repair" : "watch"), h("span", {}, text), link))),
		overview.alerts.length > 0 ? [h("h2", {}, "Alerts"), h("ul", { class: "troubles" }, overview.alerts.map(alertItem))] : null];
}

// --- one card each ----------------------------------------------------------------------------

function publisherCard(publisher) {
	const { parked, scheduled } = publisher;
	const parkedRows = parked ? PARKED_STATES.reduce((sum, state) => sum + BigInt(parked[state]), 0n) : 0n;
	return h("section", { class: "card" },
		h("h2", {}, "Publisher ", h("a", { href: address(["publishers", publisher.name]) }, publisher.name)),
		facts([["Unpublished", publisher.unpublished === null ? "unknown" : `${publisher.unpublished_exact ? "" : "more than "}${counted(publisher.unpublished, "row")}`],
			["Oldest", publisher.oldest_age_ms && publisher.unpublished !== "0" ? duration(publisher.oldest_age_ms) : "–"],
			["Published by this process", publisher.published_per_s === null ? "nothing: it owns no shard" : `${number(Math.round(publisher.published_per_s))} records/s`],
			["Shards with an owner", `${publisher.owned} of ${publisher.shards}`],
			["Parked", h("a", { href: address(["parked"], { publisher: publisher.name }) }, counted(parkedRows, "message"))],
			["Scheduled", scheduled ? h("a", { href: address(["scheduled"], { publisher: publisher.name }) }, `${scheduled.exact ? "" : "more than "}${counted(scheduled.rows, "message")}`) : "unknown"]]));
}

function sidecarCard(section) {
	return h("section", { class: "card" },
		h("h2", {}, "Sidecar ", h("a", { href: address(["sidecars"]) }, section.section)),
		facts([["In progress", counted(section.in_progress, "message")], ["Handled since the start", counted(section.handled, "message")],
			["Dead letters since the start", h("a", { href: address(["dead-letters"], { section: section.section }) }, counted(section.dead_letters, "message"))]]));
}

function lookbackCard({ section, type, overdue, parked, conflicts, exact }) {
	return h("section", { class: "card" },
		h("h2", {}, "Look-back ", h("a", { href: address(["lookback"], { type }) }, type)),
		facts([["Section", section], ["Overdue", `${exact ? "" : "at least "}${counted(overdue, "id")}`], ["Parked", `${exact ? "" : "at least "}${counted(parked, "id")}`], ["Conflicts", number(conflicts)]]));
}

function processLine({ name, ready, roles, started }) {
	return h("p", { class: "muted" }, "The process ", h("code", {}, name), ` answered (${roles.join(", ") || "no roles"}; ${ready ? "ready" : "not ready"}; started `,
		when(started), "). Rates, charts, alerts and sidecars are its own; the other figures come from the database.");
}

export const overview = {
	title: "Overview",
	async render({ root, signal }) {
		const drawn = h("div", { class: "cards" });
		onEvents(["alert", "shard", "deliver"], signal);
		await live(root, signal, async () => {
			const answer = await get("/v1/overview", {}, signal);
			const cards = [answer.publishers.map(publisherCard), answer.lookback.map(lookbackCard), answer.deliver.map(sidecarCard)];
			return { nodes: [nowNodes(answer), h("div", { class: "cards" }, cards), processLine(answer.process)], problems: databaseProblems(answer.postgres) };
		}, { ms: REFRESH_MS });
		root.append(drawn);
		await charts(drawn, signal);
	},
};
