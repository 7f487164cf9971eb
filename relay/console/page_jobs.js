// Retries, skips, replays, redrives and verifications: progress, rate, time left; cancel and resume.
import { get, mayDo, post } from "./api.js";
import { address, badge, duration, exportLink, facts, field, filterForm, fill, h, live, mayPass, number, pager, problemBox, select, table, verbDialog, when } from "./view.js";

const KIND = { running: "warn", waiting: "warn", interrupted: "bad", failed: "bad", cancelled: "", finished: "good" };
const OPEN = ["running", "waiting", "interrupted"];
const REFRESH_MS = 1000, RETRY_MS = 3000;

export function filterText(filter) {
	const terms = Object.entries(filter).map(([name, value]) => `${name} ${value !== null && typeof value === "object" ? JSON.stringify(value) : value}`);
	return terms.length > 0 ? terms.join(", ") : "everything";
}

function progressBar(job) {
	if (job.total === null || job.total === "0")
		return null;
	return h("progress", { max: 1, value: Math.min(1, Number(job.done) / Number(job.total)), "aria-label": `Progress of ${job.id}` });
}

const FINDINGS = { lost: "lost", phantom: "phantom", altered: "altered", out_of_order: "out of order", unequal: "unequal duplicates", duplicates: "duplicates" };

/** What a verification found; only the page of the job has the numbers. */
function findingsText(job) {
	const found = Object.entries(FINDINGS).filter(([name]) => job.result?.[name] > 0).map(([name, title]) => `${number(job.result[name])} ${title}`);
	const figures = found.length > 0 ? found.join(", ") : null;
	return job.clean ? `nothing found${figures ? ` (allowed: ${figures})` : ""}` : figures ?? "something was found";
}

function amountText(job) {
	if (job.kind === "verify")
		return `${number(job.done)}${job.total === null ? "" : ` of ${job.exact ? "" : "about "}${number(job.total)}`} rows and records`;
	const messages = Number(job.total ?? job.done) === 1 ? "message" : "messages";
	return `${number(job.done)}${job.total === null ? "" : ` of ${job.exact ? "" : "at least "}${number(job.total)}`} ${messages}`;
}

function progressText(job) {
	const parts = [amountText(job)];
	if (job.clean !== null)
		parts.push(findingsText(job));
	if (job.published !== null)
		parts.push(`${number(job.published)} published`);
	if (job.refused !== null && job.refused !== "0")
		parts.push(`${number(job.refused)} refused again`);
	if (job.changed !== null && job.changed !== "0")
		parts.push(`${number(job.changed)} left alone, because they changed`);
	if (job.per_second !== null && job.state === "running")
		parts.push(`${number(Math.round(job.per_second))} a second`);
	if (job.seconds_left !== null && job.state === "running")
		parts.push(`${duration(job.seconds_left * 1000)} left`);
	return parts.join(" · ");
}

// --- the verbs --------------------------------------------------------------------------------

const VERBS = {
	cancel: { title: "Cancel the job", text: "The job stops within seconds. What was done stays done." },
	resume: { title: "Resume the job", text: "The job goes on where it was. The same messages are left alone as before." },
};

function operate(verb, job, postgres, done) {
	return verbDialog({
		title: `${VERBS[verb].title}: ${job.id}`, verb: VERBS[verb].title, danger: verb === "cancel", done,
		prepare: async () => ({ nodes: [h("p", {}, job.kind === "verify" && verb === "resume" ? "The verification begins again." : VERBS[verb].text), h("p", {}, progressText(job))] }),
		run: async reason => {
			await post(`/v1/jobs/${encodeURIComponent(job.id)}/${verb}`, { postgres, reason });
			return h("p", {}, verb === "cancel" ? "The job is being cancelled." : "The job goes on.");
		},
	});
}

function verbButtons(job, postgres, done) {
	if (!mayDo(job.kind === "skip" ? "decide" : "operate"))
		return null;
	const button = verb => h("button", { type: "button", class: verb === "cancel" ? "danger" : "", onclick: () => operate(verb, job, postgres, done) }, VERBS[verb].title);
	return h("div", { class: "buttons" },
		OPEN.includes(job.state) ? button("cancel") : null,
		["interrupted", "cancelled"].includes(job.state) || (job.state === "failed" && ["replay", "redrive", "verify"].includes(job.kind)) ? button("resume") : null);
}

