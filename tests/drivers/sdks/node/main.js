// Receives events with the CloudEvents and the Standard Webhooks library of Node, for tests/drivers/test_sdks.py:
//
//	node main.js SECRET
//
// It prints {"port": …} first, then a JSON object for each event, and ends with its standard input.
const { createServer } = require("node:http");
const { HTTP } = require("cloudevents");
const { Webhook } = require("standardwebhooks");

const webhook = new Webhook(process.argv[2]);

function print(object) {
	process.stdout.write(JSON.stringify(object) + "\n");
}

// The library has parsed JSON, in some modes also a text that is a JSON string.
function dataOf(event) {
	if (event.data_base64) return Buffer.from(event.data_base64, "base64");
	if (event.data === undefined) return Buffer.alloc(0);
	return Buffer.from(typeof event.data === "string" ? event.data : JSON.stringify(event.data));
}

function show(event) {
	event.validate();
	const { id, source, type, subject = "", time, datacontenttype = "", dataschema = "" } = event;
	print({ id, source, type, subject, time, content_type: datacontenttype, schema: dataschema,
		data: dataOf(event).toString("base64"), attempt: Number(event.outboxattempt) });
}

const server = createServer(async (request, response) => {
	const chunks = [];
	for await (const chunk of request) chunks.push(chunk);
	const body = Buffer.concat(chunks).toString();
	try {
		webhook.verify(body, request.headers, { jsonParse: false });
		const events = HTTP.toEvent({ headers: request.headers, body });
		for (const event of Array.isArray(events) ? events : [events]) show(event);
	} catch (error) {
		print({ error: `${error}: ${body}` }); // the relay gets status 200 all the same, and goes on
	}
	response.writeHead(200).end();
});
server.listen(0, "127.0.0.1", () => print({ port: server.address().port }));
process.stdin.resume().on("end", () => process.exit(0));
