# shellcheck shell=sh
# shellcheck disable=SC2034 # what is set here is used by the programs
# Goes before every program: its first arguments, and the words that all programs share.
#
#   sh -c TEXT sbxfs-NAME NONCE TOOLS REPLY_BYTES ARG...
#
# Comments and indentation are taken out when this is built into the binary, so a string that goes
# over a line end must not be indented.

set -f
N=$1 T=$2 M=$3
shift 3
exec 2>/dev/null
export QUOTING_STYLE=literal

# dec ARG: D is the byte string that ARG spells. The dot keeps newlines at the end.
dec() {
	case $1 in
	:*)
		D=$(printf '%b.' "${1#:}")
		D=${D%.}
		;;
	*) D=$1 ;;
	esac
}

# spelled COUNT ARG...: q1, q2, ... are what the first arguments spell; args is the words that name
# them for eval. The caller shifts.
spelled() {
	n=$1 i=0 args=
	while [ $i -lt "$n" ]; do
		shift
		i=$((i + 1))
		dec "$1"
		eval "q$i=\$D"
		args="$args \"\$q$i\""
	done
}

# has LETTER: whether the sandbox's tools can that.
has() {
	case ${T%%,*} in
	*"$1"*) return 0 ;;
	esac
	return 1
}

# b64: armours its input; only at the end of a pipeline, where it is a process anyway.
b64() {
	has w && exec base64 -w0
	base64 -w0 || base64
}

# armoured FORM: the same of what is packed as a section of that form.
armoured() {
	if [ "$1" = z ]; then
		gzip -1c | b64
	else
		b64
	fi
}

# flows: whether an answer can go as it is made. A shell that keeps a long one in a variable takes
# its time for that.
flows() {
	has w && [ "$M" -eq 0 ]
}

# flow FORM LENGTH [FORM LENGTH]...: the beginning of such an answer. Its sections follow, each with
# a newline, and flow_end. LENGTH "." is that of a line.
flow() {
	printf 'SBXFS1 %s' "$N"
	printf ' %s %s' "$@"
	echo
}

flow_end() {
	printf 'END %s\n' "$N"
}

# refuse WORD: an answer without sections, and the end.
refuse() {
	printf 'SBXFS1 %s !%s\nEND %s\n' "$N" "$1" "$N"
	exit 0
}

# frame FORM SECTION [FORM SECTION]...: the answer.
frame() {
	h="SBXFS1 $N" b=
	while [ $# -gt 1 ]; do
		h="$h $1 ${#2}" b="$b$2
"
		shift 2
	done
	[ "$M" -eq 0 ] || [ $((${#h} + ${#b} + ${#N} + 6)) -le "$M" ] || refuse big
	printf '%s\n%sEND %s\n' "$h" "$b" "$N"
}

# clock: the sandbox's time, as a record.
clock() {
	if has c; then
		printf 't%s\0' "$(date +%s.%N)"
	else
		printf 't%s\0' "$(date +%s)"
	fi
}

# attrs KIND DEPTH PATH...: a record of each path, and of what is below it to DEPTH. Options for
# following links in L, not quoted because it may be none. What is not there has no record.
#
# From find:   "aKIND TYPE MODE SIZE BLOCKS MTIME CTIME INO DEV NLINK PATH\0LINK\0"
# From stat:   "bKIND MODE SIZE BLOCKS MTIME DATE CTIME DATE INO DEV NLINK PATH//NAME//\n", where
# NAME is "'PATH' -> 'LINK'", maybe without quotes. No path of find's holds "//".
L=
A='%y %m %s %b %T@ %C@ %i %D %n %p'
P="$A\0%l\0"
S='%f %s %b %Y %y %Z %z %i %d %h %n//%N//'
# shellcheck disable=SC2086
attrs() {
	k=$1 n=$2
	shift 2
	if has f; then
		if [ "$n" -eq 0 ]; then
			find $L "$@" -maxdepth 0 -printf "a$k $P"
		else
			find "$@" -ignore_readdir_race -maxdepth "$n" -path ./.sbxfs -prune -o \
				-printf "a$k $P"
		fi
	elif [ "$n" -eq 0 ]; then
		stat $L -c "b$k $S" "$@"
	else
		find "$@" -maxdepth "$n" -path ./.sbxfs -prune -o -exec stat -c "b$k $S" {} +
	fi
}

# gone PATH: why there is no such file, as "!ERRNO" or a tool's words.
gone() {
	case $1 in
	*/*) d=${1%/*} ;;
	*) d=. ;;
	esac
	if [ -d "${d:-/}" ] && [ -x "${d:-/}" ]; then
		printf '!ENOENT'
	else
		{ ls -d "$1" >/dev/null; } 2>&1
	fi
}

# workdir: makes our own directory. Wants umask 077.
workdir() {
	if ! { [ -d .sbxfs/stage ] && [ -d .sbxfs/ops ] && [ -d .sbxfs/held ] &&
		[ -d .sbxfs/jobs ]; }; then
		mkdir -p .sbxfs/stage .sbxfs/ops .sbxfs/held .sbxfs/jobs
	fi
	[ -e .sbxfs/.gitignore ] || printf '*\n' >.sbxfs/.gitignore
}
