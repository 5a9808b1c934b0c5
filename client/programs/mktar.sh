# shellcheck shell=sh
# shellcheck disable=SC2154 # the prelude's variables
# The workspace as an archive in a staging file, where the server's own can't (client/snapshot/
# persist.c): mktar FILE. Answers "SIZE\0", or "!ERRNO" where there is no archive.

umask 077
workdir
out=$1
rm -f "$out"
# BusyBox's tar knows no --exclude: it is given what lies in the root, by name.
case $(tar --version) in
*GNU*)
	set -- --exclude=./.sbxfs .
	;;
*)
	set --
	set +f
	for a in ./* ./.[!.]* ./..?*; do
		[ "$a" != ./.sbxfs ] || continue
		[ -e "$a" ] || [ -L "$a" ] || continue
		set -- "$@" "$a"
	done
	set -f
	;;
esac
if [ $# -gt 0 ]; then
	tar -cf "$out" "$@"
else
	dd if=/dev/zero of="$out" bs=512 count=2
fi
# 1: a file changed while it was read; what the archive holds is compared later.
if [ $? -le 1 ] && [ -s "$out" ]; then
	frame - "$(printf '%d\0' "$(wc -c <"$out")" | b64)"
else
	rm -f "$out"
	frame - "$(printf '!EIO\0' | b64)"
fi
