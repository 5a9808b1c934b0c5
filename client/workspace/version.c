#include "client/workspace/version.h"

#include "client/attr.h"

void sbx_version_of(const struct sbx_attr *attr, struct sbx_version *ret_version)
{
	*ret_version = (struct sbx_version){
		.dev = attr->dev,
		.ino = attr->ino,
		.size_bytes = attr->size,
		.mtime_ns = attr->mtime_ns,
		.ctime_ns = attr->ctime_ns,
	};
}

bool sbx_version_equal(const struct sbx_version *a, const struct sbx_version *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size_bytes == b->size_bytes &&
	       a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

/* A step of splitmix64: every bit of the input reaches every bit of the output. */
static uint64_t version_mix(uint64_t hash, uint64_t value)
{
	hash ^= value + UINT64_C(0x9e3779b97f4a7c15) + (hash << 6) + (hash >> 2);
	hash = (hash ^ (hash >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	hash = (hash ^ (hash >> 27)) * UINT64_C(0x94d049bb133111eb);
	return hash ^ (hash >> 31);
}

uint64_t sbx_version_hash(const struct sbx_version *version)
{
	uint64_t hash = version_mix(0, version->dev);

	hash = version_mix(hash, version->ino);
	hash = version_mix(hash, version->size_bytes);
	hash = version_mix(hash, (uint64_t)version->mtime_ns);
	hash = version_mix(hash, (uint64_t)version->ctime_ns);
	return hash ? hash : 1;
}
