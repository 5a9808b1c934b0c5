/* Opening and creating files. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/apply.h"
#include "client/probe.h"
#include "client/session.h"
#include "client/workspace/files_impl.h"
#include "client/workspace/names.h"
#include "client/workspace/op.h"
#include "client/workspace/path.h"
#include "client/workspace/process.h"

/* A file that comes and goes faster than it can be opened. */
#define OPEN_TRIES 5

/* What an open found. */
struct opening {
	const char *path;
	int flags;
	mode_t mode;
	bool looked; /* the sandbox was asked; else unsent bytes showed that it is there */
	bool exists; /* in the sandbox, with attr */
	bool made; /* by this open, exclusively */
	struct sbx_attr attr;
};

static int type_error(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return 0;
	case S_IFDIR:
		return -EISDIR;
	case S_IFLNK:
		return -ELOOP;
	default:
		return -ENXIO;
	}
}

/* The directory in which @path would be made. */
static int check_parent(struct sbx_files *files, const struct sbx_call *call, const char *path)
{
	g_autofree char *parent = sbx_path_parent(path);
	struct sbx_attr attr;
	int r;

	if (!parent)
		return -EISDIR;
	r = sbx_names_stat(files->names, call, parent, SBX_STAT_TTL, &attr, NULL, NULL);
	if (r < 0)
		return r;
	return S_ISDIR(attr.mode) ? 0 : -ENOTDIR;
}

/* O_EXCL: the sandbox decides. -EOPNOTSUPP without exec. */
static int create_exclusive(struct sbx_files *files, const struct sbx_call *call,
			    struct opening *opening)
{
	struct sbx_op op = {
		.kind = SBX_DO_CREATE,
		.path = opening->path,
		.mode = opening->mode & 0777,
	};
	struct sbx_op_result result = { 0 };
	int r;

	r = sbx_names_apply(files->names, call,
			    sbx_session_options(files->session)->mutation_timeout_ms, &op, 1,
			    &result);
	if (r < 0)
		return r;
	r = result.error;
	if (r == 0 && !result.has_attr)
		r = -EIO;
	if (r == 0) {
		opening->attr = result.attr;
		opening->exists = true;
		opening->made = true;
	}
	sbx_op_results_clear(&result, 1);
	return r;
}

int sbx_files_access(struct sbx_files *files, const struct sbx_attr *attr, int mask)
{
	const struct sbx_probe_reply *probe;

	if ((!(mask & R_OK) || attr->mode & 0444) && (!(mask & W_OK) || attr->mode & 0222) &&
	    (!(mask & X_OK) || !S_ISDIR(attr->mode) || attr->mode & 0111))
		return 0;
	probe = sbx_names_probe_cached(files->names);
	return probe && probe->uid != 0 ? -EACCES : 0;
}

/* May what is there be opened so? What could not be put in place would be told to nobody later. */
static int access_error(struct sbx_files *files, const struct opening *opening)
{
	bool writes = (opening->flags & O_ACCMODE) != O_RDONLY || opening->flags & O_TRUNC;

	return writes ? sbx_files_access(files, &opening->attr, W_OK) : 0;
}

/* Is the file there, and what is it? Creates it where that is exclusive. */
static int opening_look(struct sbx_files *files, const struct sbx_call *call,
			struct opening *opening)
{
	bool create = opening->flags & O_CREAT;
	bool exclusive = create && opening->flags & O_EXCL;
	int r;

	if (exclusive) {
		r = create_exclusive(files, call, opening);
		if (r != -EOPNOTSUPP)
			return r;
	}
	r = sbx_names_stat(files->names, call, opening->path,
			   exclusive ? SBX_STAT_NOW : SBX_STAT_TTL, &opening->attr, NULL, NULL);
	if (r == -ESTALE && (opening->flags & O_ACCMODE) == O_RDONLY)
		/* The session is gone: what was fetched before can still be read. */
		r = sbx_names_stat(files->names, call, opening->path, SBX_STAT_CACHED,
				   &opening->attr, NULL, NULL) == 0
			    ? 0
			    : -ESTALE;
	if (r == -ENOENT && create)
		return check_parent(files, call, opening->path);
	if (r < 0)
		return r;
	if (exclusive)
		return -EEXIST;
	opening->exists = true;
	r = type_error(opening->attr.mode);
	return r < 0 ? r : access_error(files, opening);
}

/*
 * Bring node and open file to what the open means. Called with node->lock, which is let go of
 * while content is fetched.
 */
static int opening_enter_locked(struct sbx_node_file *node, const struct sbx_call *call,
				struct sbx_file *file, struct opening *opening)
{
	struct sbx_content *content;
	struct sbx_attr attr;
	int r = 0;

	/* Unsent changes, or a publish that is ending, know better than what was looked up; and one
	 * that has ended since has told the store. */
	if (!node->spool && opening->exists &&
	    sbx_names_remote_attr(node->files->names, opening->path, &attr) == 0 &&
	    S_ISREG(attr.mode))
		opening->attr = attr;
	if (!node->spool && opening->exists)
		nfile_set_attr_locked(node, &opening->attr);
	if (!node->spool && !opening->exists && opening->looked)
		nfile_forget_attr_locked(node);
	/* The older version is pinned for those that were open before, not for this one. */
	sbx_content_unref(file->pinned);
	file->pinned = NULL;
	if (opening->made)
		node->fresh = opening->attr.size == 0;
	if (!node->spool && !node->has_attr && !opening->looked)
		return -EAGAIN; /* it was removed meanwhile */
	if (!node->spool && !node->has_attr)
		return nfile_restart_locked(
			node, SBX_SPOOL_NEW | (opening->flags & O_TRUNC ? 0 : SBX_SPOOL_ADDS),
			opening->mode);
	if (opening->flags & O_TRUNC && file->writable && !opening->made)
		return nfile_restart_locked(node, 0, 0);
	if (file->readable &&
	    (!node->spool || sbx_layout_needs_base(sbx_spool_layout(node->spool)))) {
		r = nfile_content_locked(node, call, &content);
		if (r == 0) {
			/* A small file came with the attributes of this moment. */
			if (!node->spool)
				sbx_content_attr(content, &node->attr);
			sbx_content_unref(content);
		}
	}
	return r;
}

