// The dedup stores of the [deliver] sections: what they were planned for, and what the process observes.
import { get } from "./api.js";
import { badge, bytes, duration, fill, facts, h, live, number, share } from "./view.js";

function rateNode(section) {
	if (section.observed_rate === null)
		return "unknown";
	const target = section.planned?.target_rate;
	const late = target !== null && target !== undefined && section.observed_rate > target;
	return [share(section.observed_rate), late ? [" ", badge("warn", "above the target")] : null];
}

function plannedFacts(planned) {
	return [["Store", planned.lossy ? `${planned.store}, lossy` : planned.store], ["Planned ids", number(planned.ids)],
		planned.target_rate === null ? null : ["Target rate of false positives", share(planned.target_rate)],
		planned.window_ms === "0" ? null : ["Window", `${duration(planned.window_ms)} in ${number(planned.slices)} slices`],
		planned.planned_bytes === "0" ? null : ["Planned memory of a partition", bytes(planned.planned_bytes)]];
}

function dedupCard(section) {
	const observed = [["Observed rate of false positives", rateNode(section)], ["Further filters, for more ids than planned", number(section.sub_slices)],
		["Memory", bytes(section.memory_bytes)], ["Disk", bytes(section.disk_bytes)], ["Duplicates since the start", number(section.duplicates)]];
	return h("section", { class: "card" },
		h("h2", {}, section.section),
		section.alarms !== null && section.alarms !== "0" ? h("p", {}, badge("bad", "alarm"), ` ${number(section.alarms)} filters have too many false positives: raise ids or rate in the dedup line.`) : null,
		section.planned ? facts([...plannedFacts(section.planned), ...(section.runs ? observed : [])]) : h("p", { class: "muted" }, "The section has no dedup line: copies are not recognised."),
		section.runs ? null : h("p", { class: "muted" }, "It runs in another process, which has its figures."));
}

export const dedup = {
	title: "Dedup",
	async render({ root, signal }) {
		const process = h("code", {});
		root.append(h("p", { class: "muted" }, "The figures are those of the process that answered, ", process, "."));
		await live(root, signal, async () => {
			const { source, sections } = await get("/v1/dedup", {}, signal);
			fill(process, source);
			return sections.length > 0 ? sections.map(dedupCard) : h("p", { class: "muted" }, "The configuration has no [deliver] section that your token may see.");
		}, { ms: 5000, kind: "cards" });
	},
};
