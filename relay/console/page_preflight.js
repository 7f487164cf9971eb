// The findings of doctor, the worst first, with their fixes.
import { get } from "./api.js";
import { badge, exportLink, h, live, table, when } from "./view.js";

const ORDER = ["fail", "unsafe", "warn", "info", "ok"];
const REFRESH_MS = 60000;
const KINDS = { fail: "bad", unsafe: "bad", warn: "warn", info: "good", ok: "good" };

const COLUMNS = [
	{ title: "Result", cell: finding => badge(KINDS[finding.severity], finding.severity) },
	{ title: "Place", kind: "long", cell: finding => finding.place },
	{ title: "Finding", kind: "long", cell: finding => finding.finding },
	{ title: "Fix", kind: "long", cell: finding => finding.cure || "" },
];

export const preflight = {
	title: "Pre-flight",
	async render({ root, signal, refresh }) {
		root.append(h("p", { class: "muted" }, "The checks of outbox-relay doctor, made by the process that answered. They may take some seconds."));
		await live(root, signal, async () => {
			const report = await get("/v1/preflight", {}, signal);
			const findings = [...report.findings].sort((one, other) => ORDER.indexOf(one.severity) - ORDER.indexOf(other.severity));
			return [h("p", {}, report.failed ? badge("bad", "a check failed") : badge("good", "nothing failed"), " Checked at ", when(report.checked_at), ". ",
				h("button", { type: "button", onclick: refresh }, "Check again")),
			report.complete ? null : h("p", {}, badge("warn", "incomplete"), " Some checks could not be made."),
			table("Findings of the checks", COLUMNS, findings), exportLink("preflight", {}, null)];
		}, { ms: REFRESH_MS });
	},
};
