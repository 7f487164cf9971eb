// Dead letters of the sidecars: list, and send back chosen ones or all that match.
import { get, mayDo, post } from "./api.js";
import { jobProgress } from "./page_jobs.js";
import { add, address, badge, counted, exportLink, facts, field, filterForm, h, input, keepOnly, live, number, pager, table, toLocal, toUtc, verbDialog, when } from "./view.js";

const FILTER = ["id", "key", "topic", "reason", "from", "to"];

function filterOf(parameters) {
	return Object.fromEntries(FILTER.filter(name => parameters[name]).map(name => [name, parameters[name]]));
}

function sampleTable(rows) {
	return table("The first dead letters", [{ title: "Message", kind: "long", cell: row => row.id }, { title: "Topic", kind: "long", cell: row => row.topic || "" },
		{ title: "Reason", kind: "long", cell: row => row.reason || "" }], rows);
}

/** A process without a database has no jobs: a request sends at most some thousands, and is repeated until none is left. */
async function redriveAll(order, progress) {
	let sent = 0n;
	for (;;) {
		const answer = await post("/v1/dead-letters/redrive", order);
		if (answer.job)
			return answer;
		sent += BigInt(answer.sent);
		if (answer.error || answer.left === "0")
			return { ...answer, sent };
		progress(sent, answer.left);
	}
}

function redriveDialog(section, chosen, count, done) {
	const progress = h("p", { role: "status" });
	return verbDialog({
		title: `Send dead letters of ${section} back`, verb: "Send back", done,
		prepare: async () => {
			const text = h("p", {}, "They go back to their topics, and the sidecar delivers them again. Dead letters that come later are left alone.");
			if (chosen.places)
				return { nodes: [text, h("p", {}, `${counted(count, "dead letter")} chosen.`), progress] };
			const preview = await post("/v1/dead-letters/preview", { section, ...chosen });
			const nodes = [text, facts([["Match", h("strong", {}, `${preview.exact ? "" : "more than "}${counted(preview.count, "dead letter")}`)],
				preview.gone_before !== "0" ? ["Went back before", counted(preview.gone_before, "dead letter")] : null]), sampleTable(preview.sample), progress];
			return preview.count === "0" ? { nothing: true, nodes } : { nodes, token: preview.token };
		},
		run: async (reason, { token }) => {
			const answer = await redriveAll({ section, ...chosen, ...(token ? { token } : {}), reason }, (sent, left) => {
				progress.textContent = `${number(sent)} went back, ${number(left)} are left …`;
			});
			if (answer.job)
				return [h("p", {}, "A relay begins within seconds, and continues when this page is closed."), jobProgress(answer.job, ""),
					h("p", {}, "It can be followed and cancelled as the job ", h("a", { href: address(["jobs", answer.job]) }, answer.job), ".")];
			return [h("p", {}, `${counted(answer.sent, "dead letter")} went back.`, answer.error ? ` Then: ${answer.error}. ${number(answer.left)} are left; send them back again later.` : null),
				answer.audit ? h("p", {}, "The row in the audit has the number ", h("a", { href: address(["audit"]) }, answer.audit), ".") : null];
		},
	});
}

function placeOf(row) {
	return `${row.partition}:${row.offset}`;
}

function asked(parameters) {
	return { ...parameters, payload: mayDo("payload") ? "yes" : "" };
}

/** places: of the chosen ones. They stay when the list is loaded again, as long as they are in it. */
function listNodes(parameters, answer, places, refresh) {
	const buttons = h("div", { class: "buttons" });
	const changed = () => {
		buttons.replaceChildren();
		if (!mayDo("operate"))
			return;
		if (places.size > 0)
			add(buttons, [h("button", { type: "button", onclick: () => redriveDialog(answer.section, { places: [...places] }, places.size, refresh) }, `Send the ${number(places.size)} chosen back`)]);
		else if (answer.rows.length > 0)
			add(buttons, [h("button", { type: "button", onclick: () => redriveDialog(answer.section, { filter: filterOf(parameters) }, 0, refresh) }, "Send all that match back …")]);
	};
	const box = row => h("input", {
		type: "checkbox", "aria-label": `Choose dead letter ${placeOf(row)}`, checked: places.has(placeOf(row)),
		onchange: event => {
			event.target.checked ? places.add(placeOf(row)) : places.delete(placeOf(row));
			changed();
		},
	});
	keepOnly(places, answer.rows.map(placeOf));
	changed();
	const columns = [
		mayDo("operate") ? { title: h("span", { class: "hidden" }, "Chosen"), cell: box } : null,
		{ title: "Place", cell: placeOf },
		{ title: "Message", kind: "long", cell: row => row.id },
		{ title: "Key", kind: "long", cell: row => row.key ?? "" },
		{ title: "Topic", kind: "long", cell: row => row.topic || "" },
		{ title: "Reason", kind: "long", cell: row => row.reason || "" },
		{ title: "Attempts", kind: "number", cell: row => row.attempts || "" },
		{ title: "Time", cell: row => when(row.time) },
		{ title: "State", cell: row => (row.redriven ? badge("good", "went back") : badge("bad", "dead")) },
		mayDo("payload") ? { title: "Payload", kind: "long", cell: row => (row.payload === undefined ? "" : h("code", {}, row.payload ?? "none")) } : null,
	].filter(Boolean);
	const empty = answer.next ? "No dead letter of this part of the topic matches; the next page goes on." : "No dead letter matches.";
	return [buttons, table(`Dead letters of ${answer.section}`, columns, answer.rows, empty), pager(["dead-letters"], parameters, "after", answer.next),
		exportLink("dead-letters", asked(parameters), "after"), h("p", { class: "small muted" }, `Read from the topic ${answer.topic}.`)];
}

export const deadLetters = {
	title: "Dead letters",
	async render({ root, parameters, signal, refresh }) {
		const places = new Set();
		root.append(filterForm(["dead-letters"], [
			field("Section", input("section", parameters.section, { placeholder: "of [deliver]" })),
			field("Message", input("id", parameters.id)), field("Key", input("key", parameters.key)), field("Topic", input("topic", parameters.topic)),
			field("Reason has", input("reason", parameters.reason)),
			field("From", h("input", { name: "from", type: "datetime-local", step: "1", value: toLocal(parameters.from) })),
			field("until before", h("input", { name: "to", type: "datetime-local", step: "1", value: toLocal(parameters.to) })),
		], { from: toUtc, to: toUtc }));
		await live(root, signal, async () =>
			listNodes(parameters, await get("/v1/dead-letters", { ...asked(parameters), limit: 50 }, signal), places, refresh));
	},
};
