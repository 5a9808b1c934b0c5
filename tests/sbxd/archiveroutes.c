#include "tests/sbxd/archiveroutes.h"
#include "tests/sbxd/pool.h"
#include "tests/sbxd/routes.h"
#include "tests/sbxd/tarread.h"
#include "tests/sbxd/tarwrite.h"
#include "tests/sbxd/tree.h"

#include <sys/stat.h>
#include <unistd.h>

void archiveroutes_persist(struct exchange *x)
{
	g_autofree char *message = NULL;
	struct stat st;
	int fd, err;

	if (pool_enter(x->service->pool))
		return;
	fd = tree_open_unnamed(x->service->opt->root);
	if (fd < 0) {
		reply_errno(&x->reply, -fd, "open", x->service->opt->root);
	} else {
		err = tar_write(x->session->dir, fd, &message);
		if (!err && fstat(fd, &st) == 0) {
			reply_file(&x->reply, fd, 0, (uint64_t)st.st_size);
		} else {
			reply_error(&x->reply, 500, "internal_error", message);
			close(fd);
		}
	}
	pool_leave(x->service->pool);
}

void archiveroutes_hydrate(struct exchange *x)
{
	g_autofree char *message = NULL;
	struct body body;

	if (routes_read_body(x, &body))
		return;
	if (pool_enter(x->service->pool) == 0) {
		if (tar_extract(body.data, body.len_bytes, x->session->dir, &message) == 0)
			reply_ok(&x->reply);
		else
			reply_error(&x->reply, 500, "internal_error", message);
		pool_leave(x->service->pool);
	}
	body_clear(&body);
}
