// Charts of the last 15 minutes with Chart.js, which the program has from Debian's package. Without it there are none.
import { get } from "./api.js";
import { every, h } from "./view.js";

const STEP_S = 5, REFRESH_MS = 5000, MOST_LINES = 5;

// A line for each series, or one for each metric; scale: from the unit of the metric to that of the chart.
const CHARTS = [
	{ title: "Throughput", unit: "records/s", scale: 1, metrics: { relay_published_total: "" } },
	{ title: "Backlog", unit: "rows", scale: 1, metrics: { relay_unpublished_rows: "" } },
	{
		title: "Latency, 99th percentile", unit: "ms", scale: 1000, quantile: "0.99",
		metrics: {
			relay_latency_commit_to_read_seconds: "commit to read", relay_latency_read_to_produce_seconds: "read to produce",
			relay_latency_produce_to_ack_seconds: "produce to acknowledgement",
		},
	},
];

let loading = null;

/** The library, loaded once and only where a chart is drawn; null: the program was built without it. */
function library() {
	loading = loading || new Promise(resolve => {
		document.head.append(h("script", { src: "chart.js", onload: () => resolve(window.Chart), onerror: () => resolve(null) }));
	});
	return loading;
}

function colour(name) {
	return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function paint(chart) {
	chart.data.datasets.forEach((set, i) => {
		set.borderColor = set.backgroundColor = colour(`--line-${i % 5 + 1}`);
	});
	for (const scale of Object.values(chart.options.scales)) {
		scale.ticks.color = colour("--muted");
		scale.grid.color = colour("--border");
	}
	chart.options.scales.y.title.color = colour("--muted");
	chart.options.plugins.legend.labels.color = colour("--text");
	chart.update("none");
}

// --- points -----------------------------------------------------------------------------------

/** "main, shard 0" of {publisher: "main", shard: "0"} */
function labelText(labels, metric) {
	const words = Object.entries(labels).filter(([name]) => name !== "quantile").map(([name, value]) => (name === "publisher" ? value : `${name} ${value}`));
	return [metric, ...words].filter(Boolean).join(", ");
}

/** {times, lines: [{label, points}]} */
async function read(wanted, signal) {
	const answers = await Promise.all(Object.keys(wanted.metrics).map(name => get("/v1/series", { name, step: STEP_S }, signal)));
	const lines = answers.flatMap(answer => answer.series
		.filter(series => !wanted.quantile || series.labels.quantile === wanted.quantile)
		.map(series => ({ label: labelText(series.labels, wanted.metrics[answer.name]), points: series.points.map(point => (point === null ? null : point * wanted.scale)) })));
	const [{ from, step, series }] = answers;
	const begin = new Date(from).getTime();
	const times = (series.length > 0 ? series[0].points : []).map((_, i) => new Date(begin + i * step * 1000).toLocaleTimeString(undefined, { timeStyle: "short" }));
	return { times, lines: lines.slice(0, MOST_LINES), left: Math.max(0, lines.length - MOST_LINES) };
}

/** What the chart shows, for those who do not see it. */
function summary({ title, unit }, { lines }) {
	const newest = lines.map(({ label, points }) => {
		const known = points.filter(point => point !== null);
		return `${label}: ${known.length > 0 ? `now ${known.at(-1).toLocaleString()} ${unit}, at most ${Math.max(...known).toLocaleString()} ${unit}` : "nothing is known"}`;
	});
	return `${title} of the last 15 minutes. ${newest.join("; ") || "Nothing is known yet"}`;
}

// --- charts -----------------------------------------------------------------------------------

function makeChart(Chart, canvas, unit) {
	return new Chart(canvas, {
		type: "line",
		data: { labels: [], datasets: [] },
		options: {
			animation: false, responsive: true, maintainAspectRatio: false, locale: navigator.language,
			interaction: { mode: "index", intersect: false }, plugins: { legend: { position: "bottom", labels: { boxWidth: 12 } } },
			scales: {
				x: { ticks: { maxTicksLimit: 3, maxRotation: 0 }, grid: {} },
				y: { beginAtZero: true, ticks: { maxTicksLimit: 5 }, grid: {}, title: { display: true, text: unit } },
			},
		},
	});
}

async function drawChart(Chart, element, wanted, signal) {
	const canvas = h("canvas", { role: "img", "aria-label": wanted.title });
	const note = h("p", { class: "small muted" });
	element.append(h("section", { class: "card" }, h("h2", {}, `${wanted.title} (${wanted.unit})`), h("div", { class: "chart" }, canvas), note));
	const chart = makeChart(Chart, canvas, wanted.unit);
	let newest = "";
	const refresh = async () => {
		try {
			const shown = await read(wanted, signal);
			newest = new Date().toLocaleTimeString();
			chart.data.labels = shown.times;
			chart.data.datasets = shown.lines.map(({ label, points }) => ({ label, data: points, borderWidth: 2, pointRadius: 0, spanGaps: false }));
			canvas.setAttribute("aria-label", summary(wanted, shown));
			note.textContent = shown.lines.length === 0 ? "This process has no points of it." : shown.left > 0 ? `${shown.left} more lines are not drawn.` : "";
			paint(chart);
		} catch (problem) {
			if (problem.name !== "AbortError")
				note.textContent = `${newest ? `Old: the lines end at ${newest}. ` : ""}${problem.title}.`;
		}
	};
	const repaint = () => paint(chart);
	window.addEventListener("theme", repaint, { signal });
	matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint, { signal });
	signal.addEventListener("abort", () => chart.destroy());
	await refresh();
	every(REFRESH_MS, signal, refresh);
}

/** Draws the charts of the process into the element. */
export async function charts(element, signal) {
	const Chart = await library();
	if (Chart && !signal.aborted)
		await Promise.all(CHARTS.map(wanted => drawChart(Chart, element, wanted, signal)));
}
