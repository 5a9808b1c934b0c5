/* Open files under load: an upload that begins early, many workers against a model. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <glib.h>

#include "client/errlog.h"
#include "tests/workspace/files_rig.h"
static void write_block(struct fixture *f, struct sbx_file *file, const char *data, size_t len,
			uint64_t offset)
{
	assert_int_equal(sbx_file_write(file, &f->rig.call, data, len, offset), len);
}

/* A big content is on its way while it is written; what is done to it meanwhile is not lost. */
static void test_early_upload(void **state)
{
	const size_t block = 1 << 20;
	struct fixture f;
	g_autofree char *data = pattern(12 * block, 8);
	struct sbx_file *file;
	struct sbx_attr attr;
	size_t before;

	open_with(&f, tools_args(state), 1000);
	save(&f, "warm", "x");
	for (int kind = 0; kind < 5; kind++) {
		struct sbx_setattr change = { .set = SBX_SET_SIZE, .size_bytes = 11 * block };
		g_autofree char *expected = g_memdup2(data, 12 * block);
		g_autofree char *got = NULL;
		gsize size = 12 * block;
		gsize len;

		before = requests(&f);
		file = open_file(&f, "big", O_RDWR | O_CREAT | O_TRUNC);
		for (size_t i = 0; i < 12; i++)
			write_block(&f, file, data + i * block, block, i * block);
		if (kind == 1) {
			g_usleep(200000);
			write_at(&f, file, "rewritten", 5);
			memcpy(expected + 5, "rewritten", 9);
		} else if (kind == 2) {
			g_usleep(200000);
			assert_int_equal(
				sbx_ws_setattr(f.ws, &f.rig.call, "big", file, &change, &attr), 0);
			size = 11 * block;
		} else if (kind == 3) {
			g_usleep(1500000);
			write_at(&f, file, "more", size);
			size += 4;
			expected = g_realloc(expected, size);
			memcpy(expected + size - 4, "more", 4);
		} else if (kind == 4) {
			sbx_file_release(open_file(&f, "big", O_WRONLY | O_TRUNC), &f.rig.call);
			write_at(&f, file, "short", 0);
			memcpy(expected, "short", 5);
			size = 5;
		}
		close_file(&f, file);
		if (kind == 0)
			assert_int_equal(requests(&f) - before, 2);
		got = remote(&f, "big", &len);
		assert_int_equal(len, size);
		assert_memory_equal(got, expected, size);
		g_free(got);
		got = read_all(&f, "big", &len);
		assert_int_equal(len, size);
		assert_memory_equal(got, expected, size);
	}
	close_all(&f);
}

/* Workers that each change files of their own, at random, against a model of their content. */
struct worker {
	struct fixture *f;
	unsigned int number;
	unsigned int steps;
	bool failed;
};

struct model {
	char path[32];
	GString *content; /* NULL: there is no such file */
	struct sbx_file *file; /* open for reading and writing, or NULL */
};

