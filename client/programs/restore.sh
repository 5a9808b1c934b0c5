# shellcheck shell=sh
# shellcheck disable=SC2154 # the prelude's variables
# What an archive loses, put back in bulk (client/snapshot/restore.h). Every step may be done twice,
# and what it replaces is there until its successor is.
#
#   d - PATH             a directory, made when missing
#   n FROM PATH          a file that came under another name; nothing when FROM is gone
#   l TEXT PATH          a symbolic link
#   h FIRST PATH         another name of FIRST
#   s FIRST PATH         the same, only where PATH is a file that holds what FIRST does
#   m MODE COUNT PATH... chmod
#   t STAMP COUNT PATH... mtime, STAMP as touch -d takes it; links themselves
#   u COUNT PATH...      unlink
#   r COUNT PATH...      rmdir
#
# Answers records: how many steps failed; then which of the steps s, counted from 0, found files
# that differ.

umask 077
export TZ=UTC0
failed=0 compared=0 unlike=''

# over NEW PATH: NEW in the place of PATH, which is no directory.
over() {
	[ ! -d "$2" ] || [ -L "$2" ] || return 1
	if has T; then
		mv -fT "$1" "$2"
	else
		# A link to a directory would take it in.
		[ ! -L "$2" ] || rm -f "$2"
		mv -f "$1" "$2"
	fi
}

# beside PATH: x is a name of ours in its directory.
beside() {
	case $1 in
	*/*) x=${1%/*}/.sbxfs.$N ;;
	*) x=.sbxfs.$N ;;
	esac
	rm -f "$x"
}

# placed PATH: x over PATH; x is gone in any case.
placed() {
	over "$x" "$1"
	set -- $?
	rm -f "$x"
	return "$1"
}

# link FIRST PATH. No tool puts a name of a file in the place of another one of it.
link() {
	# shellcheck disable=SC3013 # where a shell knows no -ef the step fails if done twice
	[ ! "$1" -ef "$2" ] || [ -L "$2" ] || return 0
	beside "$2"
	ln "$1" "$x" && placed "$2"
}

step() {
	case $1 in
	d)
		dec "$3"
		[ -d "$D" ] || mkdir -p "$D"
		;;
	n)
		dec "$3"
		t=$D
		dec "$2"
		[ ! -e "$D" ] || over "$D" "$t"
		;;
	l)
		dec "$3"
		t=$D
		dec "$2"
		beside "$t"
		ln -s -- "$D" "$x" && placed "$t"
		;;
	h)
		dec "$3"
		t=$D
		dec "$2"
		link "$D" "$t"
		;;
	s)
		compared=$((compared + 1))
		dec "$3"
		t=$D
		dec "$2"
		if [ -f "$D" ] && [ ! -L "$D" ] && [ -f "$t" ] && [ ! -L "$t" ] &&
			cmp -s "$D" "$t"; then
			link "$D" "$t"
		else
			unlike="$unlike $((compared - 1))"
		fi
		;;
	esac
}

while [ $# -gt 2 ]; do
	case $1 in
	m | t)
		verb=$1 value=$2 count=$3
		shift 3
		;;
	u | r)
		verb=$1 count=$2
		shift 2
		;;
	*)
		step "$@" || failed=$((failed + 1))
		shift 3
		continue
		;;
	esac
	spelled "$count" "$@"
	shift "$count"
	case $verb in
	m) eval "chmod $value $args" ;;
	t) eval "touch -hcm -d '$value' $args" ;;
	u) eval "rm -f $args" ;;
	r) eval "rmdir $args" ;;
	esac || failed=$((failed + 1))
done
# shellcheck disable=SC2086 # a word each
frame - "$(printf '%d\0' $failed $unlike | b64)"
