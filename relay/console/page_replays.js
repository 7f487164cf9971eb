// Replays: messages of the table that are sent once more, chosen here, and the replays that there are.
import { get, mayDo, post } from "./api.js";
import { address, counted, exportLink, facts, field, filterForm, h, input, live, pager, select, table, toLocal, toUtc, verbDialog } from "./view.js";
import { filterText, jobProgress, jobTable } from "./page_jobs.js";

const PAGE = "replays";

/** The members of an order, of the parameters of the address. */
function orderOf({ publisher, ids, topic, key, event_id: event, state, from, to, target, rate }) {
	const filter = { ids, topic, key, "event-id": event, state, created: from || to ? `${from || ""}..${to || ""}` : "" };
	return {
		publisher, filter: Object.fromEntries(Object.entries(filter).filter(([, value]) => value)),
		...(target ? { to: target } : {}), ...(rate ? { rate: Number(rate) } : {}),
	};
}

function previewNodes(order, preview) {
	return [
		h("p", {}, "The relay sends these messages once more, with the header outbox-replay. Consumers that drop duplicates must let them pass."),
		facts([["Selection", filterText(order.filter)], ["Sends", h("strong", {}, counted(preview.count, "message"))],
			["Numbers", `${preview.from_id} to ${preview.to_id}`], ["Rate", order.rate ? `at most ${counted(order.rate, "message")} a second` : "as fast as Kafka takes them"]]),
		table("Topics of the replay", [
			{ title: "Topic", kind: "long", cell: row => row.topic }, { title: "Goes to", kind: "long", cell: row => row.to },
			{ title: "Messages", kind: "number", cell: row => counted(row.count, "message") }], preview.topics),
	];
}

function begin(order, postgres, done) {
	return verbDialog({
		title: `Replay messages of ${order.publisher}`, verb: "Replay", done,
		prepare: async () => {
			const preview = await post("/v1/replays/preview", order);
			return { nodes: previewNodes(order, preview), token: preview.token };
		},
		run: async (reason, { token }) => {
			const { job, count } = await post("/v1/replays", { ...order, token, reason });
			return [h("p", {}, `The replay of ${counted(count, "message")} is stored. A relay of the publisher begins it within seconds, and continues it when this page is closed.`),
				jobProgress(job, postgres),
				h("p", {}, "It can be followed and cancelled as the job ", h("a", { href: address(["jobs", job], { postgres }) }, job), ".")];
		},
	});
}

function form(parameters, publishers) {
	return [filterForm([PAGE], [
		field("Publisher", select("publisher", parameters.publisher, publishers.map(publisher => publisher.name))),
		field("Topic", input("topic", parameters.topic)), field("Key", input("key", parameters.key)),
		field("Ids", input("ids", parameters.ids, { placeholder: "10..20" })), field("Event id", input("event_id", parameters.event_id)),
		field("Written from", h("input", { name: "from", type: "datetime-local", step: "1", value: toLocal(parameters.from) })),
		field("until before", h("input", { name: "to", type: "datetime-local", step: "1", value: toLocal(parameters.to) })),
		field("State", select("state", parameters.state, [["", "any"], "published"])),
		field("To the topic", input("target", parameters.target, { placeholder: "its own" })),
		field("Messages a second", input("rate", parameters.rate, { type: "number", min: "1", max: "10000000" })),
	], { from: toUtc, to: toUtc })];
}

/** What the address chooses: the button counts it before anything is sent. */
function choiceNodes(parameters, postgres, refresh) {
	const order = orderOf(parameters);
	if (!mayDo("operate"))
		return null;
	return h("div", { class: "buttons" },
		h("button", { type: "button", onclick: () => begin(order, postgres, refresh) }, "Replay all that match …"));
}

export const replays = {
	title: "Replays",
	async render({ root, parameters, signal, refresh }) {
		let postgres = "";
		await live(root, signal, async () => {
			const { publishers } = await get("/v1/publishers", {}, signal);
			const known = publishers.filter(publisher => publisher.configured);
			if (known.length === 0)
				return h("p", { class: "muted" }, "There is no publisher here that your token may see.");
			parameters.publisher = parameters.publisher || known[0].name;
			postgres = (known.find(publisher => publisher.name === parameters.publisher) || known[0]).postgres;
			return [form(parameters, known), choiceNodes(parameters, postgres, refresh)];
		}, { ms: 0 });
		if (!parameters.publisher)
			return;
		await live(root, signal, async () => {
			const wanted = { postgres, publisher: parameters.publisher, after: parameters.after };
			const answer = await get("/v1/replays", { ...wanted, limit: 50 }, signal);
			return [h("h2", {}, `Replays of ${parameters.publisher}`), jobTable("Replays", answer, "There is no replay of this publisher."),
				pager([PAGE], parameters, "after", answer.next), exportLink("replays", wanted, "after")];
		}, { ms: 5000 });
	},
};
