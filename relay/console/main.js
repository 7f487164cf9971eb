// The frame of the console: login, navigation, theme, and the page that the address names.
import { Problem, currentSession, login, logout, resume } from "./api.js";
import { add, address, field, fill, h, problemBox, when } from "./view.js";
import { listen } from "./stream.js";
import { audit } from "./page_audit.js";
import { deadLetters } from "./page_dead_letters.js";
import { dedup } from "./page_dedup.js";
import { jobs } from "./page_jobs.js";
import { lookback } from "./page_lookback.js";
import { overview } from "./page_overview.js";
import { parked } from "./page_parked.js";
import { partitions } from "./page_partitions.js";
import { preflight } from "./page_preflight.js";
import { publishers } from "./page_publishers.js";
import { replays } from "./page_replays.js";
import { scheduled } from "./page_scheduled.js";
import { sidecars } from "./page_sidecars.js";
import { where } from "./page_where.js";

// In the order of the navigation. A page has a title and render({root, path, parameters, signal}).
const PAGES = {
	overview, publishers, where, parked, scheduled, replays, jobs, lookback, sidecars, "dead-letters": deadLetters, dedup, partitions, preflight, audit,
};

const app = document.getElementById("app");
let leave = new AbortController();
let main = null;

// --- the address ------------------------------------------------------------------------------

function currentView() {
	const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
	const words = path.split("/").filter(Boolean).map(word => {
		try {
			return decodeURIComponent(word);
		} catch {
			return word; // a % that somebody typed
		}
	});
	return { name: words[0] || "overview", path: words.slice(1), parameters: Object.fromEntries(new URLSearchParams(query || "")) };
}

// --- theme ------------------------------------------------------------------------------------

const THEMES = ["system", "light", "dark"];

function themeButton() {
	const current = () => document.documentElement.dataset.theme || "system";
	const button = h("button", {
		type: "button", class: "quiet",
		onclick: () => {
			const next = THEMES[(THEMES.indexOf(current()) + 1) % THEMES.length];
			if (next === "system") {
				delete document.documentElement.dataset.theme;
				localStorage.removeItem("theme");
			} else {
				document.documentElement.dataset.theme = next;
				localStorage.setItem("theme", next);
			}
			fill(button, `Theme: ${next}`);
			window.dispatchEvent(new Event("theme"));
		},
	}, `Theme: ${current()}`);
	return button;
}

// --- login ------------------------------------------------------------------------------------

/** A dialog belongs to its page, and would hide the next one. */
function closeDialogs() {
	for (const dialog of document.querySelectorAll("dialog"))
		dialog.close();
}

function showLogin(problem = null) {
	leave.abort();
	closeDialogs();
	main = null;
	const token = h("input", { type: "password", name: "token", autocomplete: "current-password", required: true, id: "token" });
	const problems = h("div", {}, problem ? problemBox(problem) : null);
	const button = h("button", { type: "submit", class: "primary" }, "Log in");
	document.title = "Log in · outbox-relay";
	fill(app, h("main", { id: "main", class: "login" },
		h("h1", {}, "outbox-relay"),
		h("form", {
			onsubmit: async event => {
				event.preventDefault();
				button.disabled = true;
				fill(problems);
				try {
					await login(token.value.trim());
					showFrame();
				} catch (failed) {
					button.disabled = false;
					fill(problems, problemBox(failed));
					token.focus();
				}
			},
		},
		field("Token", token, "One of a [token] section of the relay. The browser sends it once and does not keep it."),
		problems, problem ? h("p", {}, "After the login, the page that you were on comes back.") : null, h("div", { class: "buttons" }, button)),
		h("p", {}, themeButton())));
	token.focus();
}

// --- the frame --------------------------------------------------------------------------------

function userText() {
	const { name, roles } = currentSession();
	return [name, h("small", {}, roles.join(", "))];
}

function showFrame() {
	const session = currentSession();
	main = h("main", { id: "main", tabindex: "-1" });
	fill(app,
		h("header", {},
			h("a", { class: "brand", href: address(["overview"]), "aria-label": "outbox-relay" },
				h("img", { src: "icon.svg", alt: "", width: "24", height: "24" }), h("span", {}, "outbox-relay")),
			h("nav", { "aria-label": "Pages of the console" }, h("ul", {}, Object.entries(PAGES).map(([name, page]) =>
				h("li", {}, h("a", { href: address([name]), "data-page": name }, page.title))))),
			h("div", { class: "user" },
				h("span", { id: "who", role: "status" }, userText()),
				themeButton(),
				h("button", { type: "button", class: "quiet", onclick: endSession }, "Log out"))),
		main,
		h("footer", { class: "small muted" }, 
			`outbox-relay ${session.version} · times are in the zone ${Intl.DateTimeFormat().resolvedOptions().timeZone}, and in UTC on hover · the session ends at `,
			session.ends_at ? when(session.ends_at) : "no time"));
	listen();
	showPage(false);
}

async function endSession() {
	try {
		await logout();
		showLogin();
	} catch (problem) {
		if (problem.status !== 401)
			main.prepend(problemBox(problem, endSession));
	}
}

function showPage(moved = true) {
	if (!main)
		return;
	leave.abort();
	leave = new AbortController();
	const view = currentView();
	const page = PAGES[view.name];
	for (const link of app.querySelectorAll("nav a[data-page]")) {
		if (link.dataset.page === view.name)
			link.setAttribute("aria-current", "page");
		else
			link.removeAttribute("aria-current");
	}
	const had = main.contains(document.activeElement);
	const root = h("div", {});
	const heading = h("h1", { tabindex: "-1" }, page ? page.title : "There is no such page");
	fill(main, heading, root);
	document.title = `${heading.textContent} · outbox-relay`;
	if (page) {
		page.render({ root, heading, signal: leave.signal, refresh: () => showPage(false), ...view }).catch(problem => add(root, [problemBox(problem)]));
	} else {
		add(root, [h("p", {}, "The address has no page of the console. ", h("a", { href: address(["overview"]) }, "Go to the overview"), ".")]);
	}
	// readers with a keyboard or a screen reader start at the top of the new page
	if (moved || had)
		heading.focus();
}

window.addEventListener("hashchange", () => {
	closeDialogs();
	showPage();
});
window.addEventListener("session-ended", event => showLogin(event.detail));
window.addEventListener("roles-changed", () => {
	fill(document.getElementById("who"), userText());
	showPage(false);
});

async function begin() {
	try {
		if (await resume())
			showFrame();
		else
			showLogin();
	} catch (problem) {
		if (problem.status === 401) {
			showLogin(problem);
			return;
		}
		fill(app, h("main", { id: "main", class: "login" }, h("h1", {}, "outbox-relay"),
			problemBox(problem instanceof Problem ? problem : new Problem(0, "The console cannot start", String(problem)), begin)));
	}
}

// the skip link must not become an address of a page
document.querySelector("a.skip").addEventListener("click", event => {
	event.preventDefault();
	document.getElementById("main").focus();
});
begin();
