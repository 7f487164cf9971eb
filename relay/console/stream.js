// Events of the relay in this tab: pages draw themselves anew when something has changed.
import { refreshAll } from "./view.js";

const HERE_MS = 10000;
const SETTLE_MS = 300; // events come in groups

let port = null;

export function listen() {
	if (port || !window.SharedWorker)
		return; // pages also refresh themselves by the clock
	port = new SharedWorker("stream_worker.js", { name: "outbox-relay" }).port;
	port.onmessage = ({ data }) => window.dispatchEvent(new CustomEvent("relay-event", { detail: data }));
	const here = () => port.postMessage({ visible: !document.hidden });
	document.addEventListener("visibilitychange", here);
	window.addEventListener("pagehide", () => port.postMessage({ visible: false }));
	setInterval(here, HERE_MS);
	here();
}

/** Loads what is shown anew after events of these names. */
export function onEvents(names, signal) {
	let timer = null;
	window.addEventListener("relay-event", ({ detail }) => {
		if (!names.includes(detail.event) && detail.event !== "reset")
			return;
		clearTimeout(timer);
		timer = setTimeout(() => {
			if (!signal.aborted)
				refreshAll();
		}, SETTLE_MS);
	}, { signal });
}
