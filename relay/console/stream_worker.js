// One stream of events for all tabs of a browser: HTTP/1.1 has six connections for each origin, and a stream holds one.
// It is open only while a tab is visible.
"use strict";

const EVENTS = ["alert", "shard", "deliver", "reset"];
const SILENT_MS = 30000; // a tab that says nothing for so long is closed
const tabs = new Map();  // port: {visible, heard}
let stream = null;

function adjust() {
	const now = Date.now();
	for (const [port, tab] of tabs)
		if (now - tab.heard > SILENT_MS)
			tabs.delete(port);
	const wanted = [...tabs.values()].some(tab => tab.visible);
	if (!wanted && stream) {
		stream.close();
		stream = null;
	}
	// after a refusal, as at the end of a session, the next page that is shown tries again
	if (wanted && (!stream || stream.readyState === EventSource.CLOSED))
		open();
}

function open() {
	stream = new EventSource("/v1/events");
	for (const name of EVENTS)
		stream.addEventListener(name, event => {
			for (const port of tabs.keys())
				port.postMessage({ event: name, data: event.data });
		});
}

onconnect = ({ ports: [port] }) => {
	port.onmessage = ({ data }) => {
		tabs.set(port, { visible: data.visible, heard: Date.now() });
		adjust();
	};
};
setInterval(adjust, SILENT_MS / 2);
