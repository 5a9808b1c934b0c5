# shellcheck shell=sh
# What is new in some jobs' logs (client/job.h). Goes without the prelude and in few bytes, because
# it is asked several times a second: sh -c TEXT sbxfs-jobpoll NONCE MAX [DIR OFFSET]...
# A job is "BYTES LIFE EXIT END..." and a line of base64; LIFE is as joblook.sh has it, or "x" where
# there is no such directory. Exit is read before the log, so a log is never shorter than its exit
# says.
exec 2>/dev/null
echo "P$1"
n=$1 m=$2
shift 2
while [ "$1" ]; do
	x=- l=- e=
	[ -d "$1" ] || l=x
	read -r x <"$1/exit"
	if [ -e "$1/alive" ]; then
		flock -ns "$1/alive" true
		l=$?
		[ $l -lt 2 ] || l=$(($(date +%s)-$(stat -c %Y "$1/alive")<=5))
	fi
	read -r e <"$1/end"
	s=$(wc -c <"$1/output.log")
	echo "$((s)) $l ${x:--} $e"
	[ "$((s))" -le "$2" ] || tail -c "+$(($2+1))" "$1/output.log" | head -c "$m" | base64 -w0
	echo
	shift 2
done
echo "E$n"
