# shellcheck shell=sh
# shellcheck disable=SC2154 # the prelude's variables
# Jobs of this sandbox: finding them, and asking something of one (client/job.h).
#
#   list ROOT...                every job
#   start LOOKS ID OP ROOT...   wait until the start OP has made its job, or said why not: EAGAIN
#                               when there was no trace of it in that many looks, 0.05 s apart
#   ask DIR ID WORDS            "cancel", "signal NAME": its leader does it; without one, we do.
#                               Asked once however often this comes with that ID; the leader does
#                               what is asked in the order of the IDs. EINVAL: no such signal
#   remove DIR                  only when it does not run: EBUSY
#
# Records: "jROOT\0ID\0OP\0META\0EXIT\0END\0LIFE\0BYTES\0AGE\0" where LIFE is 1 (its leader lives),
# 0 (it does not), or "-" (no leader of ours); BYTES counts without END only, and AGE, the seconds
# since the directory changed, without META only.
# "r!ERRNO" instead: refused.

# slurp FILE: D is its text. A builtin: there may be hundreds.
slurp() {
	D=
	[ -f "$1" ] && [ ! -L "$1" ] && [ -r "$1" ] || return
	while IFS= read -r line || [ -n "$line" ]; do
		D="$D$line "
	done <"$1"
}

# life DIR PGID: is somebody in charge?
life() {
	if [ -e "$1/alive" ] && [ ! -L "$1/alive" ]; then
		if has l; then
			flock -ns "$1/alive" true && D=0 || D=1
		elif [ $(($(date +%s) - $(stat -c %Y "$1/alive"))) -gt 5 ]; then
			D=0
		else
			D=1
		fi
	elif [ -n "$2" ]; then
		# The layout's own: the leader's process, where pids mean something.
		case $(cat "/proc/$2/stat") in
		'' | *") Z "*) D=0 ;;
		*) D=- ;;
		esac
	else
		D=-
	fi
}

# over DIR: it has said how it ended; its leader may be about to write the layout's exit as well.
over() {
	[ -s "$1/end" ] || [ -s "$1/exit" ]
}

pgid() {
	slurp "$1/meta.json"
	D=$(printf '%s' "$D" | sed -n 's/.*"pgid"[ ]*:[ ]*\([0-9][0-9]*\).*/\1/p')
}

job() {
	d=$1/$2
	[ -d "$d" ] && [ ! -L "$d" ] && [ -O "$d" ] || return
	slurp "$d/op"
	o=$D
	slurp "$d/meta.json"
	meta=$D
	slurp "$d/exit"
	x=$D
	slurp "$d/end"
	e=$D
	l=-
	if [ -z "$x" ]; then
		q=
		[ -e "$d/alive" ] || { pgid "$d" && q=$D; }
		life "$d" "$q"
		l=$D
		# It may have ended between the two looks.
		slurp "$d/exit"
		x=$D
		slurp "$d/end"
		e=$D
	fi
	# No program is started for one that has ended: there may be hundreds.
	s=0
	if [ -z "$e" ] && [ -f "$d/output.log" ] && [ ! -L "$d/output.log" ]; then
		s=$(wc -c <"$d/output.log")
	fi
	a=0
	[ -n "$meta" ] || a=$(($(date +%s) - $(stat -c %Z "$d")))
	printf 'j%s\0%s\0%s\0%s\0%s\0%s\0%s\0%d\0%d\0' "$1" "$2" "${o% }" "$meta" "${x% }" \
		"${e% }" "$l" "$s" "$a"
}

list() {
	for r; do
		[ -O "$r/." ] || continue
		set +f
		for j in "$r"/*; do
			job "$r" "${j##*/}"
		done
		set -f
	done
}

