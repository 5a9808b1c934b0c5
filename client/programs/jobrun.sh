# shellcheck shell=sh
# shellcheck disable=SC2154 # the prelude's variables
# The leader of one job (client/job.h). It runs inside an exec whose answer nobody waits for:
#
#   setsid sh -c TEXT sbxfs-jobrun NONCE TOOLS 0 ID OP LIMIT_S SPARE_ROOT CWD META VARS \
#       NAME=VALUE... PIECE...
#
# VARS is how many NAME=VALUE follow; the pieces together are the command. OP is the start's own id:
# a second leader with the same ID ends at once, and one of a start that was called off meanwhile
# (client/workspace/late.h). META is what meta.json holds beside what only the sandbox knows. What
# can't start is said in .sbxfs/ops/job-OP.
#
# In the job's directory, beside the layout's files:
#   op       whose start made it            alive    held by flock, and touched each second
#   command  the text, where it is long     pid      of the job's first process
#   ask.ID   what somebody wants: "cancel", "signal NAME"; empty: being written, or done
#   end      "STATE CODE LOG_BYTES ENDED_S LEFT", written before exit
#
# The job has a session of its own, so that what is sent to its group reaches it whole and nobody
# else: pgid of meta.json is that group's. Where nothing makes sessions it shares our group, and
# signals go to each of its processes.

id=$1 op=$2 limit=$3 spare=$4 cwd=$5 meta=$6 vars=$7
shift 7
mask=$(umask)
umask 077

say() {
	printf '%s\n' "$1" >".sbxfs/ops/job-$op.tmp" &&
		mv ".sbxfs/ops/job-$op.tmp" ".sbxfs/ops/job-$op"
	exit 1
}

set -C
if workdir && ! printf begun. >".sbxfs/ops/$op" && [ -e ".sbxfs/ops/$op" ]; then
	exit 1
fi
set +C
if [ -w .sbxfs/jobs ]; then
	root=.sbxfs/jobs
else
	root=$spare
	mkdir -p "$root" || exit 1
