# shellcheck shell=sh
# shellcheck disable=SC2154 # the prelude's variables
# A list of mutations, done once and in order (client/apply.h).
#
#   ID SWEEP WORDS WORD... PATHS PATH... [VERB COUNT ARG...]...
#
# Before the ID stands a "-", or a "+" where the same was asked for before.
# Words are those of scan.sh, or none: what is listed afterwards, in a section of its own.
# Paths count from 1, and 0 is none; those without a "-" before them are looked at in the end.
# "&VERB" is left out when the operation before it failed. Records: rFLAGS\0WHY\0 of each operation
# in order, where an empty WHY is success; o when the outcome could not be kept; attributes, those
# of the outcome's file too when something was saved: its mtime is that of the last content; e.
#
# The outcome is kept in .sbxfs/ops/ID: empty while the operations run, then the form of the answer,
# the answer, and a dot; "!void." where it is never to be done. Umask 077: what is made without a
# mode is ours alone.
#
# Processes are what a request costs, so an answer in which nothing has to be armoured is made by
# find alone.

# include survey.sh
# on demand: do_* survey

umask 077
export TZ=UTC0

# run COMMAND...: runs it; E is why it failed.
run() {
	if E=$("$@" 2>&1); then
		E=
	else
		[ -n "$E" ] || E=!EIO
		return 1
	fi
}

exists() {
	[ -e "$1" ] || [ -L "$1" ]
}

is_dir() {
	[ -d "$1" ] && [ ! -L "$1" ]
}

