// Ids of the look-back that are overdue or parked, everything that is stored about one id, and decisions about them.
import { get, mayDo, post } from "./api.js";
import { add, address, badge, counted, exportLink, facts, field, filterForm, h, input, keepOnly, live, number, pager, select, table, totalsNode, verbDialog, when } from "./view.js";

const VERBS = {
	retry: { title: "Ask now", role: "operate", text: "The relay calls the business again at once, and believes its answer." },
	commit: { title: "Force commit", role: "decide", text: "The messages are published, whatever the business would answer. This cannot be undone." },
	rollback: { title: "Force rollback", role: "decide", text: "The messages are never published, whatever the business would answer. This cannot be undone." },
};
const MEANING = { overdue: "The relay calls the business again.", parked: "The relay calls no longer: an operator decides." };
const KIND = { overdue: "warn", parked: "bad", undecided: "warn", committed: "good", duplicate: "", rolled_back: "", tombstone: "" };

const FILTER = ["type", "section", "state", "service", "error"];

function filterOf(parameters) {
	return Object.fromEntries(FILTER.filter(name => parameters[name]).map(name => [name, parameters[name]]));
}

function resultNodes(verb, answer) {
	return [h("p", {}, `Done for ${counted(answer.done, "id")}.`,
		answer.left_alone > 0 ? ` ${counted(answer.left_alone, "id")} of the preview were decided or parked meanwhile, and left alone.` : null,
		answer.duplicates > 0 ? ` ${counted(answer.duplicates, "id")} wrote no message, because another message has the unique key.` : null),
	h("p", {}, "The row in the audit has the number ", h("a", { href: address(["audit"], { verb: `lookback ${verb}` }) }, String(answer.audit)), ".")];
}

/** All ids that match: the preview counts them, and its token limits the order to them. */
function operateAll(verb, filter, done) {
	return verbDialog({
		title: `${VERBS[verb].title}: all that match`, verb: VERBS[verb].title, danger: verb !== "retry", done,
		prepare: async () => {
			const preview = await post("/v1/lookback/preview", { verb, filter });
			const nodes = [h("p", {}, VERBS[verb].text),
				facts([["Match", h("strong", {}, `${preview.exact ? "" : "more than "}${counted(preview.count, "id")}`)],
					["Overdue", number(preview.states.overdue)], ["Parked", number(preview.states.parked)]]),
				table("The ids that have waited longest", [{ title: "Id", kind: "long", cell: row => row.biz_id }, { title: "Type", kind: "long", cell: row => row.biz_type },
					{ title: "Since", cell: row => when(row.since) }, { title: "Last error", kind: "long", cell: row => row.last_error || "" }], preview.sample)];
			if (preview.token === null)
				return { nothing: true, nodes: [nodes, h("p", { role: "status" }, "There are too many for one order: choose fewer by type, section, state or service.")] };
			if (preview.count === "0")
				return { nothing: true, nodes: [nodes, h("p", { role: "status" }, "Nothing matches.")] };
			return { nodes, token: preview.token };
		},
		run: async (reason, { token }) => resultNodes(verb, await post("/v1/lookback/operate", { verb, filter, token, reason })),
	});
}

function operate(verb, ids, done) {
	const shown = ids.slice(0, 10).map(([type, id]) => h("li", {}, `${type} `, h("code", {}, id)));
	return verbDialog({
		title: `${VERBS[verb].title}: ${counted(ids.length, "id")}`, verb: VERBS[verb].title, danger: verb !== "retry", done,
		prepare: async () => ({
			nodes: [h("p", {}, VERBS[verb].text), h("ul", {}, shown, ids.length > 10 ? h("li", {}, `and ${number(ids.length - 10)} more`) : null)],
		}),
		run: async reason => resultNodes(verb, await post("/v1/lookback/operate", { verb, ids, reason })),
	});
}

function verbButtons(text, act) {
	return Object.keys(VERBS).filter(verb => mayDo(VERBS[verb].role)).map(verb =>
		h("button", { type: "button", class: verb === "retry" ? "" : "danger", onclick: () => act(verb) }, text(VERBS[verb].title)));
}

// --- the list ---------------------------------------------------------------------------------

function idLink(row) {
	return h("a", { href: address(["lookback", row.biz_type, row.biz_id]) }, row.biz_id);
}

function answerText(row) {
	return [row.last_result, row.last_error].filter(Boolean).join(": ");
}

function nameOfRow(row) {
	return JSON.stringify([row.biz_type, row.biz_id]);
}

function columns(chosen, changed) {
	const box = row => h("input", {
		type: "checkbox", "aria-label": `Choose ${row.biz_type} ${row.biz_id}`, checked: chosen.has(nameOfRow(row)),
		onchange: event => {
			const name = nameOfRow(row);
			event.target.checked ? chosen.add(name) : chosen.delete(name);
			changed();
		},
	});
	return [
		mayDo("operate") || mayDo("decide") ? { title: h("span", { class: "hidden" }, "Chosen"), cell: box } : null,
		{ title: "Id", kind: "long", cell: idLink },
		{ title: "Type", kind: "long", cell: row => row.biz_type },
		{ title: "State", cell: row => badge(KIND[row.state], row.state) },
		{ title: "Since", cell: row => when(row.since) },
		{ title: "Calls", kind: "number", cell: row => number(row.attempts) },
		{ title: "Next call", cell: row => (row.claimed ? "now" : when(row.next_check)) },
		{ title: "Last answer of the business", kind: "long", cell: answerText },
		{ title: "Service", kind: "long", cell: row => row.check_service || row.check_url || "" },
	].filter(Boolean);
}

