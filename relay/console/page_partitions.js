// Partitions of the tables that are kept by time, and archives: what needs them, how large they are; make, drop and detach.
import { get, mayDo, post } from "./api.js";
import { dropDialog } from "./drop.js";
import { databaseField } from "./page_jobs.js";
import { address, badge, bytes, counted, exportLink, facts, field, filterForm, h, input, live, number, pager, select, table, verbDialog, when } from "./view.js";

const TABLES = ["message", "lookback", "processed", "unique_ledger"];
const STATES = {
	attached: { kind: "good", text: "Its rows are in the table." },
	restored: { kind: "warn", text: "An archive that was brought back for a while. Nothing publishes its rows again." },
	waiting: { kind: "warn", text: "It is out of the table and is not yet written to a file." },
	written: { kind: "warn", text: "Its file is written. The table of its own goes next." },
	archived: { kind: "", text: "Its rows are in a file. The command outbox-relay partition restore brings them back, on the machine that has the file." },
	loading: { kind: "warn", text: "Its rows are being brought back from the file." },
};
const KEPT = {
	retain: "it is younger than retain",
	retention: "the configuration keeps its rows, in a table of their own or in a file",
};
const NEEDED = {
	message: { unpublished: "a publisher has not published all of its rows, and they are never published then" },
	lookback: { undecided: "it has an undecided prepare" },
	processed: { window: "a consumer still needs its ids" },
	unique_ledger: { window: "a topic still needs its keys" },
};
const VERBS = {
	drop: { title: "Drop", text: "Its rows are deleted. This cannot be undone." },
	detach: { title: "Detach", text: "It becomes a table of its own, which nothing reads, archives or drops. It leaves the list." },
};

// --- the verbs --------------------------------------------------------------------------------

function madeNodes({ made }) {
	return h("ul", {}, made.map(({ table: of, from }) => h("li", {}, `${of}: `, from ? ["a partition that begins at ", when(from)] : "no partition was missing")));
}

function make(parameters, done) {
	const chosen = select("table", parameters.table, [["", "all"], ...TABLES]);
	const from = input("from", "", { placeholder: "2026-01-02T03:00:00" });
	return verbDialog({
		title: "Make partitions", verb: "Make", done,
		prepare: async () => ({ nodes: [
			h("p", {}, "Makes the partitions that are missing from now on to partitions_ahead, as a relay does by itself, or one that begins at a given time."),
			field("Table", chosen), field("From, in UTC", from, "Empty: those that are missing ahead.")] }),
		run: async reason => madeNodes(await post("/v1/partitions", {
			...(chosen.value ? { table: chosen.value } : {}), ...(from.value.trim() ? { from: from.value.trim() } : {}),
			...(parameters.postgres ? { postgres: parameters.postgres } : {}), reason })),
	});
}

function leaveList(postgres) {
	location.hash = address(["partitions"], { postgres });
}

/** What a tick may overrule, by the table of the partition. */
function forceOf({ partition }) {
	return { ...KEPT, ...NEEDED[TABLES.find(name => partition.startsWith(`${name}_`))] };
}

function drop(verb, row, postgres) {
	const { title, text } = VERBS[verb];
	return dropDialog({
		title: `${title} ${row.partition}`, verb: title, done: () => leaveList(postgres),
		path: `/v1/partitions/${encodeURIComponent(row.partition)}/drop`, order: { ...(postgres ? { postgres } : {}), detach: verb === "detach" },
		question: `${title} ${row.partition}?`, force: forceOf(row),
		shown: plan => [h("p", {}, text), facts([["Rows", h("strong", {}, `${plan.exact ? "" : "at least "}${counted(plan.rows, "row")}`)],
			["From", when(plan.from)], ["until before", when(plan.to)], ["Size", bytes(plan.bytes)]])],
		run: answer => h("p", {}, `${answer.partition} is ${answer.detach ? "detached" : "dropped"}.`),
	});
}

// --- the pages --------------------------------------------------------------------------------

/** Rows of an archive are counted, those of a partition are estimated. */
function rowsText(row) {
	if (row.rows !== undefined)
		return number(row.rows);
	return row.rows_estimated === null ? "unknown" : `about ${number(row.rows_estimated)}`;
}

function stateNode(row) {
	return badge(STATES[row.state]?.kind ?? "", row.state);
}

const columns = postgres => [
	{ title: "Partition", kind: "long", cell: row => h("a", { href: address(["partitions", row.partition], { postgres }) }, row.partition) },
	{ title: "State", cell: stateNode },
	{ title: "From", cell: row => when(row.from) },
	{ title: "until before", cell: row => when(row.to) },
	{ title: "Size", kind: "number", cell: row => bytes(row.bytes) },
	{ title: "Rows", kind: "number", cell: rowsText },
	{ title: "Needed by", kind: "long", cell: row => row.held_by || "" },
];

async function renderList({ root, parameters, signal, refresh }) {
	await live(root, signal, async () => filterForm(["partitions"], [
		await databaseField(parameters, signal),
		field("Table", select("table", parameters.table, [["", "all"], ...TABLES])),
	]), { ms: 0 });
	await live(root, signal, async () => {
		const { rows, postgres, next } = await get("/v1/partitions", parameters, signal);
		return [mayDo("operate") ? h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => make(parameters, refresh) }, "Make partitions …")) : null,
			table(`Partitions of [postgres "${postgres}"]`, columns(parameters.postgres), rows, "The table has no partition."),
			pager(["partitions"], parameters, "after", next), exportLink("partitions", parameters, "after")];
	});
}

function oneNodes(row, postgres) {
	const mayGo = ["attached", "restored"].includes(row.state) && row.from && mayDo("decide");
	const button = verb => h("button", { type: "button", class: "danger", onclick: () => drop(verb, row, postgres) }, `${VERBS[verb].title} …`);
	return h("section", { class: "card" },
		h("p", {}, stateNode(row), ` ${row.from ? STATES[row.state]?.text ?? "" : "The default partition: rows that no other partition takes."}`),
		facts([["From", when(row.from)], ["until before", when(row.to)], ["Size", bytes(row.bytes)], ["Rows", rowsText(row)],
			["Needed by", row.held_by || "nobody"], row.place ? ["Place", row.place] : null]),
		mayGo ? h("div", { class: "buttons" }, button("drop"), button("detach")) : null);
}

async function renderOne({ root, heading, path, parameters, signal }) {
	const name = path[0];
	heading.textContent = `Partition ${name}`;
	await live(root, signal, async () => {
		const { rows } = await get("/v1/partitions", { ...parameters, partition: name }, signal);
		return rows.length > 0 ? rows.map(row => oneNodes(row, parameters.postgres))
			: h("p", {}, `There is no partition ${name}: it was dropped or detached meanwhile. The `, h("a", { href: address(["audit"]) }, "audit"), " says by whom.");
	});
}

export const partitions = {
	title: "Partitions",
	render: view => (view.path.length > 0 ? renderOne(view) : renderList(view)),
};
