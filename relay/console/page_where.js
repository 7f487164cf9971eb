// Where is it? Every stage of a message: written, window, parked or scheduled, published, and its place in Kafka.
import { get } from "./api.js";
import { address, badge, facts, field, filterForm, h, input, live, number, pager, table, toLocal, toUtc, when } from "./view.js";
import { databaseField } from "./page_jobs.js";

const STATES = {
	waiting: ["warn", "Committed, and in no window yet: it is published soon."],
	in_window: ["warn", "Its window is open: it is being published."],
	published: ["good", "Kafka acknowledged it."],
	parked: ["bad", "It is parked."],
	scheduled: ["", "It waits for its time."],
	skipped: ["warn", "An operator skipped it: it is not published."],
	before_start: ["", "The publisher begins behind it, and never publishes it."],
	dropped: ["", "Its row was dropped after it was published, parked or scheduled."],
	elsewhere: ["bad", "The log was copied from another cluster: nothing is published."],
};
const RECORDS = {
	found: "found", gone: "no longer in the topic: retention has removed it", not_found: "not in the topic", timeout: "not found in time: ask again",
	unsearched: "not searched", busy: "not searched, because other searches run: ask again", no_topic: "the topic does not exist",
	kafka_away: "Kafka does not answer: check the brokers and the network between them and the relay", unmarked: "unknown: the topic has headers = none", not_configured: "unknown: this process lacks the publisher",
};

function recordText(record) {
	if (!record)
		return "none";
	if (record.state === "found")
		return `${record.topic}, partition ${record.partition}, offset ${number(record.offset)}`;
	return `${record.topic}: ${RECORDS[record.state]}${record.detail ? ` (${record.detail})` : ""}`;
}

function placeCard(place, id) {
	const [kind, text] = STATES[place.state];
	const { window: of, parked, scheduled, skipped } = place;
	return h("section", { class: "card" },
		h("h3", {}, "Publisher ", h("a", { href: address(["publishers", place.publisher]) }, place.publisher), `, shard ${place.shard}`),
		h("p", {}, badge(kind, place.state.replace("_", " ")), ` ${text}`),
		facts([
			of.opened_at ? ["Window opened", when(of.opened_at)] : null,
			of.settled_at ? ["Window settled", when(of.settled_at)] : null,
			place.acknowledged_at ? ["Acknowledged", when(place.acknowledged_at)] : null,
			["Record in Kafka", recordText(place.record)],
			parked ? ["Parked", [h("a", { href: address(["parked", parked.id], { publisher: place.publisher }) }, `${parked.state}, since `), when(parked.parked_at)]] : null,
			parked && parked.error ? ["Error", parked.error] : null,
			parked && parked.behind ? ["Behind", h("a", { href: address(["parked", parked.behind.id], { publisher: place.publisher }) }, parked.behind.id)] : null,
			scheduled ? ["Due", when(scheduled.due_at)] : null,
			skipped ? ["Skipped", [`by ${skipped.by} at `, when(skipped.at), `: ${skipped.reason}`]] : null]),
		h("p", {}, h("a", { href: address(["replays"], { publisher: place.publisher, ids: id }) }, "Send it once more"), " with a replay."),
		place.replays.length > 0 ? table("Replays", [
			{ title: "Replay", cell: row => h("a", { href: address(["jobs", `replay-${row.id}`]) }, row.id) },
			{ title: "To the topic", kind: "long", cell: row => row.topic }, { title: "State", cell: row => row.state.replace("_", " ") },
			{ title: "Made", cell: row => when(row.created_at) }], place.replays) : null);
}

function messageNodes(message) {
	return h("section", {},
		h("h2", {}, `Message ${message.id}`),
		facts([["Written", when(message.created_at)], ["Topic", message.topic], ["Key", message.key ?? "none"],
			["Event id", h("code", {}, message.event_id)], message.deliver_at ? ["Deliver at", when(message.deliver_at)] : null,
			message.kept ? null : ["Row", "dropped; this is its copy"]]),
		message.publishers.map(place => placeCard(place, message.id)),
		message.dead_letters.filter(letter => letter.state === "found").map(letter => h("p", {}, badge("bad", "dead letter"),
			` The sidecar ${letter.section} gave it up: ${letter.reason} (partition ${letter.partition}, offset ${number(letter.offset)})`)),
		message.headers === undefined || message.headers === null ? null : [h("h3", {}, "Headers"), h("pre", { class: "long", tabindex: "0" }, JSON.stringify(message.headers, null, 1))],
		message.payload === undefined ? null : [h("h3", {}, "Payload"), h("pre", { class: "long", tabindex: "0" }, message.payload ?? "none")]);
}

function searchedText({ by, from, to, complete }) {
	const names = { id: "id", event_id: "event id", topic_and_key: "topic and key" };
	return ["Searched by ", names[by], from ? [", from ", when(from)] : null, to ? [" until before ", when(to)] : null,
		complete ? "." : ". The time ended before the search: narrow the range, or go on with the next page."];
}

export const where = {
	title: "Where is it?",
	async render({ root, parameters, signal }) {
		await live(root, signal, async () => [
			filterForm(["where"], [await databaseField(parameters, signal), field("Id", input("id", parameters.id, { inputmode: "numeric" })),
				field("or event id", input("event_id", parameters.event_id)),
				field("or topic", input("topic", parameters.topic)), field("and key", input("key", parameters.key)),
				field("Written from", h("input", { name: "from", type: "datetime-local", step: "1", value: toLocal(parameters.from) })),
				field("until before", h("input", { name: "to", type: "datetime-local", step: "1", value: toLocal(parameters.to) }))],
			{ from: toUtc, to: toUtc }),
			h("p", { class: "small muted" }, "The event id is the header outbox-id of the record. A search by topic and key needs both times: the table has no index on keys.")], { ms: 0 });
		if (!parameters.id && !parameters.event_id && !parameters.topic)
			return;
		await live(root, signal, async () => {
			const answer = await get("/v1/messages", parameters, signal);
			return [h("p", { class: "muted" }, searchedText(answer.searched)), answer.rows.map(messageNodes),
				answer.rows.length === 0 ? h("p", {}, "No message was found there.") : null, pager(["where"], parameters, "after", answer.next)];
		});
	},
};
