# shellcheck shell=sh
# shellcheck disable=SC2154 # the prelude's variables
# SHA-256 of regular files (client/snapshot/restore.h): digest COUNT PATH... [ODD...]
# The first COUNT names hold no newline and no backslash and are hashed together, a line
# "HEX  NAME" each; the others one by one, a line "HEX  -" or "?" each, in their order. A file that
# can't be read has no line among the first.

count=$1
shift
spelled "$count" "$@"
shift "$count"
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
form=-
has z && form=z
frame $form "$(sums "$@" | armoured $form)"
