#include "rules_article.h"

#include <stdlib.h>
#include <string.h>
#include <jansson.h>
#include "cleanup.h"
#include "rule_list.h"
#include "text.h"

#define TEN "deduplication_10"
#define TWENTY "deduplication_20"

/* A rule, by both of its names. */
static const struct article_rule {
	const char *name, *older;
	bool sliding;
} article_rules[RULES_ARTICLE_MOST] = {
    {TEN, "contentDeduplication", true},
    {TWENTY, "frequencyDeduplication", false},
};
enum { MOST_NUM = 1000000000, MOST_SECONDS = 3650 * 86400 };

bool rules_article_is(const char *text)
{
	return text[strspn(text, " \t\r\n")] == '{';
}

void rules_article_finish(struct rules_article *article)
{
	for (int i = 0; i < article->count; i++)
		free(article->lines[i]);
	*article = (struct rules_article){0};
}

/* --- members -------------------------------------------------------------------------------- */

static bool check_rule_names(const json_t *object, struct err *err)
{
	const char *name;
	json_t *value;

	json_object_foreach((json_t *)object, name, value)
	{
		bool known = false;
		for (int i = 0; i < RULES_ARTICLE_MOST; i++)
			known |= text_equal(name, article_rules[i].name) ||
				 text_equal(name, article_rules[i].older);
		if (!known)
			return err_set(err, ERR_CONFIG,
			    "member \"%.40s\" is no rule; there are " TEN
			    " (contentDeduplication) and " TWENTY " (frequencyDeduplication)",
			    name);
		if (!json_is_object(value))
			return err_set(err, ERR_CONFIG,
			    "member \"%.40s\" is not an object; write for example "
			    "{\"num\":1,\"time\":300}",
			    name);
	}
	return true;
}

static bool check_rule_members(
    const struct article_rule *rule, const char *name, const json_t *object, struct err *err)
{
	const char *member;
	json_t *value;

	json_object_foreach((json_t *)object, member, value)
	{
		if (text_equal(member, "num") || (rule->sliding && text_equal(member, "time")))
			continue;
		if (text_equal(member, "time"))
			return err_set(err, ERR_CONFIG,
			    "member \"%s.time\" is refused: this rule counts a calendar day; "
			    "remove time",
			    name);
		return err_set(err, ERR_CONFIG, "member \"%s.%.40s\" is unknown; there %s", name,
		    member, rule->sliding ? "are num and time" : "is num");
	}
	return true;
}

static bool read_member(const char *name, const json_t *object, const char *member, int64_t high,
    const char *example, int64_t *ret_number, struct err *err)
{
	const json_t *value = json_object_get(object, member);

	*ret_number = json_integer_value(value);
	if (value && json_is_integer(value) && *ret_number >= 1 && *ret_number <= high)
		return true;
	return err_set(err, ERR_CONFIG,
	    "member \"%s.%s\" is %s; write a whole number from 1 to %lld, for example %s", name,
	    member, value ? "refused" : "missing", (long long)high, example);
}

/* --- lines ---------------------------------------------------------------------------------- */

/* In the double quotes of a line, a double quote is written twice. */
static void add_expression(struct text *line, const char *expression)
{
	for (; *expression; expression++) {
		text_append(line, expression, 1);
		if (*expression == '"')
			text_append(line, "\"", 1);
	}
}

static const char *place_or(const char *given, const char *usual)
{
	return given && given[0] ? given : usual;
}

static char *make_rule_line(
    const struct article_rule *rule, const struct rule_places *places, int64_t num, int64_t seconds)
{
	struct text line = {0};

	text_addf(&line, "%s name=%s most=%lld ", rule->sliding ? "sliding" : "daily", rule->name,
	    (long long)num);
	if (rule->sliding)
		text_addf(&line, "within=%llds ", (long long)seconds);
	else
		text_addf(&line, "zone=\"%s\" ", place_or(places->zone, "UTC"));
	text_add(&line, "key=\"");
	add_expression(&line, place_or(places->user, "key"));
	text_add(&line, ",");
	add_expression(&line, rule->sliding ? place_or(places->content, "payload")
					    : place_or(places->channel, "topic"));
	text_add(&line, "\" action=drop");
	return line.data;
}

static bool read_article_rule(const struct article_rule *rule, const json_t *object,
    const struct rule_places *places, struct rules_article *article, struct err *err)
{
	const json_t *newer = json_object_get(object, rule->name);
	const json_t *older = json_object_get(object, rule->older), *found = newer ? newer : older;
	const char *name = newer ? rule->name : rule->older;
	int64_t num, seconds = 0;

	if (!found)
		return true;
	/* it would be unclear which of the two is in force */
	if (newer && older)
		return err_set(err, ERR_CONFIG,
		    "members \"%s\" and \"%s\" are the same rule; keep one of them", rule->name,
		    rule->older);
	if (!check_rule_members(rule, name, found, err) ||
	    !read_member(name, found, "num", MOST_NUM, rule->sliding ? "1" : "5", &num, err) ||
	    (rule->sliding &&
		!read_member(name, found, "time", MOST_SECONDS, "300 (seconds)", &seconds, err)))
		return false;
	article->lines[article->count++] = make_rule_line(rule, places, num, seconds);
	return true;
}

bool rules_article_read(const char *json, const struct rule_places *places,
    struct rules_article *ret_article, struct err *err)
{
	const struct rule_places known = places ? *places : (struct rule_places){0};
	json_error_t why;
	json_t *object = json_loads(json, JSON_REJECT_DUPLICATES, &why);
	bool good;

	*ret_article = (struct rules_article){0};
	if (!object)
		return err_set(err, ERR_CONFIG,
		    "line %d, column %d: %.150s; write for example "
		    "{\"" TEN "\":{\"num\":1,\"time\":300},\"" TWENTY "\":{\"num\":5}}",
		    why.line, why.column, why.text);

	good = check_rule_names(object, err);
	for (int i = 0; good && i < RULES_ARTICLE_MOST; i++)
		good = read_article_rule(&article_rules[i], object, &known, ret_article, err);
	json_decref(object);

	/* after the object's own errors, which do not depend on the settings */
	if (good && ret_article->count > 0 && !place_or(known.user, NULL))
		good = err_set(err, ERR_CONFIG,
		    "user is missing: these rules count the messages of a user; say which part "
		    "of a message is the user, for example user = header:user");
	return good;
}