#define EXPECT(condition)                                                                   \
	do {                                                                                \
		if (!(condition)) {                                                         \
			print_message("worker %u: line %d: %s\n", worker->number, __LINE__, \
				      #condition);                                          \
			worker->failed = true;                                              \
			return;                                                             \
		}                                                                           \
	} while (0)

static void model_write(struct model *model, const char *data, size_t len, size_t offset)
{
	size_t old = model->content->len;

	if (offset + len > old) {
		g_string_set_size(model->content, offset + len);
		if (offset > old)
			memset(model->content->str + old, 0, offset - old);
	}
	memcpy(model->content->str + offset, data, len);
}

static void worker_step(struct worker *worker, struct model *model, GRand *rand)
{
	const struct sbx_call *call = &worker->f->rig.call;
	struct sbx_workspace *ws = worker->f->ws;
	char data[5000];
	char buf[6000];
	struct sbx_setattr change = { .set = SBX_SET_SIZE };
	struct sbx_attr attr;
	size_t offset;
	size_t len;
	ssize_t n;

	if (!model->file) {
		int flags = O_RDWR | (model->content ? 0 : O_CREAT);

		if (g_rand_int_range(rand, 0, 4) == 0)
			flags |= O_CREAT | O_TRUNC;
		else if (!model->content && g_rand_int_range(rand, 0, 3) == 0)
			flags |= O_EXCL;
		EXPECT(sbx_ws_open(ws, call, model->path, flags, 0600, getpid(), &model->file,
				   &attr) == 0);
		if (!model->content)
			model->content = g_string_new(NULL);
		if (flags & O_TRUNC)
			g_string_truncate(model->content, 0);
		return;
	}
	offset = (size_t)g_rand_int_range(rand, 0, 20000);
	len = (size_t)g_rand_int_range(rand, 1, sizeof(data));
	switch (g_rand_int_range(rand, 0, 12)) {
	case 0:
	case 1:
	case 2:
	case 3:
		memset(data, g_rand_int_range(rand, 'a', 'z'), len);
		EXPECT(sbx_file_write(model->file, call, data, len, offset) == (ssize_t)len);
		model_write(model, data, len, offset);
		break;
	case 4:
	case 5:
	case 6:
		n = sbx_file_read(model->file, call, buf, sizeof(buf), offset);
		if (offset >= model->content->len) {
			EXPECT(n == 0);
		} else {
			EXPECT(n == (ssize_t)MIN(sizeof(buf), model->content->len - offset));
			EXPECT(memcmp(buf, model->content->str + offset, (size_t)n) == 0);
		}
		break;
	case 7:
		change.size_bytes = offset;
		EXPECT(sbx_ws_setattr(ws, call, model->path, model->file, &change, &attr) == 0);
		EXPECT(attr.size == offset);
		len = model->content->len;
		g_string_set_size(model->content, offset);
		if (offset > len)
			memset(model->content->str + len, 0, offset - len);
		break;
	case 8:
		EXPECT(sbx_file_fsync(model->file, call) == 0);
		break;
	case 9:
		EXPECT(sbx_ws_stat(ws, call, model->path, SBX_STAT_TTL, &attr, NULL) == 0);
		EXPECT(attr.size == model->content->len);
		break;
	case 10: {
		char path[32];

		g_snprintf(path, sizeof(path), "w%u.%u", worker->number,
			   g_rand_int_range(rand, 0, 1000000));
		EXPECT(sbx_ws_rename(ws, call, model->path, path, 0) == 0);
		g_strlcpy(model->path, path, sizeof(model->path));
		break;
	}
	default:
		EXPECT(sbx_file_flush(model->file, call, getpid()) == 0);
		EXPECT(sbx_file_release(model->file, call) == 0);
		model->file = NULL;
		if (g_rand_int_range(rand, 0, 4) == 0) {
			EXPECT(sbx_ws_unlink(ws, call, model->path) == 0);
			g_string_free(model->content, TRUE);
			model->content = NULL;
		} else {
			gsize remote_len;
			g_autofree char *text = remote(worker->f, model->path, &remote_len);

			EXPECT(remote_len == model->content->len);
			EXPECT(memcmp(text, model->content->str, remote_len) == 0);
		}
	}
}

static void *worker_run(void *arg)
{
	struct worker *worker = arg;
	GRand *rand = g_rand_new_with_seed(worker->number);
	struct model models[4] = { 0 };

	for (unsigned int i = 0; i < G_N_ELEMENTS(models); i++)
		g_snprintf(models[i].path, sizeof(models[i].path), "w%u.f%u", worker->number, i);
	for (unsigned int i = 0; i < worker->steps && !worker->failed; i++)
		worker_step(worker, &models[g_rand_int_range(rand, 0, G_N_ELEMENTS(models))], rand);
	for (unsigned int i = 0; i < G_N_ELEMENTS(models); i++) {
		if (models[i].file)
			(void)sbx_file_release(models[i].file, &worker->f->rig.call);
		if (models[i].content)
			g_string_free(models[i].content, TRUE);
	}
	g_rand_free(rand);
	return NULL;
}

static void test_workers(void **state)
{
	struct worker workers[4];
	pthread_t threads[G_N_ELEMENTS(workers)];
	const char *steps = getenv("STEPS");
	struct fixture f;

	open_with(&f, tools_args(state), 100);
	for (unsigned int i = 0; i < G_N_ELEMENTS(workers); i++) {
		workers[i] = (struct worker){ &f, i,
					      steps ? (unsigned int)strtoul(steps, NULL, 10) : 150,
					      false };
		assert_int_equal(pthread_create(&threads[i], NULL, worker_run, &workers[i]), 0);
	}
	for (unsigned int i = 0; i < G_N_ELEMENTS(workers); i++)
		pthread_join(threads[i], NULL);
	for (unsigned int i = 0; i < G_N_ELEMENTS(workers); i++)
		assert_false(workers[i].failed);
	assert_int_equal(pending(&f), 0);
	close_all(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		GNU(test_early_upload),
		GNU(test_workers),
		BUSYBOX(test_workers),
	};
	const char *only = getenv("ONLY");

	if (only)
		cmocka_set_test_filter(only);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
