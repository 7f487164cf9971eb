#include "spec.h"

#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "spec_words.h"
#include "text.h"

/* --- values --------------------------------------------------------------------------------- */

bool spec_set_number(
    void *object, const struct spec_setting *setting, const char *value, struct err *err)
{
	int64_t number;
	(void)err;
	if (units_parse(value, setting->units, &number) != UNITS_READ || number < setting->low ||
	    number > setting->high)
		return false;
	*(int64_t *)((char *)object + setting->offset) = number;
	return true;
}

bool spec_set_text(
    void *object, const struct spec_setting *setting, const char *value, struct err *err)
{
	char **text = (char **)((char *)object + setting->offset);
	(void)err;
	if (!value[0])
		return false;
	free(*text);
	*text = xstrdup(value);
	return true;
}

bool spec_set_name(
    void *object, const struct spec_setting *setting, const char *value, struct err *err)
{
	size_t length =
	    strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
	return length <= 100 && !value[length] && spec_set_text(object, setting, value, err);
}

bool spec_set_flag(
    void *object, const struct spec_setting *setting, const char *value, struct err *err)
{
	(void)value;
	(void)err;
	*(bool *)((char *)object + setting->offset) = true;
	return true;
}

/* --- settings ------------------------------------------------------------------------------- */

static const struct spec_setting *find_in_rows(
    const struct spec_setting *rows, uint32_t takes, const char *name)
{
	for (int i = 0; rows && rows[i].name; i++)
		if (takes >> i & 1 && text_equal(rows[i].name, name))
			return &rows[i];
	return NULL;
}

static void list_rows(const struct spec_setting *rows, uint32_t takes, struct text *names)
{
	for (int i = 0; rows && rows[i].name; i++)
		if (takes >> i & 1 && rows[i].example)
			text_addf(names, "%s%s", names->length ? ", " : "", rows[i].name);
}

static bool refuse_setting(const struct spec_type *type, const char *name, struct err *err)
{
	OWNED(text_finish) struct text names = {0};
	list_rows(type->shared, type->takes, &names);
	list_rows(type->own, UINT32_MAX, &names);
	return err_set(err, ERR_CONFIG, "'%.40s' is no setting of '%s'; there are: %s",
	    spec_word_shown(name), type->name, names.data);
}

bool spec_set(const struct spec_type *type, void *object, const char *name, const char *value,
    struct err *err)
{
	const struct spec_setting *setting = find_in_rows(type->shared, type->takes, name);
	if (!setting)
		setting = find_in_rows(type->own, UINT32_MAX, name);
	if (!setting || (value && !setting->example))
		return refuse_setting(type, name, err);

	/* the setter may replace this with a more specific message */
	value = value ? value : "";
	err_set(err, ERR_CONFIG, "%s '%.40s' is refused; it is %s", name, spec_word_shown(value),
	    setting->example ? setting->example : "");
	return setting->set(object, setting, value, err);
}

/* Required numbers are above 0. */
static bool is_given(const struct spec_setting *setting, const void *object)
{
	const void *place = (const char *)object + setting->offset;
	return setting->set == spec_set_number ? *(const int64_t *)place != 0
					       : *(char *const *)place != NULL;
}

bool spec_check_needs(const struct spec_type *type, const void *object, struct err *err)
{
	const struct spec_setting *rows = type->shared;
	for (int i = 0; rows[i].name; i++)
		if (type->needs >> i & 1 && !is_given(&rows[i], object))
			return err_set(err, ERR_CONFIG, "%s is missing: %s", rows[i].name,
			    rows[i].missing ? rows[i].missing : rows[i].example);
	return true;
}

/* --- the line ------------------------------------------------------------------------------- */

static void list_types(const struct spec_type *const *types, struct text *names)
{
	for (int i = 0; types[i]; i++)
		if (i == 0 || !text_equal(types[i]->name, types[i - 1]->name))
			text_addf(names, "%s%s", i ? ", " : "", types[i]->name);
}

const struct spec_type *spec_parse_type(
    char **rest, const struct spec_type *const *types, const char *what, struct err *err)
{
	OWNED(text_finish) struct text names = {0};
	char *word;
	if (!spec_word_next(rest, &word, err))
		return NULL;
	for (int i = 0; word && types[i]; i++)
		if (text_equal(types[i]->name, word))
			return types[i];
	list_types(types, &names);
	err_set(err, ERR_CONFIG, "'%.40s' is no %s; begin the line with one of: %s",
	    word ? spec_word_shown(word) : "", what, names.data);
	return NULL;
}

bool spec_parse_settings(char *rest, const struct spec_type *type, void *object, struct err *err)
{
	char *word;
	while (spec_word_next(&rest, &word, err)) {
		char *value = word ? strchr(word, '=') : NULL;
		if (!word)
			return true;
		if (value)
			*value++ = '\0';
		if (!spec_set(type, object, word, value, err))
			return false;
	}
	return false;
}
