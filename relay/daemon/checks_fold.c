#include "checks_fold.h"

#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "text.h"

static const char *cure_key(const struct preflight_finding *finding)
{
	return finding->cure_of_all[0] ? finding->cure_of_all : finding->cure;
}

static bool have_one_cure(
    const struct preflight_finding *finding, const struct preflight_finding *other)
{
	return cure_key(finding)[0] && finding->severity == other->severity &&
	       text_equal(cure_key(finding), cure_key(other));
}

/* The findings that one action cures, in their order. */
struct fold {
	struct preflight_finding **members;
	int count;
};

static bool places_begin_with(const struct fold *fold, const char *word)
{
	for (int i = 0; i < fold->count; i++)
		if (!text_starts(fold->members[i]->place, word))
			return false;
	return true;
}

static bool is_place_before(const struct fold *fold, int member)
{
	for (int i = 0; i < member; i++)
		if (text_equal(fold->members[i]->place, fold->members[member]->place))
			return true;
	return false;
}

/* "topics orders, bills", or "deliver billing (relay.ini:4), check shop (relay.ini:9)". */
static char *join_places(const struct fold *fold)
{
	static const char topic[] = "topic ";
	bool topics = places_begin_with(fold, topic);
	OWNED(text_finish) struct text joined = {0};
	int count = 0;

	for (int i = 0; i < fold->count; i++) {
		const char *place = fold->members[i]->place + (topics ? sizeof topic - 1 : 0);

		if (!is_place_before(fold, i))
			text_addf(&joined, "%s%s", count++ ? ", " : "", place);
	}
	return xformat("%s%s", !topics ? "" : count > 1 ? "topics " : topic, text_string(&joined));
}

static bool say_the_same(const struct fold *fold)
{
	for (int i = 1; i < fold->count; i++)
		if (!text_equal(fold->members[i]->what, fold->members[0]->what))
			return false;
	return true;
}

static bool is_one_place(const struct fold *fold)
{
	for (int i = 1; i < fold->count; i++)
		if (!is_place_before(fold, i))
			return false;
	return true;
}

/* Each finding names its place, unless all have the same place or the text names it already. */
static char *join_findings(const struct fold *fold)
{
	OWNED(text_finish) struct text joined = {0};
	bool one_place = is_one_place(fold);

	if (say_the_same(fold))
		return xstrdup(fold->members[0]->what);
	for (int i = 0; i < fold->count; i++) {
		const struct preflight_finding *member = fold->members[i];

		text_addf(&joined, "%s%s", i ? "; " : "", member->what);
		if (!one_place && !strstr(member->what, member->place))
			text_addf(&joined, " (%s)", member->place);
	}
	return xstrdup(text_string(&joined));
}

/* Each item once, where the cure has "{}". */
static char *join_items(const struct fold *fold)
{
	const char *cure = cure_key(fold->members[0]);
	const char *gap = strstr(cure, "{}");
	OWNED(text_finish) struct text joined = {0};

	if (!gap)
		return xstrdup(cure);
	text_append(&joined, cure, (size_t)(gap - cure));
	for (int i = 0; i < fold->count; i++) {
		bool again = false;

		for (int k = 0; k < i; k++)
			again |= text_equal(fold->members[k]->item, fold->members[i]->item);
		if (!again)
			text_addf(&joined, "%s%s", i ? " " : "", fold->members[i]->item);
	}
	text_add(&joined, gap + 2);
	return xstrdup(text_string(&joined));
}

static void set_folded_text(char **text, char *folded)
{
	free(*text);
	*text = folded;
}

static void fold_findings(const struct fold *fold)
{
	char *place = join_places(fold), *what = join_findings(fold), *cure = join_items(fold);

	set_folded_text(&fold->members[0]->place, place);
	set_folded_text(&fold->members[0]->what, what);
	set_folded_text(&fold->members[0]->cure, cure);
}

/* Collects the finding `from` and all later ones with the same cure. */
static void collect_fold(
    const struct preflight *report, int from, bool *taken, struct fold *ret_fold)
{
	ret_fold->count = 0;
	for (int i = from; i < report->count; i++) {
		struct preflight_finding *finding = &report->findings[i];

		/* Without a cure `from` would not even match itself; it is in its own fold. */
		if (i != from && (taken[i] || !have_one_cure(&report->findings[from], finding)))
			continue;
		ret_fold->members[ret_fold->count++] = finding;
		taken[i] = true;
	}
}

void checks_fold(struct preflight *report)
{
	size_t room = (size_t)report->count + 1;
	struct preflight kept = {xcalloc(room, sizeof *kept.findings), 0};
	struct preflight dropped = {xcalloc(room, sizeof *dropped.findings), 0};
	struct fold fold = {xcalloc(room, sizeof *fold.members), 0};
	owned_text bool *taken = xcalloc(room, sizeof *taken);

	for (int i = 0; i < report->count; i++) {
		if (taken[i])
			continue;
		collect_fold(report, i, taken, &fold);
		if (fold.count > 1)
			fold_findings(&fold);
		kept.findings[kept.count++] = *fold.members[0];
		for (int k = 1; k < fold.count; k++)
			dropped.findings[dropped.count++] = *fold.members[k];
	}
	/* every text belongs to one of the two reports by now */
	preflight_finish(&dropped);
	free(report->findings);
	free(fold.members);
	*report = kept;
}
