#include "client/attr.h"

bool sbx_attr_same(const struct sbx_attr *a, const struct sbx_attr *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->mode == b->mode && a->size == b->size &&
	       a->nlink == b->nlink && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}
