#include "client/token.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <glib.h>

#include "client/localfile.h"

#define TOKEN_PREFIX "Authorization: Bearer "

/* What lies in the page of its own. */
struct token_page {
	char now[SBX_TOKEN_MAX + 1];
	char before[SBX_TOKEN_MAX + 1]; /* a server may still echo it */
};

struct sbx_token {
	pthread_mutex_t lock; /* everything below but file */
	char *file;
	struct token_page *page;
	bool exposed;
	uint64_t generation;
	/* The file as it was when it was read last. */
	struct stat seen;
};

extern char **environ;

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* Trims line ends; -EINVAL when no header may carry what is left. */
static int token_check(char *text, size_t len)
{
	while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r'))
		len--;
	text[len] = '\0';
	if (len == 0)
		return -EINVAL;
	for (size_t i = 0; i < len; i++) {
		if ((unsigned char)text[i] < 0x21 || (unsigned char)text[i] > 0x7e)
			return -EINVAL;
	}
	return 0;
}

/* @ret_text has SBX_TOKEN_MAX + 1 bytes; it is scratched also on failure. */
static int token_read_file(const char *file, char *ret_text, struct stat *ret_stat)
{
	size_t len = 0;
	int r = 0;
	int fd;

	/* O_NONBLOCK: a FIFO put there must not hang a request. */
	fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return -errno;
	if (fstat(fd, ret_stat) < 0) {
		r = -errno;
		goto out;
	}
	if (S_ISDIR(ret_stat->st_mode)) {
		r = -EISDIR;
		goto out;
	}
	r = sbx_local_read_up_to(fd, ret_text, SBX_TOKEN_MAX + 1, &len);
	if (r < 0)
		goto out;
	r = len > SBX_TOKEN_MAX ? -EINVAL : token_check(ret_text, len);
out:
	close(fd);
	return r;
}

/* Takes SBX_TOKEN out of the environment, the bytes that /proc/self/environ shows included. */
static int token_take_env(char *ret_text)
{
	static const char name[] = "SBX_TOKEN=";
	int r = -ENOENT;

	for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
		char *value;
		size_t len;

		if (strncmp(*entry, name, sizeof(name) - 1) != 0)
			continue;
		value = *entry + sizeof(name) - 1;
		len = strlen(value);
		if (r == -ENOENT) {
			if (len > SBX_TOKEN_MAX) {
				r = -EINVAL;
			} else {
				memcpy(ret_text, value, len);
				r = token_check(ret_text, len);
			}
		}
		explicit_bzero(value, len);
	}
	unsetenv("SBX_TOKEN");
	return r;
}