/* One try. -EAGAIN: what was looked up is no longer so. */
static int files_try_open(struct sbx_files *files, const struct sbx_call *call,
			  struct opening *opening, struct sbx_file *file, struct sbx_attr *ret_attr)
{
	struct sbx_node_file *node = files_find(files, opening->path);
	bool unsent = false;
	int r = 0;

	if (node) {
		pthread_mutex_lock(&node->lock);
		unsent = nfile_is_unsent_locked(node);
		pthread_mutex_unlock(&node->lock);
		nfile_unref(node);
	}
	opening->looked = !unsent;
	opening->exists = opening->made = false;
	if (unsent && opening->flags & O_CREAT && opening->flags & O_EXCL)
		r = -EEXIST;
	else if (!unsent)
		r = opening_look(files, call, opening);
	if (r == 0 && opening->looked && opening->exists)
		r = files_publish_links(files, call, opening->path, &opening->attr, false);
	if (r < 0)
		return r;
	node = files_obtain(files, opening->path);
	if (!node)
		return -ENOMEM;
	file->node = node;
	pthread_mutex_lock(&node->lock);
	if (node->handles.length == 0)
		node->stat_run = 0;
	g_queue_push_tail_link(&node->handles, &file->link);
	r = opening_enter_locked(node, call, file, opening);
	if (r == -ESTALE && node->detached)
		r = -EAGAIN; /* replaced meanwhile, by us */
	if (r < 0)
		g_queue_unlink(&node->handles, &file->link);
	else if (nfile_is_unsent_locked(node))
		nfile_local_attr_locked(node, ret_attr);
	else
		*ret_attr = node->attr;
	pthread_mutex_unlock(&node->lock);
	nfile_settle_ref(node);
	if (r < 0) {
		sbx_content_unref(file->pinned);
		file->pinned = NULL;
		nfile_unref(node);
	}
	return r;
}

static struct sbx_file *file_new(int flags, pid_t opener)
{
	struct sbx_file *file = calloc(1, sizeof(*file));

	if (!file)
		return NULL;
	file->link.data = file;
	file->writable = (flags & O_ACCMODE) != O_RDONLY;
	file->readable = (flags & O_ACCMODE) != O_WRONLY;
	/* Nothing is asked of who only reads. */
	file->opener = file->writable ? sbx_process_of(opener) : opener;
	return file;
}

int sbx_files_open(struct sbx_files *files, const struct sbx_call *call, const char *path,
		   int flags, mode_t mode, pid_t opener, struct sbx_file **ret_file,
		   struct sbx_attr *ret_attr)
{
	struct opening opening = { .path = path, .flags = flags, .mode = mode };
	struct sbx_file *file = file_new(flags, opener);
	int r = -EAGAIN;

	if (!file)
		return -ENOMEM;
	sbx_files_used(files);
	for (int tries = 0; tries < OPEN_TRIES && r == -EAGAIN; tries++)
		r = files_try_open(files, call, &opening, file, ret_attr);
	if (r < 0) {
		free(file);
		return r == -EAGAIN ? -EIO : r;
	}
	*ret_file = file;
	return 0;
}

int sbx_file_open_again(struct sbx_file *file, int flags, pid_t opener, struct sbx_file **ret_file)
{
	struct sbx_node_file *node = nfile_ref(file->node);
	struct sbx_file *again = file_new(flags, opener);
	bool truncates;
	int r = 0;

	if (!again) {
		nfile_unref(node);
		return -ENOMEM;
	}
	again->node = node;
	truncates = flags & O_TRUNC && again->writable;
	pthread_mutex_lock(&node->lock);
	if (truncates)
		r = nfile_restart_locked(node, 0, 0);
	else if (file->pinned)
		again->pinned = sbx_content_ref(file->pinned);
	if (r == 0)
		g_queue_push_tail_link(&node->handles, &again->link);
	pthread_mutex_unlock(&node->lock);
	nfile_settle_ref(node);
	if (r < 0) {
		free(again);
		nfile_unref(node);
		return r;
	}
	*ret_file = again;
	return 0;
}

bool sbx_file_is_old(struct sbx_file *file)
{
	struct sbx_node_file *node = file->node;
	bool old;

	pthread_mutex_lock(&node->lock);
	old = file->pinned || node->detached;
	pthread_mutex_unlock(&node->lock);
	return old;
}

uint64_t sbx_file_version(struct sbx_file *file)
{
	struct sbx_node_file *node = file->node;
	uint64_t version = 0;

	pthread_mutex_lock(&node->lock);
	if (file->pinned)
		version = sbx_content_version(file->pinned);
	else if (!node->spool && node->content)
		version = sbx_content_version(node->content);
	pthread_mutex_unlock(&node->lock);
	return version;
}
