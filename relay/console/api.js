// Calls of the HTTP interface (docs/reference/api.md) with the session of this browser.

/** A refused or failed call: what failed, and what to do next. */
export class Problem extends Error {
	constructor(status, title, detail, more = {}) {
		super(detail);
		this.status = status;
		this.title = title;
		this.detail = detail;
		this.code = more.code || "";
		this.request = more.request || "";
	}
}

const READ_MS = 30000, ORDER_MS = 60000; // the relay itself gives up earlier

let session = null;

export function currentSession() {
	return session;
}

export function mayDo(role) {
	return Boolean(session && session.roles.includes(role));
}

/** The body is not that of the relay. */
function foreign({ status, headers }) {
	return new Problem(status, "The answer is not from the relay",
		`Something between this browser and the relay answered with the status ${status}: look at the log of the proxy.`,
		{ request: headers.get("X-Request-Id") || "" });
}

async function problemOf(answer) {
	const request = answer.headers.get("X-Request-Id") || "";
	try {
		const text = await answer.json();
		return new Problem(answer.status, text.title, text.detail,
			{ code: String(text.type).split(":").pop(), request });
	} catch {
		return foreign(answer);
	}
}

/** Nobody knows whether an order without an answer was carried out. */
function silence(method, path) {
	const isOrder = method !== "GET" && path.startsWith("/v1/") && !path.endsWith("/preview");
	const next = isOrder ? "and look at the audit before you try again: the order may have been carried out." : "then try again.";
	return new Problem(0, "The relay does not answer", `No answer came from ${location.host}: check that the relay runs and that you can reach it, ${next}`);
}

function signalOf(method, signal) {
	const limit = AbortSignal.timeout(method === "GET" ? READ_MS : ORDER_MS);
	return signal ? AbortSignal.any([signal, limit]) : limit;
}

/** An administrator may have changed the token. */
async function readRolesAgain() {
	const known = ({ roles, publishers, sections, types }) => JSON.stringify([roles, publishers, sections, types]);
	const before = known(session);
	try {
		session = await call("GET", "/console/session");
	} catch {
		return; // the problem that led here is shown
	}
	if (known(session) !== before)
		window.dispatchEvent(new Event("roles-changed"));
}

/** The browser removes the cookie at the end of its time, and when somebody logs out in another tab. */
function lost({ request }) {
	return new Problem(401, "The session of this browser has ended", "Its time is over, its token is no longer valid, or somebody logged out in another tab: log in again.", { request });
}

/** A process that is killed may end its answer in the middle. */
async function bodyOf(method, path, answer) {
	try {
		return await answer.json();
	} catch (error) {
		if (error.name === "AbortError")
			throw error;
		throw error instanceof SyntaxError ? foreign(answer) : silence(method, path);
	}
}

/** The answer as JSON; throws a Problem. signal: ends the call when its page is left. */
export async function call(method, path, body, signal) {
	const headers = {};
	if (body !== undefined)
		headers["Content-Type"] = "application/json";
	if (method !== "GET" && session)
		headers["X-CSRF-Token"] = session.csrf_token;
	let answer;
	try {
		answer = await fetch(path, {
			method, headers, signal: signalOf(method, signal), cache: "no-store", credentials: "same-origin",
			body: body === undefined ? undefined : JSON.stringify(body),
		});
	} catch (error) {
		if (error.name === "AbortError")
			throw error;
		throw silence(method, path);
	}
	if (answer.ok)
		return bodyOf(method, path, answer);
	const problem = await problemOf(answer);
	if (answer.status === 401 && path !== "/console/login" && session) {
		session = null;
		window.dispatchEvent(new CustomEvent("session-ended", { detail: problem.code === "session_ended" ? problem : lost(problem) }));
	}
	if (session && ["forbidden", "out_of_scope"].includes(problem.code))
		readRolesAgain();
	throw problem;
}

export function get(path, parameters = {}, signal = undefined) {
	const query = new URLSearchParams();
	for (const [name, value] of Object.entries(parameters))
		if (value !== undefined && value !== null && value !== "")
			query.append(name, value);
	const text = query.toString();
	return call("GET", text ? `${path}?${text}` : path, undefined, signal);
}

export function post(path, body) {
	return call("POST", path, body);
}

export async function login(token) {
	session = await call("POST", "/console/login", { token });
	return session;
}

/** The session of the cookie; null: there is none. A session that has ended is a Problem of status 401. */
export async function resume() {
	try {
		session = await call("GET", "/console/session");
	} catch (problem) {
		if (problem.code !== "unauthorized")
			throw problem;
		session = null;
	}
	return session;
}

export async function logout() {
	await call("DELETE", "/console/session");
	session = null;
}
