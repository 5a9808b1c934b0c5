# shellcheck shell=sh
# shellcheck disable=SC2154 # the prelude's variables
# SHA-256 of regular files (client/snapshot/restore.h): digest COUNT PATH... [ODD...]
# The first COUNT names hold no newline and no backslash and are hashed together, a line
# "HEX  NAME" each; the others one by one, a line "HEX  -" or "?" each, in their order. A file that
# can't be read has no line among the first.

count=$1
shift
i=0 args=
while [ $i -lt "$count" ]; do
	dec "$1"
	shift
	i=$((i + 1))
	eval "q$i=\$D"
	args="$args \"\$q$i\""
done
sums() {
	[ "$count" -eq 0 ] || eval "sha256sum -- $args"
	printf '\0'
	for a; do
		dec "$a"
		if [ -f "$D" ] && [ ! -L "$D" ]; then
			sha256sum <"$D" || echo '?'
		else
			echo '?'
		fi
	done
}
if has z; then
	frame z "$(sums "$@" | gzip -1 | b64)"
else
	frame - "$(sums "$@" | b64)"
fi