start() {
	n=0
	while :; do
		if [ -e ".sbxfs/ops/job-$op" ]; then
			read -r w <".sbxfs/ops/job-$op"
			printf 'r!%s\0' "$w"
			return
		fi
		for r; do
			[ -d "$r/$id" ] || continue
			w=
			read -r w <"$r/$id/op"
			# A leader of ours has made the directory and is about to say whose it is.
			[ -n "$w" ] || [ -e "$r/$id/meta.json" ] || continue
			if [ "$w" != "$op" ]; then
				printf 'r!EEXIST\0'
				return
			fi
			[ ! -e "$r/$id/meta.json" ] || {
				job "$r" "$id"
				return
			}
		done
		n=$((n + 1))
		[ $n -lt "$looks" ] || break
		sleep 0.05 || sleep 1
	done
	printf 'r!EAGAIN\0'
}

# A job of the layout's own package: its process group, then what is left of it.
strike() {
	# The one form for a group that every shell takes.
	kill "-$2" "-$1" || kill "-$2" "$1"
}

# known NAME: whether the shell here has that signal, by name or number.
known() {
	case $1 in
	*[!0-9]*)
		for s in $(kill -l); do
			[ "${s#SIG}" != "$1" ] || return 0
		done
		return 1
		;;
	*) [ "$1" -ge 1 ] && [ "$1" -le 64 ] ;;
	esac
}

ask() {
	if [ ! -d "$1" ] || [ -L "$1" ]; then
		printf 'r!ENOENT\0'
	elif over "$1"; then
		printf 'r!ESRCH\0'
	elif [ "$3" != cancel ] && ! known "${3#signal }"; then
		printf 'r!EINVAL\0'
	elif [ -e "$1/alive" ]; then
		life "$1" ''
		if [ "$D" = 0 ]; then
			printf 'r!ESRCH\0'
		elif (set -C && : >"$1/ask.$2"); then
			# What is empty is not done.
			printf '%s\n' "$3" >"$1/ask.$2" || {
				rm -f "$1/ask.$2"
				printf 'r!EIO\0'
			}
		elif [ ! -e "$1/ask.$2" ]; then
			printf 'r!EIO\0'
		fi
	else
		pgid "$1"
		q=$D
		if [ -z "$q" ] || ! kill -0 "$q"; then
			printf 'r!ESRCH\0'
			return
		fi
		case $3 in
		cancel)
			strike "$q" TERM
			n=0
			while [ $n -lt 20 ] && kill -0 "-$q"; do
				sleep 0.1 || sleep 1
				n=$((n + 1))
			done
			[ ! -e "/sys/fs/cgroup/sbj-${1##*/}" ] ||
				echo 1 >"/sys/fs/cgroup/sbj-${1##*/}/cgroup.kill"
			strike "$q" KILL
			if [ ! -s "$1/exit" ]; then
				echo 143 >"$1/exit.tmp" && mv "$1/exit.tmp" "$1/exit"
			fi
			;;
		*) strike "$q" "${3#signal }" || printf 'r!EINVAL\0' ;;
		esac
	fi
}

remove() {
	if [ ! -d "$1" ] || [ -L "$1" ]; then
		printf 'r!ENOENT\0'
		return
	fi
	q=
	[ -e "$1/alive" ] || { pgid "$1" && q=$D; }
	life "$1" "$q"
	# One without meta.json may be about to get it.
	a=0
	[ -e "$1/meta.json" ] || a=$(($(date +%s) - $(stat -c %Z "$1")))
	if ! over "$1" && [ "$D" != 0 ] && { [ "$D" = 1 ] || [ $a -le 10 ]; }; then
		printf 'r!EBUSY\0'
	else
		# Once more where something was written there meanwhile.
		rm -rf "$1" || {
			sleep 0.1 || sleep 1
			rm -rf "$1" || printf 'r!EIO\0'
		}
	fi
}

umask 077
mode=$1
shift
case $mode in
list) frame - "$(list "$@" | b64)" ;;
start)
	looks=$1 id=$2 op=$3
	shift 3
	frame - "$(start "$@" | b64)"
	;;
ask | remove) frame - "$($mode "$@" | b64)" ;;
esac
