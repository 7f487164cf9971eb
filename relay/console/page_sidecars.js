// The [deliver] sections of the process that answers, with their figures, and those of other processes: pause, resume, reload of the rules.
import { get, mayDo, post } from "./api.js";
import { processNode } from "./page_publishers.js";
import { onEvents } from "./stream.js";
import { address, badge, facts, fill, h, live, mayPass, number, verbDialog, when } from "./view.js";

const VERBS = {
	pause: { title: "Pause", text: "Every process with the same database takes no new messages of the section until somebody resumes it, also after a restart. A process without a database pauses only itself, until it ends." },
	resume: { title: "Resume", text: "The processes that were paused take messages of the section again, and blocked partitions try their message once more." },
	reload_rules: { title: "Reload the rules", text: "Only the process that answers reads the rules of the section again. Wrong rules are refused, and the old ones stay." },
};

function operate(section, verb, done) {
	const { title, text } = VERBS[verb];
	return verbDialog({
		title: `${title}: ${section}`, verb: title, done,
		prepare: async () => ({ nodes: h("p", {}, text) }),
		run: async reason => {
			const answer = await post("/v1/deliver/operate", { verb, section, reason });
			return h("p", {}, "rules" in answer ? `${answer.section} has ${number(answer.rules)} rules now in the process ${answer.source}.`
				: `${answer.section} is ${answer.paused ? "paused" : "running"} in ${answer.source === "database" ? "every process" : `the process ${answer.source} alone`}.`);
		},
	});
}

function stateBadges(section) {
	return [section.works ? badge("good", "works") : badge("bad", "does not work"), " ",
		section.paused ? [badge("warn", "paused"), section.paused_at ? [" since ", when(section.paused_at)] : null] : null, " ",
		section.breaker !== "closed" ? badge("bad", `circuit breaker ${section.breaker}`) : null];
}

function sectionCard(section, done) {
	const button = verb => h("button", { type: "button", onclick: () => operate(section.section, verb, done) }, VERBS[verb].title);
	return h("section", { class: "card" },
		h("h2", {}, section.section), h("p", {}, stateBadges(section)),
		section.error ? h("p", { class: "long" }, badge("bad", "error"), ` ${section.error}`) : null,
		section.last_error ? h("p", { class: "long" }, badge("warn", "last error"), ` ${section.last_error}`) : null,
		facts([["Assigned partitions", number(section.partitions)], ["Blocked partitions", number(section.blocked)],
			["Messages in memory", number(section.messages)], ["In progress", number(section.in_progress)],
			["Handled since the start", number(section.handled)], ["Dead letters since the start", h("a", { href: address(["dead-letters"], { section: section.section }) }, number(section.dead_letters))]]),
		mayDo("operate") ? h("div", { class: "buttons" }, button(section.paused ? "resume" : "pause"), button("reload_rules")) : null);
}

// --- other processes --------------------------------------------------------------------------

function processNodes(processes) {
	if (processes.length === 0)
		return h("p", {}, "No process has run it in the last ten minutes.");
	return h("ul", { "aria-label": "Processes" }, processes.map(({ name, url, seen_at: seen }) => h("li", {}, processNode(name, url, ["sidecars"]), ", seen ", when(seen))));
}

function knownCard({ section, paused_at: paused, processes }, done) {
	const verb = paused ? "resume" : "pause";
	return h("section", { class: "card" },
		h("h3", {}, section), paused ? h("p", {}, badge("warn", "paused"), " since ", when(paused)) : null,
		processNodes(processes),
		mayDo("operate") ? h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => operate(section, verb, done) }, `${VERBS[verb].title} ${section}`)) : null);
}

/** The database knows them. The figures of this process are good without them, and have a problem box of their own. */
async function knownNodes(signal, done) {
	try {
		const { sections, known } = await get("/v1/deliver", { all: "yes" }, signal);
		const here = sections.map(({ section }) => section);
		const others = known.filter(({ section }) => !here.includes(section));
		return others.length === 0 ? [] : [h("h2", {}, "In other processes"), h("div", { class: "cards" }, others.map(each => knownCard(each, done)))];
	} catch (problem) {
		if (!mayPass(problem))
			throw problem;
		return h("p", {}, badge("warn", "sections are missing"), ` Those of other processes are not shown: ${problem.title}.`);
	}
}

export const sidecars = {
	title: "Sidecars",
	async render({ root, signal, refresh }) {
		const process = h("code", {});
		root.append(h("p", { class: "muted" }, "The [deliver] sections of the process that answered, ", process, ". Another process has figures of its own: below are the sections that run only there."));
		onEvents(["deliver"], signal);
		await live(root, signal, async () => {
			const { source, sections } = await get("/v1/deliver", {}, signal);
			fill(process, source);
			return sections.length > 0 ? sections.map(section => sectionCard(section, refresh)) : h("p", { class: "muted" }, "This process runs no [deliver] section that your token may see.");
		}, { ms: 5000, kind: "cards" });
		await live(root, signal, () => knownNodes(signal, refresh), { ms: 5000 });
	},
};
