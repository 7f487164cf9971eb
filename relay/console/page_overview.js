// Is everything published, and what is wrong now? Each trouble is a sentence with the link that repairs it.
import { get } from "./api.js";
import { lineChart } from "./lines.js";
import { address, badge, counted, duration, every, facts, fill, h, loadInto, number, problemBox } from "./view.js";
import { databaseNotes, unpublishedText } from "./page_publishers.js";

const REFRESH_MS = 5000, POINTS = 180;
const LATE_MS = 60000; // a row that old is worth a sentence

function trouble(kind, text, path, parameters, link) {
	return { kind, text, link: h("a", { href: address(path, parameters) }, link) };
}

// --- what is wrong ----------------------------------------------------------------------------

function shardTroubles(publisher) {
	return (publisher.shards || []).flatMap(shard => {
		const name = `Shard ${shard.shard} of ${publisher.name}`;
		const found = [];
		if (!shard.owner && publisher.configured)
			found.push(trouble("bad", `${name} has no owner: nothing of it is published.`, ["publishers", publisher.name], {}, "Look at the publisher"));
		if (Number(shard.oldest_age_ms) > LATE_MS && shard.unpublished !== "0")
			found.push(trouble("warn", `${name} is late: its oldest unpublished row is ${duration(shard.oldest_age_ms)} old.`, ["publishers", publisher.name], {}, "Look at the publisher"));
		return found;
	});
}

function parkedTroubles({ name, parked }) {
	if (!parked)
		return [];
	const found = [];
	const count = state => `${parked.exact ? "" : "more than "}${counted(parked[state], "message")}`;
	if (parked.dead !== "0")
		found.push(trouble("bad", `${count("dead")} of ${name} cannot be published and wait for you.`, ["parked"], { publisher: name, state: "dead" }, "Retry or skip them"));
	if (parked.stalled !== "0")
		found.push(trouble("warn", `${count("stalled")} of ${name} wait for a partition or topic that accepts nothing.`, ["parked"], { publisher: name, state: "stalled" }, "Look at them"));
	if (parked.waiting !== "0")
		found.push(trouble("warn", `${count("waiting")} of ${name} were refused by Kafka and are tried again.`, ["parked"], { publisher: name, state: "waiting" }, "Look at them"));
	return found;
}

function publisherTroubles(publisher) {
	const late = publisher.scheduled && publisher.scheduled.late_ms !== "0" && Number(publisher.scheduled.late_ms) > LATE_MS;
	return [...shardTroubles(publisher), ...parkedTroubles(publisher),
		...(late ? [trouble("warn", `Scheduled messages of ${publisher.name} are ${duration(publisher.scheduled.late_ms)} late.`, ["publishers", publisher.name], {}, "Look at the publisher")] : [])];
}

function sidecarTroubles({ sections }) {
	return sections.flatMap(section => {
		const link = [["sidecars"], {}, "Look at the sidecar"];
		if (section.error)
			return [trouble("bad", `The sidecar ${section.section} has an error: ${section.error}`, ...link)];
		if (section.breaker !== "closed")
			return [trouble("bad", `The circuit breaker of the sidecar ${section.section} is ${section.breaker}: its application fails.`, ...link)];
		if (section.paused)
			return [trouble("warn", `The sidecar ${section.section} is paused.`, ...link)];
		if (section.last_error)
			return [trouble("warn", `The last request of the sidecar ${section.section} failed: ${section.last_error}`, ...link)];
		return section.blocked > 0 ? [trouble("warn", `${counted(section.blocked, "partition")} of the sidecar ${section.section} are blocked.`, ...link)] : [];
	});
}

function lookbackTroubles({ rows, more }) {
	if (rows.length === 0)
		return [];
	return [trouble("warn", `${more ? "More than " : ""}${counted(rows.length, "id")} of the look-back ${rows.length === 1 ? "is" : "are"} undecided after the deadline.`, ["lookback"], {}, "Ask or decide")];
}

