// Scheduled messages, those that are due first.
import { get } from "./api.js";
import { address, exportLink, field, filterForm, h, input, live, pager, select, table, toLocal, toUtc, when } from "./view.js";
import { publisherNames } from "./page_publishers.js";

const COLUMNS = [
	{ title: "Number", kind: "number", cell: row => h("a", { href: address(["where"], { id: row.id }) }, row.id) },
	{ title: "Due", cell: row => when(row.deliver_at) },
	{ title: "Topic", kind: "long", cell: row => row.topic },
	{ title: "Key", kind: "long", cell: row => row.key ?? "none" },
	{ title: "Written", cell: row => when(row.created_at) },
	{ title: "Event id", kind: "long", cell: row => h("code", {}, row.event_id) },
];

export const scheduled = {
	title: "Scheduled",
	async render({ root, parameters, signal }) {
		await live(root, signal, async () => {
			const names = await publisherNames(signal);
			parameters.publisher = parameters.publisher || names[0] || "";
			return filterForm(["scheduled"], [
				field("Publisher", select("publisher", parameters.publisher, names)),
				field("Topic", input("topic", parameters.topic)), field("Key", input("key", parameters.key)),
				field("Due from", h("input", { name: "from", type: "datetime-local", step: "1", value: toLocal(parameters.from) })),
				field("until before", h("input", { name: "to", type: "datetime-local", step: "1", value: toLocal(parameters.to) })),
			], { from: toUtc, to: toUtc });
		}, { ms: 0 });
		if (parameters.publisher)
			await live(root, signal, async () => {
				const answer = await get("/v1/scheduled", { ...parameters, limit: 50 }, signal);
				const empty = answer.next ? "No message of this part of the list matches; the next page goes on." : "No scheduled message matches.";
				return [table(`Scheduled messages of ${answer.publisher}`, COLUMNS, answer.rows, empty), pager(["scheduled"], parameters, "after", answer.next),
					exportLink("scheduled", parameters, "after")];
			});
	},
};
