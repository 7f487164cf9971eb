// The dialog of a drop: what goes with it, the question of the command line, and the reasons against it, which ticks overrule.
import { post } from "./api.js";
import { badge, field, h, input, verbDialog } from "./view.js";

const MAY_BE_FORCED = ["not_applicable", "owned"];

/** The plan of an order; kept: what speaks against it, and can be overruled with some of the words. */
async function planOf(path, order, words) {
	try {
		return { plan: await post(path, { ...order, dry_run: true }), kept: null };
	} catch (problem) {
		if (!MAY_BE_FORCED.includes(problem.code))
			throw problem;
		return { plan: await post(path, { ...order, dry_run: true, force: words }), kept: problem.detail };
	}
}

function forceBox(word, text) {
	return h("label", { class: "check" }, h("input", { type: "checkbox", name: "force", value: word }), ` Even so (${word}): ${text}`);
}

/** force: {word: text}. shown(plan): nodes. run(answer): nodes of the result. */
export function dropDialog({ title, verb, path, order, question, force, shown, run, done }) {
	const confirm = input("confirm", "", { required: true });
	let boxes = [];
	return verbDialog({
		title, verb, danger: true, done,
		prepare: async () => {
			const { plan, kept } = await planOf(path, order, Object.keys(force));
			boxes = kept ? Object.entries(force).map(([word, text]) => forceBox(word, text)) : [];
			return { nodes: [shown(plan), kept ? h("p", { class: "long" }, badge("warn", "refused"), ` ${kept}.`) : null, boxes,
				field("Confirm", confirm, `Type “${question}”.`)] };
		},
		run: async reason => {
			const words = boxes.map(box => box.firstChild).filter(box => box.checked).map(box => box.value);
			return run(await post(path, { ...order, confirm: confirm.value.trim(), ...(words.length > 0 ? { force: words } : {}), reason }));
		},
	});
}