# parent FILE: D is the directory that holds it.
parent() {
	D=${1%/*}
	D=${D:-/}
}

# regular FILE: whether it is one; else E is why not.
regular() {
	if [ -L "$1" ]; then
		E=!ELOOP
	elif [ -d "$1" ]; then
		E=!EISDIR
	elif [ -f "$1" ]; then
		return 0
	elif [ -e "$1" ]; then
		E=!EINVAL
	else
		E=$(gone "$1")
	fi
	return 1
}

# free FILE: whether nothing has that name.
free() {
	exists "$1" || return 0
	E=!EEXIST
	return 1
}

# blank FILE: whether nothing has that name, or an empty file.
blank() {
	[ -L "$1" ] || [ -s "$1" ] || { [ -e "$1" ] && [ ! -f "$1" ]; } || return 0
	E=!EEXIST
	return 1
}

# bare FILE: makes it anew and empty by the shell alone, never over an old one.
bare() {
	set -C
	if true >"$1"; then
		set +C
		return 0
	fi
	E=$({ true >"$1"; } 2>&1)
	set +C
	case $E in
	*nonexistent*) E=$(gone "$1") ;;
	esac
	[ -n "$E" ] || E=!EIO
	return 1
}

# put FILE KIND ARG...: writes content into a file. p: one spelled argument; b: base64 in pieces.
put() {
	o=$1 kind=$2
	shift 2
	case $kind in
	p) show "$1" >"$o" || { rm -f "$o" && run sink "$o" "$1"; } ;;
	b) sink64 "$o" "$@" || { rm -f "$o" && run sink64 "$o" "$@"; } ;;
	esac
}

show() {
	case $1 in
	:*) printf %b "${1#:}" ;;
	*) printf %s "$1" ;;
	esac
}

# sink FILE ARG, sink64 FILE ARG...: after a failure once more, to hear why: a shell's own printf
# does not say.
sink() {
	show "$2" | cat >"$1"
}

# Not every base64 tells that it could not write; cat does.
sink64() {
	o=$1
	shift
	if has R; then
		printf %s "$@" | base64 -d >"$o"
	else
		printf %s "$@" | base64 -d | cat >"$o"
	fi
}

# aside FILE INDEX: keeps the file under another name, if that is asked for and can be.
aside() {
	[ "$2" -ne 0 ] && [ -f "$1" ] && [ ! -L "$1" ] || return 0
	eval "o=\$q$2"
	if ln "$1" "$o"; then
		F=h
	fi
}

# stamp FILE ATIME MTIME: "-" leaves a time alone, "now", or what touch -d takes.
stamp() {
	if [ "$2" = "$3" ]; then
		stamp1 "$1" -m "$3" -a
	else
		stamp1 "$1" -a "$2" && stamp1 "$1" -m "$3"
	fi
}

stamp1() {
	case $3 in
	-) ;;
	now) run touch -hc "$2" ${4+"$4"} "$1" ;;
	*) run touch -hc "$2" ${4+"$4"} -d "$3" "$1" ;;
	esac
}

# move FROM TO: the rename system call, never into a directory that is there.
move() {
	if has C; then
		run mv --no-copy -fT "$1" "$2"
	elif has T; then
		run mv -fT "$1" "$2"
	elif is_dir "$2"; then
		run rmdir "$2" && run mv -f "$1" "$2"
	elif [ -d "$2" ]; then
		run rm -f "$2" && run mv -f "$1" "$2"
	else
		run mv -f "$1" "$2"
	fi
}

# move_new FROM TO: the same to a name that must be new.
move_new() {
	free "$2" || return
	if has N; then
		# Where another was faster, newer ones say so by their status, older ones only thus.
		if ! run mv -nT "$1" "$2" && ! { exists "$1" && exists "$2"; }; then
			return 1
		fi
		exists "$1" || return 0
		E=!EEXIST
		return 1
	fi
	if is_dir "$1"; then
		E=!EINVAL
		return 1
	fi
	run ln "$1" "$2" && run rm -f "$1"
}

# resize FILE SIZE
resize() {
	if [ "$2" -eq 0 ] && true >"$1"; then
		return 0
	elif has r; then
		run truncate -c -s "$2" "$1"
	else
		run dd if=/dev/null of="$1" bs=1 seek="$2" count=0
	fi
}

# transfer SOURCE OFFSET TARGET OFFSET LENGTH: bytes into a file that stays.
transfer() {
	if has k; then
		run dd if="$1" of="$3" bs=1048576 iflag=skip_bytes,count_bytes,fullblock \
			oflag=seek_bytes conv=notrunc skip="$2" seek="$4" count="$5"
	else
		run transfer_blocks "$@"
	fi
}

# The same where dd counts blocks only: up to a whole block byte by byte, then the rest.
transfer_blocks() {
	n=$(((4096 - $4 % 4096) % 4096))
	[ "$n" -le "$5" ] || n=$5
	part "$1" "$2" "$n" | dd of="$3" bs=1 seek="$4" conv=notrunc || return
	[ "$n" -eq "$5" ] || part "$1" $(($2 + n)) $(($5 - n)) |
		dd of="$3" bs=4096 seek=$((($4 + n) / 4096)) conv=notrunc
}

part() {
	dd if="$1" bs=4096 skip=$(($2 / 4096)) | tail -c +$(($2 % 4096 + 1)) | head -c "$3"
}

# append SOURCE OFFSET TARGET LENGTH: at the target's own end, in one write.
append() {
	if has k; then
		run dd if="$1" of="$3" bs="$4" iflag=skip_bytes,fullblock oflag=append \
			conv=notrunc skip="$2" count=1
	else
		run append_part "$@"
	fi
}

append_part() {
	part "$1" "$2" "$4" | dd of="$3" bs="$4" iflag=fullblock oflag=append conv=notrunc ||
		part "$1" "$2" "$4" | cat >>"$3"
}

# do_mkdir UMASK MODE PATH: MODE is "-" where the umask says it all.
do_mkdir() {
	eval "p=\$q$3"
	umask "$1"
	run mkdir "$p"
	s=$?
	umask 077
	[ $s -eq 0 ] || return
	[ "$2" = - ] || run chmod "$2" "$p"
}

do_rmdir() {
	eval "p=\$q$1"
	run rmdir "$p"
}

do_unlink() {
	eval "p=\$q$1"
	if is_dir "$p"; then
		E=!EISDIR
		return 1
	fi
	aside "$p" "$2"
	run rm "$p"
}

# do_rename NOREPLACE HELD FROM TO
do_rename() {
	eval "p=\$q$3 t=\$q$4"
	new=$1 held=$2
	if ! exists "$p"; then
		E=$(gone "$p")
		return 1
	fi
	case $t in
	"$p"/*)
		E=!EINVAL
		! is_dir "$p" || return
		;;
	esac
	parent "$p"
	o=$D
	parent "$t"
	# A device each of the two parents: mv would copy from one to another. Then the files.
	# shellcheck disable=SC2046
	set -- $(stat -c %d:%i "$o" "$D" "$p" "$t")
	if [ $# -ge 3 ] && [ "${1%:*}" != "${2%:*}" ]; then
		E=!EXDEV
		return 1
	fi
	if [ "$new" -eq 1 ]; then
		move_new "$p" "$t"
		return
	fi
	if exists "$t"; then
		[ $# -eq 4 ] && [ "$3" = "$4" ] && return 0
		if is_dir "$p"; then
			E=!ENOTDIR
			is_dir "$t" || return
		elif is_dir "$t"; then
			E=!EISDIR
			return 1
		fi
		aside "$t" "$held"
	fi
	move "$p" "$t"
}

do_link() {
	eval "p=\$q$1 t=\$q$2"
	free "$t" && run ln "$p" "$t"
}

do_symlink() {
	dec "$1"
	x=$D
	eval "p=\$q$2"
	free "$p" && run ln -s -- "$x" "$p"
}

do_chmod() {
	eval "p=\$q$2"
	E=!EOPNOTSUPP
	[ ! -L "$p" ] && run chmod "$1" "$p"
}

# do_utimens ATIME MTIME PATH
do_utimens() {
	eval "p=\$q$3"
	if exists "$p"; then
		stamp "$p" "$1" "$2"
	else
		E=$(gone "$p")
		return 1
	fi
}

# opened FILE COMMAND...: runs it on a file that a program has open for writing, though its mode may
# forbid that by now, or did so from its beginning.
opened() {
	u=$1 um=
	shift
	if [ ! -w "$u" ]; then
		um=$(stat -c %a "$u")
		chmod u+w "$u" || um=
	fi
	"$@"
	us=$?
	[ -z "$um" ] || chmod "$um" "$u"
	return $us
}

do_truncate() {
	eval "p=\$q$2"
	regular "$p" && opened "$p" resize "$p" "$1"
}

do_extend() {
	eval "p=\$q$2"
	regular "$p" || return
	n=$(stat -c %s "$p")
	[ "${n:-0}" -ge "$1" ] || opened "$p" resize "$p" "$1"
}

# do_create UMASK MODE PATH
do_create() {
	eval "p=\$q$3"
	free "$p" || return
	umask "$1"
	bare "$p"
	s=$?
	umask 077
	[ $s -eq 0 ] || return
	[ "$2" = - ] || run chmod "$2" "$p"
}

# do_expect DEVICE:INODE PATH
do_expect() {
	eval "p=\$q$2"
	if exists "$p"; then
		E=!ESTALE
		[ "$(stat -c %d:%i "$p")" = "$1" ]
	else
		E=$(gone "$p")
		return 1
	fi
}

# do_sweep DIRECTORY MINUTES MARK
do_sweep() {
	if [ "$2" -gt 0 ]; then
		run find .sbxfs/"$1" ! -type d -name "$3*" ! -name "$id" -mmin "+$2" \
			-exec rm -f {} +
	else
		run find .sbxfs/"$1" ! -type d -name "$3*" ! -name "$id" -exec rm -f {} +
	fi
}

# do_void ID: what was asked for under it is over: not begun, it is never done; begun, it is waited
# for. jobrun.sh leaves "begun." under its start's.
do_void() {
	set -C
	printf '!void.' >.sbxfs/ops/"$1"
	s=$?
	set +C
	[ $s -eq 0 ] || outcome "$1" || [ "$E" = !lost ]
}

# do_copy SOURCE OFFSET TARGET OFFSET LENGTH: LENGTH "-" is the whole file.
do_copy() {
	eval "p=\$q$1 t=\$q$3"
	regular "$p" || return
	if [ "$5" != - ]; then
		regular "$t" && transfer "$p" "$2" "$t" "$4" "$5"
		return
	fi
	! exists "$t" || regular "$t" || return
	umask 0
	if has R; then
		run cp --reflink=auto "$p" "$t"
	else
		run cp "$p" "$t"
	fi
	s=$?
	umask 077
	return $s
}

# do_patch PATH PIECES [KIND ARG...]: PIECES are groups of five words: w (write), a (append) or
# t (truncate); offset; length; the index of the staged file that has the content, 0 for what the
# arguments hold; where in that.
do_patch() {
	eval "p=\$q$1"
	regular "$p" || return
	shift
	opened "$p" patch "$@"
}

# patch PIECES [KIND ARG...]: the same of the file p.
patch() {
	pieces=$1 x=.sbxfs/stage/$id.$op
	shift
	case $pieces in
	a*\ *\ *\ *\ *\ *) ;;
	a*)
		# One write of the shell's own, as long as its buffer has room.
		if [ "$1" = p ] && [ ${#2} -le 4096 ]; then
			show "$2" >>"$p" && return
			E=$({ true >>"$p"; } 2>&1)
			dirty=1
			[ -n "$E" ] || run sink "$x" "$2"
			return 1
		fi
		;;
	esac
	if [ $# -gt 0 ]; then
		dirty=1
		put "$x" "$@" || return
	fi
	# shellcheck disable=SC2086
	set -- $pieces
	while [ $# -gt 4 ]; do
		eval "f=\$q$4"
		if [ "$1" = t ] || [ "$4" -eq 0 ]; then
			f=$x
		elif regular "$f"; then
			n=$(stat -c %s "$f")
			E=!EIO
			[ $(($3 + $5)) -le "${n:-0}" ] || return
		else
			return
		fi
		case $1 in
		w) transfer "$f" "$5" "$p" "$2" "$3" || return ;;
		a) append "$f" "$5" "$p" "$3" || return ;;
		t) resize "$p" "$2" || return ;;
		esac
		shift 5
	done
}

# look FILE: what it is now.
look() {
	# shellcheck disable=SC2046
	set -- $(stat -c '%s %a %u:%g %h' "$1")
	is_size=$1 is_mode=$2 is_owner=$3 is_links=$4
}

fill() {
	cat "$1" >"$2"
}

# into: the staged content t becomes that of the file p, which stays.
into() {
	F=${F}i dirty=1
	opened "$p" run fill "$t" "$p" || return
	[ "$ask" = - ] || run chmod "$mode" "$p" || return
	stamp "$p" "$atime" "$mtime" || return
	[ "$stage" -eq 0 ] || rm -f "$t"
}

# over: the staged content t takes the place of p.
over() {
	[ -z "$owner" ] || run chown "$owner" "$t" || [ -z "$old" ] || return
	[ "$is_mode" = "$mode" ] || run chmod "$mode" "$t" || return
	stamp "$t" "$atime" "$mtime" || return
	aside "$p" "$held"
	# The time at which all of it was there. Empty it stays.
	[ $kept -eq 0 ] || { true >.sbxfs/ops/"$id" && placed=1; }
	if [ "$excl" -eq 1 ]; then
		move_new "$t" "$p"
	else
		move "$t" "$p"
	fi
}

# do_save PATH EXCL IN_PLACE MODE ATIME MTIME HELD SIZE STAGE [KIND ARG...]: EXCL 1: nothing has
# that name; 2: or an empty file. MODE "-" keeps it. STAGE 0: the content is in the arguments; else
# in a staged file that must have SIZE.
do_save() {
	eval "p=\$q$1 t=\$q$9"
	excl=$2 inplace=$3 ask=$4 mode=$4 atime=$5 mtime=$6 held=$7 size=$8 stage=$9
	shift 9
	old='' owner=''
	if is_dir "$p"; then
		E=!EISDIR
		return 1
	fi
	case $excl in
	1) free "$p" || return ;;
	2) blank "$p" || return ;;
	esac
	parent "$p"
	if [ -f "$p" ] && [ ! -L "$p" ]; then
		old=1
		look "$p"
		[ "$ask" != - ] || mode=$is_mode
		[ "$is_owner" = "${T#*,}" ] || owner=$is_owner
		[ "$is_links" -eq 1 ] && [ -w "$D" ] || inplace=1
	else
		inplace=0
		[ "$ask" != - ] || mode=644
		[ ! -g "$D" ] || owner=:$(stat -c %g "$D")
	fi
	mode=$((mode % 1000))
	if [ "$stage" -ne 0 ]; then
		regular "$t" || return
		look "$t"
		E=!EIO
		[ "$is_size" = "$size" ] || return
	else
		# A new file gets 666 less the umask: only x needs a chmod.
		t=.sbxfs/stage/$id.$op dirty=1
		[ "$inplace" -eq 1 ] || umask $((777 - mode))
		put "$t" "$@"
		s=$?
		umask 077
		[ $s -eq 0 ] || return
		case $mode in
		*[1357]*) is_mode= ;;
		*) is_mode=$mode ;;
		esac
	fi
	if [ "$inplace" -eq 1 ]; then
		into
	elif over; then
		[ "$stage" -ne 0 ] || dirty=$was
	else
		case $old$E in
		1*ermi* | 1*busy) into ;;
		*) return 1 ;;
		esac
	fi
}

# ops [VERB COUNT ARG...]...
ops() {
	op=0 last=0 dirty=
	while [ $# -gt 1 ]; do
		verb=$1 argc=$2 i=1 args=
		shift 2
		E='' F='' op=$((op + 1)) was=$dirty
		case $verb in
		\&*)
			verb=${verb#?}
			[ $last -eq 0 ] || verb=
			;;
		esac
		while [ $i -le "$argc" ]; do
			args="$args \"\${$i}\""
			i=$((i + 1))
		done
		if [ -z "$verb" ]; then
			E=!ECANCELED last=1
		elif eval "do_$verb $args"; then
			E='' last=0
		else
			E=${E:-!EIO} last=1
		fi
		case $E in
		*[!\ -~]*) plain= ;;
		esac
		eval "F$op=\$F E$op=\$E"
		shift "$argc"
	done
	if [ -n "$dirty" ]; then
		set +f
		rm -f .sbxfs/stage/"$id".*
		set -f
	fi
}

# told END: a record of each outcome, with that end of a text.
told() {
	[ $kept -eq 1 ] || printf 'o%b' "$1"
	i=0
	while [ $i -lt "$op" ]; do
		i=$((i + 1))
		eval "F=\$F$i E=\$E$i"
		printf 'r%s%b%s%b' "$F" "$1" "$E" "$1"
	done
}

# bytes: all records.
bytes() {
	told '\0'
	[ -z "$reports" ] || eval "attrs f 0 $reports"
	printf 'e\0'
}

# text: the same in lines. A link is no text.
text() {
	told '\n'
	[ -z "$reports" ] || eval "find $reports -maxdepth 0 -type l -printf '\001' -o \
		-printf 'af $A\n\n'"
	printf e
}

# answer: form and x are how all of it goes.
answer() {
	form=-
	if [ -n "$plain" ] && has f; then
		x="$(text)
"
		case $x in
		*[!\ -~"
"]*) ;;
		*) form=t ;;
		esac
	fi
	[ $form = t ] || x=$(bytes | b64)
}

claim() {
	set -C
	true >.sbxfs/ops/"$id"
	s=$?
	set +C
	return $s
}

# outcome ID: waits for the one that another exec has or will have; x is what is kept of it.
outcome() {
	[ -e .sbxfs/ops/"$1" ] || return
	i=0
	while :; do
		x=$(cat .sbxfs/ops/"$1")
		case $x in
		*.)
			x=${x%.}
			return
			;;
		esac
		E=!lost
		[ $i -gt 0 ] || [ -z "$(find .sbxfs/ops/"$1" -mmin +2)" ] || return
		E=!EBUSY
		[ $i -lt 40 ] || return
		sleep 0.2 || sleep 1
		i=$((i + 1))
	done
}

# repeat: the answer to what was asked for before under our id, if it was.
repeat() {
	[ -e .sbxfs/ops/"$id" ] || return
	if outcome "$id"; then
		case $x in
		!*) refuse "${x#!}" ;;
		esac
		frame "${x%% *}" "${x#* }" - cg==
		exit 0
	fi
	[ "$E" = !lost ] || refuse busy
	refuse lost
}

id=${1#?} sweep=$2 n=$3 i=0 words='' reports='' plain=1 kept=1 first=1 placed=''
case $1 in
+*) first=0 ;;
esac
shift 3
while [ $i -lt "$n" ]; do
	i=$((i + 1))
	eval "w$i=\$1"
	words="$words \"\$w$i\""
	shift
done
n=$1 i=0
shift
while [ $i -lt "$n" ]; do
	i=$((i + 1))
	dec "${1#-}"
	eval "q$i=\$D"
	case $1 in
	-*) ;;
	:*)
		reports="$reports \"\$q$i\"" plain=
		;;
	*) reports="$reports \"\$q$i\"" ;;
	esac
	shift
done
if ! claim; then
	repeat
	workdir
	claim || {
		repeat
		[ $first -eq 1 ] || refuse lost
		kept=0
	}
fi
[ "$sweep" -eq 0 ] || find .sbxfs/ops ! -type d -mmin +10 -exec rm -f {} +
ops "$@"
[ -z "$placed" ] || reports="$reports .sbxfs/ops/$id"
answer
# It is empty; filesystems write out at once what was cut and is closed.
[ $kept -eq 0 ] || printf '%s %s.' $form "$x" >>.sbxfs/ops/"$id"
if [ -n "$words" ]; then
	eval "survey \"\$form\" \"\$x\" $words"
else
	frame "$form" "$x"
fi
