// Line charts with Chart.js, which the program has from Debian's package. Without it there are no charts.
import { fill, h } from "./view.js";

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
		set.borderColor = set.backgroundColor = colour(`--line-${i + 1}`);
	});
	for (const scale of Object.values(chart.options.scales)) {
		scale.ticks.color = colour("--muted");
		scale.grid.color = colour("--border");
		if (scale.title)
			scale.title.color = colour("--muted");
	}
	chart.update("none");
}

/** Draws into the element; gives a function that adds a point: (label, values). */
export async function lineChart(element, { title, unit, names, points, signal }) {
	const Chart = await library();
	if (!Chart || signal.aborted)
		return () => {};
	const canvas = h("canvas", { role: "img", "aria-label": title });
	fill(element, h("h2", {}, title), h("div", { class: "chart" }, canvas));
	const chart = new Chart(canvas, {
		type: "line",
		data: { labels: [], datasets: names.map(label => ({ label, data: [], borderWidth: 2, pointRadius: 0, tension: 0 })) },
		options: {
			animation: false, responsive: true, maintainAspectRatio: false, locale: navigator.language,
			interaction: { mode: "index", intersect: false },
			plugins: { legend: { display: names.length > 1, labels: { color: colour("--text") } } },
			scales: {
				x: { ticks: { maxTicksLimit: 6, maxRotation: 0 }, grid: {} },
				y: { beginAtZero: true, ticks: { precision: 0, maxTicksLimit: 5 }, grid: {}, title: { display: true, text: unit } },
			},
		},
	});
	paint(chart);
	const repaint = () => paint(chart);
	window.addEventListener("theme", repaint);
	const scheme = matchMedia("(prefers-color-scheme: dark)");
	scheme.addEventListener("change", repaint);
	signal.addEventListener("abort", () => {
		window.removeEventListener("theme", repaint);
		scheme.removeEventListener("change", repaint);
		chart.destroy();
	});
	return (label, values) => {
		chart.data.labels.push(label);
		chart.data.datasets.forEach((set, i) => set.data.push(values[i]));
		if (chart.data.labels.length > points) {
			chart.data.labels.shift();
			chart.data.datasets.forEach(set => set.data.shift());
		}
		canvas.setAttribute("aria-label", `${title}: ${names.map((name, i) => `${name} ${values[i].toLocaleString()}`).join(", ")} ${unit}`);
		chart.update("none");
	};
}
