# shellcheck shell=sh
# shellcheck disable=SC2154 # the prelude's variables
# What an archive loses, put back in bulk (client/snapshot/restore.h). Every step may be done twice.
#
#   d MODE PATH          a directory, made when missing
#   n FROM PATH          a file that came under another name; nothing when FROM is gone
#   l TEXT PATH          a symbolic link
#   h FIRST PATH         another name of FIRST
#   m MODE COUNT PATH... chmod
#   t STAMP COUNT PATH... mtime, STAMP as touch -d takes it; links themselves
#   u COUNT PATH...      unlink
#   r COUNT PATH...      rmdir
#
# Answers one record: how many steps failed.

umask 077
export TZ=UTC0
failed=0

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
		if [ -e "$D" ]; then
			rm -f "$t"
			mv -f "$D" "$t"
		fi
		;;
	l)
		dec "$3"
		t=$D
		dec "$2"
		rm -f "$t"
		ln -s -- "$D" "$t"
		;;
	h)
		dec "$3"
		t=$D
		dec "$2"
		rm -f "$t"
		ln "$D" "$t"
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
frame - "$(printf '%d\0' $failed | b64)"
