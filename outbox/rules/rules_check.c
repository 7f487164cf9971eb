#include "rules_check.h"

#include "cleanup.h"
#include "rules_shared.h"
#include "text.h"

static bool check_expression(const char *name, const char *expression, struct err *err)
{
	struct rule_key *key =
	    !expression || !expression[0] ? NULL : rule_key_parse(expression, err);
	bool good = !expression || !expression[0] || key;

	rule_key_destroy(key);
	return good || err_prefix(err, "%s", name);
}

static bool check_places(const struct rule_places *places, struct err *err)
{
	return check_expression("user", places->user, err) &&
	       check_expression("content", places->content, err) &&
	       check_expression("channel", places->channel, err);
}

bool rules_wanted_check(const struct rules_wanted *wanted, int *ret_wrong, struct err *err)
{
	struct rule_list list = {0};
	size_t wrong = 0;
	bool good;

	if (ret_wrong)
		*ret_wrong = -1;
	if (!check_places(&wanted->places, err))
		return false;
	if (wanted->store && !rules_shared_check_line(wanted->store, err))
		return err_prefix(err, "rules_store");

	good = rule_list_parse(&list, wanted->lines, wanted->count, &wanted->places, &wrong, err) &&
	       (!wanted->store || rules_shared_check_list(&list, err));
	if (!good && ret_wrong)
		*ret_wrong = (int)wrong;
	rule_list_finish(&list);
	return good;
}
