// What operators did, the newest first.
import { get } from "./api.js";
import { exportLink, field, filterForm, h, input, live, pager, table, when } from "./view.js";

/** {"ids": ["1"], "state": "dead"} as "ids 1, state dead" */
function targetText(target) {
	if (target === null || typeof target !== "object")
		return String(target ?? "");
	return Object.entries(target).map(([name, value]) =>
		`${name} ${value !== null && typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
}

const COLUMNS = [
	{ title: "Number", kind: "number", cell: row => row.id },
	{ title: "Time", cell: row => when(row.at) },
	{ title: "Who", cell: row => (row.caller ? [row.caller, h("small", {}, ` as ${row.who}`)] : row.who) },
	{ title: "Verb", cell: row => row.verb },
	{ title: "Publisher", cell: row => row.publisher || "" },
	{ title: "Target", kind: "long", cell: row => targetText(row.target) },
	{ title: "Reason", kind: "long", cell: row => row.reason },
];

export const audit = {
	title: "Audit",
	async render({ root, parameters, signal }) {
		root.append(filterForm(["audit"], [
			field("Verb", input("verb", parameters.verb, { placeholder: "retry" })),
			field("Who", input("who", parameters.who, { placeholder: "a caller or a database user" })),
			parameters.postgres ? input("postgres", parameters.postgres, { type: "hidden" }) : null,
		]));
		await live(root, signal, async () => {
			const answer = await get("/v1/audit", { ...parameters, limit: 50 }, signal);
			return [table("Actions of operators", COLUMNS, answer.rows, "No action matches."),
				pager(["audit"], parameters, "before", answer.next), exportLink("audit", parameters, "before")];
		});
	},
};