/** The progress of a job, until it has ended or its dialog or page is left. */
export function jobProgress(id, postgres) {
	const place = h("div", { class: "progress", role: "status" });
	let failed = false;
	const again = ms => setTimeout(() => { if (place.isConnected) show(); }, ms);
	const show = async () => {
		try {
			const job = await get(`/v1/jobs/${encodeURIComponent(id)}`, { postgres });
			failed = false;
			fill(place, progressBar(job), h("p", {}, badge(KIND[job.state], job.state), ` ${progressText(job)}`));
			if (OPEN.includes(job.state))
				again(REFRESH_MS);
		} catch (problem) {
			if (!failed)
				fill(place, problemBox(problem, show));
			failed = true;
			if (mayPass(problem))
				again(RETRY_MS);
		}
	};
	show();
	return place;
}

// --- the pages --------------------------------------------------------------------------------

const columns = postgres => [
	{ title: "Job", cell: job => h("a", { href: address(["jobs", job.id], { postgres }) }, job.id) },
	{ title: "Of", cell: job => job.publisher ?? `the sidecar ${job.section}` },
	{ title: "State", cell: job => badge(KIND[job.state], job.state) },
	{ title: "Progress", kind: "long", cell: job => [progressBar(job), h("div", {}, progressText(job))] },
	{ title: "Who", cell: job => job.caller || job.who || "" },
	{ title: "Reason", kind: "long", cell: job => job.reason || "" },
	{ title: "Begun", cell: job => when(job.begun_at) },
];

export function jobTable(caption, answer, empty) {
	return table(caption, columns(answer.postgres), answer.rows, empty);
}

/** A choice of the database, where there are several. */
export async function databaseField(parameters, signal) {
	const { postgres } = await get("/v1/publishers", {}, signal);
	const names = postgres.map(database => database.name);
	parameters.postgres = parameters.postgres || (names.length > 1 ? names[0] : "");
	return names.length > 1 ? field("Database", select("postgres", parameters.postgres, names)) : null;
}

async function renderList({ root, parameters, signal }) {
	await live(root, signal, async () => filterForm(["jobs"], [
		await databaseField(parameters, signal),
		field("Kind", select("kind", parameters.kind, [["", "any"], "retry", "skip", "replay", "redrive", "verify"])),
		field("Jobs", select("open", parameters.open, [["", "all"], ["yes", "not ended"], ["no", "ended"]])),
	]), { ms: 0 });
	await live(root, signal, async () => {
		const answer = await get("/v1/jobs", { ...parameters, limit: 50 }, signal);
		return [jobTable("Jobs", answer, "There is no job. A retry or skip of parked messages, a replay, a redrive of dead letters, and a verification is one."),
			pager(["jobs"], parameters, "after", answer.next), exportLink("jobs", parameters, "after")];
	}, { ms: 5000 });
}

async function renderOne({ root, heading, path, parameters, signal, refresh }) {
	heading.textContent = `Job ${path[0]}`;
	await live(root, signal, async () => {
		const job = await get(`/v1/jobs/${encodeURIComponent(path[0])}`, parameters, signal);
		return h("section", { class: "card" },
			h("p", {}, badge(KIND[job.state], job.state), " ", progressText(job)), progressBar(job),
			job.error ? h("pre", { class: "long", tabindex: "0" }, job.error) : null,
			facts([["Kind", job.kind], job.publisher ? ["Publisher", h("a", { href: address(["publishers", job.publisher]) }, job.publisher)] : ["Sidecar", job.section],
				[job.kind === "verify" ? "Options" : "Selection", filterText(job.filter)], job.clean === null ? null : ["Found", findingsText(job)], job.to ? ["To the topic", job.to] : null,
				["Who", job.caller ? `${job.caller}, as ${job.who}` : job.who], ["Reason", job.reason],
				["Begun", when(job.begun_at)], ["Newest progress", when(job.noted_at)], ["Ended", when(job.ended_at)],
				job.owner ? ["Process", h("code", {}, job.owner)] : null]),
			verbButtons(job, parameters.postgres, refresh));
	}, { ms: 2000 });
}

export const jobs = {
	title: "Jobs",
	render: view => (view.path.length > 0 ? renderOne(view) : renderList(view)),
};