int sbx_token_new(const char *file, struct sbx_token **ret_token)
{
	struct sbx_token *token = calloc(1, sizeof(*token));
	int r;

	if (token == NULL)
		return -ENOMEM;
	pthread_mutex_init(&token->lock, NULL);
	token->page = mmap(NULL, sizeof(*token->page), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (token->page == MAP_FAILED) {
		token->page = NULL;
		r = -ENOMEM;
		goto fail;
	}
	/* Both are a precaution: where they are not allowed the token is used all the same. */
	madvise(token->page, sizeof(*token->page), MADV_DONTDUMP);
	mlock(token->page, sizeof(*token->page));

	r = token_take_env(token->page->now);
	if (file != NULL) {
		explicit_bzero(token->page->now, sizeof(token->page->now));
		token->file = strdup(file);
		if (token->file == NULL) {
			r = -ENOMEM;
			goto fail;
		}
		r = token_read_file(file, token->page->now, &token->seen);
		token->exposed = r == 0 && (token->seen.st_mode & 077) != 0;
	} else if (r == -ENOENT) {
		token->page->now[0] = '\0';
		r = 0;
	}
	if (r < 0)
		goto fail;
	*ret_token = token;
	return 0;
fail:
	sbx_token_free(token);
	return r;
}

void sbx_token_free(struct sbx_token *token)
{
	if (token == NULL)
		return;
	if (token->page != NULL) {
		explicit_bzero(token->page, sizeof(*token->page));
		munmap(token->page, sizeof(*token->page));
	}
	pthread_mutex_destroy(&token->lock);
	free(token->file);
	free(token);
}

bool sbx_token_present(struct sbx_token *token)
{
	bool present;

	pthread_mutex_lock(&token->lock);
	present = token->page->now[0] != '\0';
	pthread_mutex_unlock(&token->lock);
	return present;
}

bool sbx_token_exposed(struct sbx_token *token)
{
	bool exposed;

	pthread_mutex_lock(&token->lock);
	exposed = token->exposed;
	pthread_mutex_unlock(&token->lock);
	return exposed;
}

static int token_refresh_locked(struct sbx_token *token, bool force)
{
	char text[SBX_TOKEN_MAX + 1];
	struct stat seen;
	int r;

	if (token->file == NULL)
		return 0;
	if (!force) {
		if (stat(token->file, &seen) < 0)
			return -errno;
		if (same_file(&seen, &token->seen))
			return 0;
	}
	r = token_read_file(token->file, text, &seen);
	if (r == 0) {
		token->seen = seen;
		token->exposed = (seen.st_mode & 077) != 0;
		if (strcmp(text, token->page->now) != 0) {
			memcpy(token->page->before, token->page->now, sizeof(token->page->before));
			memcpy(token->page->now, text, strlen(text) + 1);
			token->generation++;
			r = 1;
		}
	}
	explicit_bzero(text, sizeof(text));
	return r;
}

int sbx_token_refresh(struct sbx_token *token, bool force)
{
	int r;

	pthread_mutex_lock(&token->lock);
	r = token_refresh_locked(token, force);
	pthread_mutex_unlock(&token->lock);
	return r;
}

uint64_t sbx_token_generation(struct sbx_token *token)
{
	uint64_t generation;

	pthread_mutex_lock(&token->lock);
	(void)token_refresh_locked(token, false);
	generation = token->generation;
	pthread_mutex_unlock(&token->lock);
	return generation;
}

char *sbx_token_header(struct sbx_token *token)
{
	char *header = NULL;

	pthread_mutex_lock(&token->lock);
	if (token->page->now[0] != '\0') {
		size_t size = sizeof(TOKEN_PREFIX) + strlen(token->page->now);

		header = malloc(size);
		if (header != NULL)
			snprintf(header, size, TOKEN_PREFIX "%s", token->page->now);
	}
	pthread_mutex_unlock(&token->lock);
	return header;
}

void sbx_token_header_free(char *header)
{
	if (header == NULL)
		return;
	explicit_bzero(header, strlen(header));
	free(header);
}

static void strip_one(GString *text, const char *secret)
{
	static const char bearer[] = "Bearer ";
	static const char mark[] = "[token]";
	size_t secret_len = strlen(secret);
	gsize from = 0;
	char *hit;

	if (secret_len == 0)
		return;
	while ((hit = strstr(text->str + from, secret)) != NULL) {
		gsize at = (gsize)(hit - text->str);
		gsize len = secret_len;

		if (at - from >= sizeof(bearer) - 1 &&
		    g_ascii_strncasecmp(hit - (sizeof(bearer) - 1), bearer, sizeof(bearer) - 1) ==
			    0) {
			at -= sizeof(bearer) - 1;
			len += sizeof(bearer) - 1;
		}
		g_string_erase(text, (gssize)at, (gssize)len);
		g_string_insert(text, (gssize)at, mark);
		from = at + sizeof(mark) - 1;
	}
}

char *sbx_token_strip(struct sbx_token *token, const char *text)
{
	GString *stripped = g_string_new(text);

	pthread_mutex_lock(&token->lock);
	strip_one(stripped, token->page->now);
	strip_one(stripped, token->page->before);
	pthread_mutex_unlock(&token->lock);
	return g_string_free(stripped, FALSE);
}
