/* layout and rangeset against models that keep one cell a byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <glib.h>
#include <string.h>

#include "client/workspace/layout.h"
#include "client/workspace/rangeset.h"

#define CELLS	  200
#define FROM_BASE (-1)
#define ZERO	  (-2)

/* Where each byte of the model is: a position of the log, the base, zero. */
struct model {
	int64_t cell[4 * CELLS];
	uint64_t size;
	uint64_t append_start;
};

static void model_truncate(struct model *model, uint64_t size)
{
	for (uint64_t i = size; i < 4 * CELLS; i++)
		model->cell[i] = ZERO;
	if (size < model->size && model->append_start != SBX_NO_APPEND &&
	    size <= model->append_start)
		model->append_start = SBX_NO_APPEND;
	model->size = size;
}

static void model_write(struct model *model, uint64_t offset, uint64_t len, uint64_t pos)
{
	for (uint64_t i = 0; i < len; i++)
		model->cell[offset + i] = (int64_t)(pos + i);
	model->size = MAX(model->size, offset + len);
}

static void check_layout(const struct sbx_layout *layout, const struct model *model)
{
	uint64_t offset = 0;
	uint64_t log_bytes = 0;
	struct sbx_extent found;

	assert_int_equal(layout->size_bytes, model->size);
	assert_true(layout->append_start == model->append_start);
	while (sbx_layout_extent(layout, offset, UINT64_MAX, &found)) {
		assert_int_equal(found.offset, offset);
		assert_true(found.len_bytes > 0);
		for (uint64_t i = 0; i < found.len_bytes; i++) {
			int64_t cell = model->cell[offset + i];

			if (found.kind == SBX_EXTENT_LOG)
				assert_int_equal(cell, found.log_pos + i);
			else
				assert_int_equal(cell,
						 found.kind == SBX_EXTENT_BASE ? FROM_BASE : ZERO);
		}
		if (found.kind == SBX_EXTENT_LOG) {
			log_bytes += found.len_bytes;
			assert_true(found.offset >= layout->append_start ||
				    found.offset + found.len_bytes <= layout->append_start);
		}
		offset += found.len_bytes;
	}
	assert_int_equal(offset, model->size);
	assert_int_equal(log_bytes, layout->log_bytes);
}

static void test_layout_model(void **state)
{
	(void)state;
	for (uint32_t seed = 0; seed < 300; seed++) {
		GRand *rand = g_rand_new_with_seed(seed);
		uint64_t base = (uint64_t)g_rand_int_range(rand, 0, CELLS);
		struct sbx_layout layout;
		struct model model;
		uint64_t pos = 1000;

		sbx_layout_init(&layout, base);
		for (uint64_t i = 0; i < 4 * CELLS; i++)
			model.cell[i] = i < base ? FROM_BASE : ZERO;
		model.size = base;
		model.append_start = SBX_NO_APPEND;
		for (int step = 0; step < 60; step++) {
			uint64_t offset = (uint64_t)g_rand_int_range(rand, 0, CELLS);
			uint64_t len = (uint64_t)g_rand_int_range(rand, 1, 40);
			struct sbx_layout copy;

			switch (g_rand_int_range(rand, 0, 4)) {
			case 0:
				if (model.size + len > 3 * CELLS)
					break;
				if (model.append_start == SBX_NO_APPEND)
					model.append_start = model.size;
				offset = sbx_layout_append(&layout, len, pos);
				assert_int_equal(offset, model.size);
				model_write(&model, offset, len, pos);
				break;
			case 1:
				sbx_layout_truncate(&layout, offset);
				model_truncate(&model, offset);
				break;
			default:
				sbx_layout_write(&layout, offset, len, pos);
				model_write(&model, offset, len, pos);
			}
			pos += 100;
			check_layout(&layout, &model);
			sbx_layout_copy(&layout, &copy);
			check_layout(&copy, &model);
			sbx_layout_done(&copy);
		}
		sbx_layout_done(&layout);
		g_rand_free(rand);
	}
}

static void test_layout_needs_base(void **state)
{
	struct sbx_layout layout;

	(void)state;
	sbx_layout_init(&layout, 10);
	assert_true(sbx_layout_needs_base(&layout));
	sbx_layout_write(&layout, 0, 9, 100);
	assert_true(sbx_layout_needs_base(&layout));
	sbx_layout_write(&layout, 9, 4, 200);
	assert_false(sbx_layout_needs_base(&layout));
	sbx_layout_done(&layout);
	sbx_layout_init(&layout, 10);
	sbx_layout_truncate(&layout, 0);
	sbx_layout_truncate(&layout, 10);
	assert_false(sbx_layout_needs_base(&layout));
	sbx_layout_done(&layout);
}

static void test_rangeset_model(void **state)
{
	(void)state;
	for (uint32_t seed = 0; seed < 300; seed++) {
		GRand *rand = g_rand_new_with_seed(seed);
		struct sbx_rangeset set;
		bool cell[2 * CELLS] = { false };

		sbx_rangeset_init(&set);
		for (int step = 0; step < 60; step++) {
			uint64_t start = (uint64_t)g_rand_int_range(rand, 0, CELLS);
			uint64_t end = start + (uint64_t)g_rand_int_range(rand, 0, 30);
			bool add = g_rand_int_range(rand, 0, 3) > 0;
			uint64_t bytes = 0;
			uint64_t run = 0;
			bool has = true;
			struct sbx_range gap;

			if (add)
				sbx_rangeset_add(&set, start, end);
			else
				sbx_rangeset_remove(&set, start, end);
			for (uint64_t i = start; i < end; i++)
				cell[i] = add;
			for (int i = 0; i < 2 * CELLS; i++)
				bytes += cell[i];
			assert_int_equal(sbx_rangeset_bytes(&set), bytes);
			start = (uint64_t)g_rand_int_range(rand, 0, CELLS);
			end = start + (uint64_t)g_rand_int_range(rand, 0, 30);
			while (cell[start + run])
				run++;
			assert_int_equal(sbx_rangeset_run(&set, start), run);
			for (uint64_t i = start; i < end; i++)
				has &= cell[i];
			assert_int_equal(sbx_rangeset_has(&set, start, end), has);
			assert_int_equal(sbx_rangeset_gap(&set, start, end, &gap), !has);
			if (!has) {
				assert_int_equal(gap.start, start + run);
				for (uint64_t i = gap.start; i < gap.end; i++)
					assert_false(cell[i]);
				assert_true(gap.end == end || cell[gap.end]);
			}
			for (unsigned int i = 1; i < set.ranges->len; i++) {
				struct sbx_range *range = (struct sbx_range *)set.ranges->data;

				assert_true(range[i - 1].end < range[i].start);
			}
		}
		sbx_rangeset_done(&set);
		g_rand_free(rand);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout_model),
		cmocka_unit_test(test_layout_needs_base),
		cmocka_unit_test(test_rangeset_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
