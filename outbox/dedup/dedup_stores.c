#include "dedup_stores.h"

#include "cleanup.h"
#include "text.h"

/* A new store needs a file in stores/, and its name here. */
#define STORES(row)                                                                                \
	row(bloom_store) row(exact_store) row(counting_store) row(bitmap_store)                    \
	    row(bitmap_hash_store) row(redis_store) row(redis_bitmap_store) row(redis_bloom_store) \
		row(postgres_store) row(sequence_store)

#define DECLARE(store) extern const struct dedup_store_type store;
STORES(DECLARE)

#define ADDRESS(store) &(store),
const struct dedup_store_type *const dedup_stores[] = {STORES(ADDRESS) NULL};

#define SPEC(store) &(store).spec,
static const struct spec_type *const specs[] = {STORES(SPEC) NULL};

static bool refuse_form(const struct dedup_spec *spec, struct err *err)
{
	OWNED(text_finish) struct text forms = {0};
	for (int i = 0; dedup_stores[i]; i++)
		if (text_equal(dedup_stores[i]->spec.name, spec->type->spec.name))
			text_addf(&forms, "%s%s", forms.length ? ", " : "", dedup_stores[i]->form);
	return err_set(err, ERR_CONFIG, "form=%.40s is none of '%s'; there are: %s", spec->form,
	    spec->type->spec.name, forms.data);
}

/* Among the stores with this name, chooses the one that the setting `form` names. */
static bool choose_form(struct dedup_spec *spec, struct err *err)
{
	if (!spec->form)
		return true;
	for (int i = 0; dedup_stores[i]; i++)
		if (text_equal(dedup_stores[i]->spec.name, spec->type->spec.name) &&
		    text_equal(dedup_stores[i]->form, spec->form)) {
			spec->type = dedup_stores[i];
			return true;
		}
	return refuse_form(spec, err);
}

bool dedup_spec_parse(const char *line, struct dedup_spec *ret_spec, struct err *err)
{
	owned_text char *copy = xstrdup(line);
	char *rest = copy;
	const struct spec_type *type = spec_parse_type(&rest, specs, "store of dedup", err);
	dedup_spec_init(ret_spec, (const struct dedup_store_type *)type);
	return type && spec_parse_settings(rest, type, ret_spec, err) &&
	       choose_form(ret_spec, err) && dedup_spec_check(ret_spec, err);
}