/** chosen: the names of rows. They stay when the list is loaded again, as long as they are in it. */
function listNodes(parameters, answer, chosen, refresh) {
	const buttons = h("div", { class: "buttons" });
	const waits = parameters.state === "undecided";
	const changed = () => {
		buttons.replaceChildren();
		if (chosen.size > 0)
			add(buttons, verbButtons(title => `${title} (${number(chosen.size)})`, verb => operate(verb, [...chosen].map(name => JSON.parse(name)), refresh)));
		else if (answer.rows.length > 0 && !waits) // an order by a filter is about overdue and parked ids
			add(buttons, verbButtons(title => `${title}: all that match …`, verb => operateAll(verb, filterOf(parameters), refresh)));
	};
	keepOnly(chosen, answer.rows.map(nameOfRow));
	changed();
	return [waits ? null : totalsNode(["lookback"], parameters, answer, ["overdue", "parked"], MEANING, "ids"), buttons,
		table(waits ? "Undecided ids that are not due yet" : "Overdue and parked ids", columns(chosen, changed), answer.rows,
			waits ? "No id of this page is undecided." : "No id is overdue or parked."),
		pager(["lookback"], parameters, "after", answer.next), exportLink("lookback", parameters, "after")];
}

async function renderList({ root, parameters, signal, refresh }) {
	const chosen = new Set();
	root.append(filterForm(["lookback"], [
		field("Type", input("type", parameters.type)), field("Section", input("section", parameters.section)),
		field("State", select("state", parameters.state, [["", "overdue or parked"], "overdue", "parked", "undecided"])),
		field("Service", input("service", parameters.service)), field("Error has", input("error", parameters.error)),
	]), idForm());
	await live(root, signal, async () => listNodes(parameters, await get("/v1/lookback", { ...parameters, limit: 100, totals: parameters.after || parameters.state === "undecided" ? "" : "yes" }, signal), chosen, refresh));
}

function idForm() {
	return h("form", {
		class: "filters",
		onsubmit: event => {
			event.preventDefault();
			const { one_type: type, one_id: id } = event.target.elements;
			location.hash = address(["lookback", type.value.trim(), id.value.trim()]);
		},
	}, field("Type of one id", input("one_type", "", { required: true })), field("The id", input("one_id", "", { required: true })),
	h("div", { class: "buttons" }, h("button", { type: "submit" }, "Show the id")));
}

// --- one id -----------------------------------------------------------------------------------

function decisionText(decision) {
	if (!decision)
		return "none yet";
	return [`${decision.decision} by ${decision.by || decision.source} at `, when(decision.at), decision.reason ? `: ${decision.reason}` : null,
		decision.duplicate ? ", as a duplicate" : null];
}

function prepareCard(prepare) {
	const overdue = prepare.overdue;
	return h("section", { class: "card" }, h("h2", {}, "Prepared ", when(prepare.prepared_at)),
		facts([["Section", prepare.section], ["Topic", prepare.topic],
			["Record", `partition ${prepare.source.partition}, offset ${number(prepare.source.offset)}`],
			["Decision", decisionText(prepare.decision)],
			["Event id", prepare.event_id ? h("code", {}, prepare.event_id) : ""],
			["Service", prepare.check_service || prepare.check_url || "that of the section"],
			["First call", when(prepare.check_at)], ["Expires", when(prepare.expires_at)],
			prepare.unique ? ["Unique key", prepare.unique.unique_key] : null,
			overdue ? ["Calls", `${number(overdue.attempts)}, of which ${number(overdue.pendings)} answered "pending"`] : null,
			overdue ? ["Last answer", answerText(overdue)] : null,
			overdue ? ["Next call", overdue.claimed ? "now" : when(overdue.next_check)] : null]));
}

function oneNodes(id, refresh) {
	const open = ["undecided", "overdue", "parked"].includes(id.state);
	return [
		h("p", {}, badge(KIND[id.state], id.state.replace("_", " "))),
		open ? h("div", { class: "buttons" }, verbButtons(title => title, verb => operate(verb, [[id.biz_type, id.biz_id]], refresh))) : null,
		id.prepares.map(prepareCard),
		id.tombstones.length > 0 ? [h("h2", {}, "Decisions that came before their prepare"), table("Decisions before the prepare", [
			{ title: "Decision", cell: row => row.decision }, { title: "Time", cell: row => when(row.at) },
			{ title: "Record", cell: row => `partition ${row.source.partition}, offset ${number(row.source.offset)}` }], id.tombstones)] : null,
		id.conflicts.length > 0 ? [h("h2", {}, "Conflicts"), table("Conflicts", [
			{ title: "Time", cell: row => when(row.at) }, { title: "Kept", kind: "long", cell: row => row.kept },
			{ title: "Refused", kind: "long", cell: row => row.refused }, { title: "Source", cell: row => row.source },
			{ title: "Who", cell: row => row.who || "" }], id.conflicts)] : null,
	];
}

async function renderOne({ root, heading, path, signal, refresh }) {
	const [type, ...id] = path;
	heading.textContent = `${type} ${id.join("/")}`;
	await live(root, signal, async () =>
		oneNodes(await get(`/v1/lookback/${encodeURIComponent(type)}/${id.map(encodeURIComponent).join("/")}`, {}, signal), refresh));
}

export const lookback = {
	title: "Look-back",
	render: view => (view.path.length > 1 ? renderOne(view) : renderList(view)),
};