fi
top=$(pwd)
dec "$cwd"
case $D in
/*) cwd=$D ;;
*) cwd=$top/$D ;;
esac
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
# Waits for who looks whether it is held.
! has l || flock 9
: >"$d/output.log"

# The job's variables are never ours: they go behind the pieces, as they are, and to env.
n=0
while [ $n -lt "$vars" ]; do
	dec "$1"
	shift
	set -- "$@" "$D"
	n=$((n + 1))
done
command=
while [ $# -gt "$vars" ]; do
	dec "$1"
	command=$command$D
	shift
done
# Found by our PATH, whatever the job's is.
: "${PATH:=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}" "${HOME:=$top}"
: "${LANG:=C.UTF-8}"
export PATH HOME LANG
shell='sh'
IFS=:
for c in $PATH; do
	[ ! -x "$c/sh" ] || {
		shell=$c/sh
		break
	}
done
unset IFS
set -- env "$@" "SBXFS_JOB=$op" "$shell"
! command -v setsid >/dev/null || set -- setsid "$@"
# One argument of an exec is bounded; a longer text is run from a file.
if [ ${#command} -gt 100000 ]; then
	printf '%s\n' "$command" >"$d/command"
	set -- "$@" "$d/command"
else
	set -- "$@" -c "$command"
fi

# A control group where one can be made: then nobody gets away.
group=
for c in /sys/fs/cgroup /sys/fs/cgroup/unified; do
	if [ -w "$c/cgroup.procs" ] && mkdir "$c/sbj-$id"; then
		group=$c/sbj-$id
		break
	fi
done

# targets [outside]: the processes of the job that are left, by group, control group and the mark in
# their environment; or those of them that are not in its process group.
targets() {
	set +f
	{
		[ -z "$group" ] || cat "$group/cgroup.procs"
		grep -lsz "^SBXFS_JOB=$op\$" /proc/[0-9]*/environ
		[ $# -gt 0 ] || sed -n "s/^\([0-9]*\) (.*) [^Z] [0-9]* $p .*/\1/p" /proc/[0-9]*/stat
	} | sed 's/[^0-9]*\([0-9]*\).*/\1/' | sort -u | while read -r q; do
		read -r s <"/proc/$q/stat" || continue
		s=${s##*) }
		case $s in
		Z*) continue ;;
		esac
		s=${s#* * }
		[ $# -eq 0 ] || [ "${s%% *}" != "$p" ] || continue
		printf '%s\n' "$q"
	done
	set -f
}

# hit SIGNAL...: once to the process group, and to each that left it.
hit() {
	for s; do
		# The one form for a group that every shell takes. It may not have its group yet.
		kill "-$s" "-$p" || kill "-$s" "$p"
	done
	for q in $(targets outside); do
		[ "$q" = "$p" ] || for s; do
			kill "-$s" "$q"
		done
	done
}

finish() {
	hit TERM CONT
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

# Does what was asked for since the last look, in the order of the requests' ids. A request that
# was done stays, empty, so that one which comes twice is not done twice; the last few are enough.
past='' pasts=0
requests() {
	set +f
	set -- "$d"/ask.*
	set -f
	for f; do
		[ -s "$f" ] || continue
		read -r ask <"$f" || continue
		: >"$f"
		past="$past ${f##*/}" pasts=$((pasts + 1))
		if [ $pasts -gt 32 ]; then
			f=${past# }
			f=${f%% *}
			rm -f "$d/$f"
			past=${past# "$f"}
		fi
		case $ask in
		cancel)
			echo cancelled >"$d/verdict"
			finish
			exit
			;;
		"signal "*) hit "${ask#signal }" ;;
		esac
	done
}

# Somebody may end what runs here; the job is told by requests.
trap : TERM INT HUP QUIT USR1 USR2

(
	trap : TERM INT HUP QUIT USR1 USR2
	exec 9>&-
	n=0
	[ "$limit" -eq 0 ] || end=$(($(date +%s) + limit))
	while sleep 0.25 || sleep 1; do
		kill -0 $$ || exit
		read -r p <"$d/pid" || continue
		requests
		n=$(((n + 1) % 4))
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

dec "$meta"
where=$(printf '%s' "$d" | sed 's/[\\"]/\\&/g')
now=$(date -u +%Y-%m-%dT%H:%M:%S.000Z)

# In the foreground: what runs in the background of a shell ignores INT and QUIT.
(
	exec 9>&-
	# $$ is the leader's.
	read -r p _ </proc/self/stat || p=$(exec sh -c 'echo $PPID')
	[ -z "$group" ] || echo 0 >"$group/cgroup.procs"
	printf '%s\n' "$p" >"$d/pid"
	{
		printf '{"jobId":"%s","pgid":%s,"outputFile":"%s/output.log",' "$id" "$p" "$where"
		printf '"exitFile":"%s/exit","dir":"%s","createdAt":"%s",%s}\n' "$where" "$where" \
			"$now" "$D"
	} >"$d/meta.json.tmp" && mv "$d/meta.json.tmp" "$d/meta.json" || exit
	umask "$mask"
	exec </dev/null >>"$d/output.log" 2>&1
	cd "$cwd" || exit 127
	# A name that is in our environment would have our value there.
	unset QUOTING_STYLE N T M D L A P S id op limit spare cwd meta vars mask root top d n \
		command shell c group past pasts m where now p
	exec "$@"
)
code=$?
state=exited
left=0
if [ -e "$d/verdict" ]; then
	read -r state <"$d/verdict"
	# A signal ends a wait early.
	while kill -0 $m; do
		wait $m
	done
	read -r p <"$d/pid"
	left=$(targets | wc -l)
	case $state in
	cancelled) code=143 ;;
	timedout) code=124 ;;
	esac
else
	kill -s KILL $m
fi
if [ ! -e "$d/meta.json" ]; then
	rm -rf "$d"
	say EIO
fi
size=$(wc -c <"$d/output.log")
printf '%s %d %d %s %d\n' "$state" "$code" "$size" "$(date +%s)" "$left" >"$d/end.tmp"
mv "$d/end.tmp" "$d/end"
if [ ! -s "$d/exit" ]; then
	printf '%d\n' "$code" >"$d/exit.tmp"
	mv "$d/exit.tmp" "$d/exit"
fi
[ -z "$group" ] || rmdir "$group"
