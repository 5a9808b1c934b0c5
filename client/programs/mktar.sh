# shellcheck shell=sh
# shellcheck disable=SC2154 # the prelude's variables
# The workspace as an archive in a staging file, where the server's own can't (client/snapshot/
# persist.h): mktar FILE. Answers "SIZE\0", or "!ERRNO" where there is no archive.

umask 077
workdir
rm -f "$1"
tar -cf "$1" --exclude=./.sbxfs .
# 1: a file changed while it was read; what it holds is compared later.
if [ $? -le 1 ] && [ -s "$1" ]; then
	frame - "$(printf '%d\0' "$(wc -c <"$1")" | b64)"
else
	rm -f "$1"
	frame - "$(printf '!EIO\0' | b64)"
fi
