# shellcheck shell=sh
# shellcheck disable=SC2154 # the prelude's variables
# Bytes of several files (client/pack.h).
#
#   COMPRESS FOLLOW MAX_BYTES PATHS PATH... [INDEX OFFSET LENGTH]...
#
# Paths count from 1. OFFSET "-": the whole file, without LENGTH's being looked at. Two sections:
# the clock, xWHY\0INDEX\0 for what can't be read, attributes before, and behind their end the
# bytes, one item behind the other as each came, and a digit; attributes after. How many bytes an
# item has follows from its size.
#
# One path alone is opened before anything else, and all that follows is of what was opened: a file
# that is replaced all the time can still be read.

# range FILE OFFSET LENGTH: these bytes.
range() {
	if has k; then
		dd if="$1" bs=65536 iflag=skip_bytes,count_bytes,fullblock skip="$2" count="$3"
	else
		dd if="$1" bs=4096 skip=$(($2 / 4096)) | tail -c +$(($2 % 4096 + 1)) | head -c "$3"
	fi
}

# flush: the bytes of the whole files gathered in w.
flush() {
	[ -z "$w" ] || eval "cat $w" || s=1
	w=
}

# content [INDEX OFFSET LENGTH]...: the bytes of all items, and 0 when all could be read, else 1.
content() {
	w='' s=0
	while [ $# -gt 2 ]; do
		eval "f=\$q$1 y=\$y$1"
		if [ -n "$y" ] && [ "$2" = - ]; then
			w="$w \"\$q$1\""
		elif [ -n "$y" ]; then
			flush
			range "$f" "$2" "$3" || s=1
		fi
		shift 3
	done
	flush
	printf %s $s
}

# before: the first section.
before() {
	clock
	i=0
	while [ $i -lt "$count" ]; do
		i=$((i + 1))
		eval "x=\$x$i f=\$q$i"
		[ "$x" != gone ] || x=$(gone "$f")
		[ -z "$x" ] || printf 'x%s\0%s\0' "$x" $i
	done
	[ -z "$ok" ] || eval "attrs f 0 $ok"
	printf 'e\0'
}

# bounded [INDEX OFFSET LENGTH]...: content, no more than may come. A range has its own bound.
bounded() {
	case " $* " in
	*" - "*) content "$@" | head -c "$max" ;;
	*) content "$@" ;;
	esac
}

after() {
	[ -z "$ok" ] || eval "attrs f 0 $ok"
	printf 'e\0'
}

# line: the same of what is held open, as a line of text.
line() {
	find -L /proc/self/fd/3 -maxdepth 0 -printf "af $A\t\t"
	printf 'e\t\n'
}

form=-
[ "$1" -eq 1 ] && has z && form=z
[ "$2" -eq 1 ] && L=-L
max=$3 count=$4
shift 4
i=0 ok=
while [ $i -lt "$count" ]; do
	i=$((i + 1))
	dec "$1"
	shift
	x=
	if [ -z "$L" ] && [ -L "$D" ]; then
		x=!ELOOP
	elif [ -d "$D" ]; then
		x=!EISDIR
	elif [ ! -e "$D" ]; then
		x=gone
	elif [ ! -f "$D" ]; then
		x=!EINVAL
	elif [ ! -r "$D" ]; then
		x=!EACCES
	else
		ok="$ok \"\$q$i\""
	fi
	eval "q$i=\$D x$i=\$x y$i="
	[ -n "$x" ] || eval "y$i=1"
done

# held FILE: keeps the file open; false where an open file can't be named.
held() {
	command exec 3<"$1" && [ -f /proc/self/fd/3 ]
}

one=
if [ "$count" -eq 1 ] && [ -n "$ok" ] && held "$D"; then
	# shellcheck disable=SC2034 # the programs' lists of paths name it
	q1=/proc/self/fd/3 L=-L one=1
fi

if flows && [ -n "$one" ] && has f; then
	flow $form . t .
	{ before && bounded "$@"; } | armoured $form
	echo
	line
	flow_end
elif flows; then
	flow $form . - .
	{ before && bounded "$@"; } | armoured $form
	echo
	after | armoured -
	echo
	flow_end
else
	a=$({ before && bounded "$@"; } | armoured $form)
	b=$(after | armoured -)
	frame $form "$a" - "$b"
fi