function troubleList(troubles, problems) {
	if (troubles.length === 0 && problems.length === 0)
		return h("p", { class: "well" }, badge("good", "all well"), " Nothing is late, parked, undecided or blocked.");
	return [problems.map(problem => problemBox(problem)),
		h("ul", { class: "troubles" }, troubles.map(({ kind, text, link }) =>
			h("li", { class: kind }, badge(kind, kind === "bad" ? "repair" : "watch"), h("span", {}, text), link)))];
}

// --- one line each ----------------------------------------------------------------------------

function publisherLine(publisher) {
	const shards = publisher.shards || [];
	const oldest = Math.max(0, ...shards.filter(shard => shard.unpublished !== "0").map(shard => Number(shard.oldest_age_ms || 0)));
	const parked = publisher.parked ? ["waiting", "dead", "stalled", "free", "behind"].reduce((sum, state) => sum + BigInt(publisher.parked[state]), 0n) : null;
	return h("section", { class: "card" },
		h("h2", {}, "Publisher ", h("a", { href: address(["publishers", publisher.name]) }, publisher.name)),
		facts([["Unpublished", shards.length === 1 ? unpublishedText(shards[0]) : `${number(totalUnpublished([publisher]))} rows in ${counted(shards.length, "shard")}`],
			["Oldest", oldest > 0 ? duration(oldest) : "–"],
			["Parked", parked === null ? "unknown" : h("a", { href: address(["parked"], { publisher: publisher.name }) }, counted(parked, "message"))]]));
}

function sidecarLine(section) {
	return h("section", { class: "card" },
		h("h2", {}, "Sidecar ", h("a", { href: address(["sidecars"]) }, section.section)),
		facts([["In progress", counted(section.in_progress, "message")], ["Handled since the start", counted(section.handled, "message")],
			["Dead letters since the start", counted(section.dead_letters, "message")]]));
}

function totalUnpublished(publishers) {
	return publishers.flatMap(publisher => publisher.shards || [])
		.reduce((sum, shard) => sum + Number(shard.unpublished_estimated ?? shard.unpublished ?? 0), 0);
}

/** The answer, or the problem: one missing part leaves the others. */
function settled(promise, problems) {
	return promise.catch(problem => {
		if (problem.name === "AbortError" || problem.status === 401)
			throw problem;
		problems.push(problem);
		return null;
	});
}

export const overview = {
	title: "Overview",
	async render({ root, signal }) {
		const now = h("div", {}), lines = h("div", { class: "cards" }), chart = h("section", { class: "card", hidden: true });
		root.append(now, lines, chart);
		let addPoint = null;

		const load = async () => {
			const problems = [];
			const [database, sidecars, lookback] = await Promise.all([
				settled(get("/v1/publishers", {}, signal), problems), settled(get("/v1/deliver", {}, signal), problems),
				// a token that is limited to some types sees no list of all
				get("/v1/lookback", { limit: 100 }, signal).catch(() => ({ rows: [], more: false }))]);
			const publishers = database ? database.publishers : [];
			const troubles = [...publishers.flatMap(publisherTroubles), ...lookbackTroubles(lookback), ...(sidecars ? sidecarTroubles(sidecars) : [])];
			fill(lines, publishers.map(publisherLine), sidecars ? sidecars.sections.map(sidecarLine) : null);
			if (database && addPoint)
				addPoint(new Date().toLocaleTimeString(), [totalUnpublished(publishers)]);
			return [h("h2", {}, "Now"), database ? databaseNotes(database.postgres) : null, troubleList(troubles, problems)];
		};
		lineChart(chart, { title: "Unpublished rows since this page was opened", unit: "rows", names: ["Unpublished"], points: POINTS, signal })
			.then(added => { addPoint = added; chart.hidden = !chart.hasChildNodes(); });
		await loadInto(now, signal, load);
		every(REFRESH_MS, signal, () => { if (!root.contains(document.activeElement)) loadInto(now, signal, load); });
	},
};
