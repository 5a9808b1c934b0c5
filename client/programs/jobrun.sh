# shellcheck shell=sh
# shellcheck disable=SC2154 # the prelude's variables
# The leader of one job (client/job.h). It runs inside an exec whose answer nobody waits for:
#
#   setsid sh -c TEXT sbxfs-jobrun NONCE TOOLS 0 ID OP LIMIT_S SPARE_ROOT CWD META VARS \
#       NAME=VALUE... PIECE...
#
# VARS is how many NAME=VALUE follow; the pieces together are the command. OP is the start's own id:
# a second leader with the same ID ends at once. META is what meta.json holds beside what only the
# sandbox knows. What can't start is said in .sbxfs/ops/job-OP.
#
# In the job's directory, beside the layout's files:
#   op       whose start made it            alive    held by flock, and touched each second
#   command  the text, where it is long     ask      what somebody wants: "cancel", "signal NAME"
#   end      "STATE CODE LOG_BYTES ENDED_S LEFT", written before exit

id=$1 op=$2 limit=$3 spare=$4 cwd=$5 meta=$6 vars=$7
shift 7
mask=$(umask)
umask 077

say() {
	printf '%s\n' "$1" >".sbxfs/ops/job-$op.tmp" &&
		mv ".sbxfs/ops/job-$op.tmp" ".sbxfs/ops/job-$op"
	exit 1
}

if workdir && [ -w .sbxfs/jobs ]; then
	root=.sbxfs/jobs
else
	root=$spare
	mkdir -p "$root" || exit 1
fi
top=$(pwd)
dec "$cwd"
cwd=$D
[ -d "$cwd" ] || say ENOENT
case $root in
/*) d=$root/$id ;;
*) d=$top/$root/$id ;;
esac
mkdir "$d" || {
	[ -d "$d" ] || say EIO
	exit 1
}
printf '%s\n' "$op" >"$d/op"
exec 9>"$d/alive"
! has l || flock -n 9
: >"$d/output.log"

while [ "$vars" -gt 0 ]; do
	dec "$1"
	export "${D%%=*}=${D#*=}"
	shift
	vars=$((vars - 1))
done
command=
for piece; do
	dec "$piece"
	command=$command$D
done
# One argument of an exec is bounded; a longer text is run from a file.
if [ ${#command} -gt 100000 ]; then
	printf '%s\n' "$command" >"$d/command"
	set -- "$d/command"
else
	set -- -c "$command"
fi

dec "$meta"
where=$(printf '%s' "$d" | sed 's/[\\"]/\\&/g')
{
	printf '{"jobId":"%s","pgid":%s,"outputFile":"%s/output.log",' "$id" $$ "$where"
	printf '"exitFile":"%s/exit","dir":"%s","createdAt":"%s",%s}\n' "$where" "$where" \
		"$(date -u +%Y-%m-%dT%H:%M:%S.000Z)" "$D"
} >"$d/meta.json.tmp"
mv "$d/meta.json.tmp" "$d/meta.json" || exit 1

# A control group where one can be made: then nobody gets away.
group=
for c in /sys/fs/cgroup /sys/fs/cgroup/unified; do
	if [ -w "$c/cgroup.procs" ] && mkdir "$c/sbj-$id"; then
		group=$c/sbj-$id
		break
	fi
done

# targets: the processes of the job that are left, by group and by the mark in their environment.
targets() {
	[ -z "$group" ] || cat "$group/cgroup.procs"
	set +f
	grep -lsz "^SBXFS_JOB=$op\$" /proc/[0-9]*/environ | while IFS=/ read -r _ _ q _; do
		case $(cat "/proc/$q/stat") in
		*") Z "*) ;;
		*) printf '%s\n' "$q" ;;
		esac
	done
	set -f
}

# in_group PID: whether it has got what was sent to our group.
in_group() {
	s=$(cat "/proc/$1/stat")
	# shellcheck disable=SC2086 # numbers
	set -- ${s##*) }
	[ "${3:-}" = $$ ]
}

# hit SIGNAL: once to the process group, and to each that left it.
hit() {
	# The one form for a group that every shell takes.
	kill "-$1" "-$$"
	for q in $(targets); do
		in_group "$q" || kill -s "$1" "$q"
	done
}

finish() {
	hit TERM
	n=0
	while [ $n -lt 8 ] && [ -n "$(targets)" ]; do
		: >"$d/alive"
		sleep 0.25 || sleep 1
		n=$((n + 1))
	done
	n=0
	while [ $n -lt 8 ] && [ -n "$(targets)" ]; do
		: >"$d/alive"
		[ -z "$group" ] || echo 1 >"$group/cgroup.kill"
		for q in $(targets); do
			kill -s KILL "$q"
		done
		sleep 0.1 || sleep 1
		n=$((n + 1))
	done
}

# Our own group gets what the job gets; a handler, unlike an ignored signal, is not inherited.
trap : TERM INT HUP QUIT USR1 USR2

(
	trap - TERM INT HUP QUIT USR1 USR2
	exec 9>&-
	[ -z "$group" ] || sh -c 'echo $PPID >"$0"' "$group/cgroup.procs"
	umask "$mask"
	unset QUOTING_STYLE
	: "${PATH:=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}" "${HOME:=$top}"
	: "${LANG:=C.UTF-8}"
	export PATH HOME LANG "SBXFS_JOB=$op"
	cd "$cwd" || exit 127
	exec sh "$@"
) </dev/null >>"$d/output.log" 2>&1 &
p=$!

(
	trap : TERM INT HUP QUIT USR1 USR2
	exec 9>&-
	n=0
	[ "$limit" -eq 0 ] || end=$(($(date +%s) + limit))
	while sleep 0.25 || sleep 1; do
		kill -0 $$ || exit
		n=$(((n + 1) % 4))
		if [ -e "$d/ask" ]; then
			ask=
			read -r ask <"$d/ask"
			rm -f "$d/ask"
			case $ask in
			cancel)
				echo cancelled >"$d/verdict"
				finish
				exit
				;;
			"signal "*) hit "${ask#signal }" ;;
			esac
		fi
		[ $n -eq 0 ] || continue
		: >"$d/alive"
		if [ "$limit" -gt 0 ] && [ "$(date +%s)" -ge "$end" ]; then
			echo timedout >"$d/verdict"
			finish
			exit
		fi
	done
) </dev/null >/dev/null &
m=$!

# A signal ends a wait early; what has ended is gone once it was waited for. It may have ended just
# then: its status is still to be had, where it is not it was had before.
while :; do
	wait $p
	code=$?
	kill -0 $p || break
done
wait $p
again=$?
[ $again -eq 127 ] || code=$again
state=exited
left=0
if [ -e "$d/verdict" ]; then
	read -r state <"$d/verdict"
	while kill -0 $m; do
		wait $m
	done
	left=$(targets | wc -l)
	case $state in
	cancelled) code=143 ;;
	timedout) code=124 ;;
	esac
else
	kill -s KILL $m
fi
size=$(wc -c <"$d/output.log")
printf '%s %d %d %s %d\n' "$state" "$code" "$size" "$(date +%s)" "$left" >"$d/end.tmp"
mv "$d/end.tmp" "$d/end"
if [ ! -s "$d/exit" ]; then
	printf '%d\n' "$code" >"$d/exit.tmp"
	mv "$d/exit.tmp" "$d/exit"
fi
[ -z "$group" ] || rmdir "$group"
