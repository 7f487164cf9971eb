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

let session = null;

export function currentSession() {
	return session;
}

export function mayDo(role) {
	return Boolean(session && session.roles.includes(role));
}

async function problemOf(answer) {
	const request = answer.headers.get("X-Request-Id") || "";
	try {
		const text = await answer.json();
		return new Problem(answer.status, text.title, text.detail,
			{ code: String(text.type).split(":").pop(), request });
	} catch {
		return new Problem(answer.status, "The answer is not from the relay",
			`Something between this browser and the relay answered with the status ${answer.status}: look at the log of the proxy.`,
			{ request });
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
			method, headers, signal, cache: "no-store", credentials: "same-origin",
			body: body === undefined ? undefined : JSON.stringify(body),
		});
	} catch (error) {
		if (error.name === "AbortError")
			throw error;
		throw new Problem(0, "The relay does not answer",
			`No answer came from ${location.host}: check that the relay runs and that you can reach it, then try again.`);
	}
	if (answer.ok)
		return answer.json();
	const problem = await problemOf(answer);
	if (answer.status === 401 && path !== "/console/login" && session) {
		session = null;
		window.dispatchEvent(new CustomEvent("session-ended", { detail: problem }));
	}
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

/** The session of the cookie; null: there is none. */
export async function resume() {
	try {
		session = await call("GET", "/console/session");
	} catch (problem) {
		if (problem.status !== 401)
			throw problem;
		session = null;
	}
	return session;
}

export async function logout() {
	await call("DELETE", "/console/session");
	session = null;
}
