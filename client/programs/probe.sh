# shellcheck shell=sh
# shellcheck disable=SC2034,SC2154 # the prelude's variables
# What the sandbox can (client/probe.h).
#
#   statfs                   only how full the filesystem is
#   probe MAKE_DIR [WORD...] all; the words are those of scan.sh, for a second section
#
# Records: KEY VALUE\0, in any order, and "end" last.

# include survey.sh

say() {
	printf '%s %s\0' "$1" "$2"
}

# can KEY COMMAND...: says 1 when the command works.
can() {
	key=$1
	shift
	"$@" >/dev/null </dev/null && say "$key" 1
}

# from KEY COMMAND...: says what the command prints.
from() {
	key=$1
	shift
	say "$key" "$("$@")"
}

full() {
	from statfs stat -f -c '%S %b %f %a %c %d %l' .
}

# tools: a word for each of the few that every answer needs, and the time; all at once.
tools() {
	[ "$(printf sbxfs | base64 -w0)" = c2J4ZnM= ] && echo w &
	[ "$(find . -maxdepth 0 -printf x%f)" = x. ] && echo f &
	command -v gzip >/dev/null && echo z
	date +%s.%N
	wait
}

# Who we are; read where that takes no process.
who() {
	u='' g=''
	while [ -z "$g" ] && read -r key a b c; do
		case $key in
		Uid:) u=$b ;;
		Gid:) g=$b ;;
		esac
	done </proc/self/status
	if [ -n "$u" ] && [ -n "$g" ]; then
		say uid "$u"
		say gid "$g"
	else
		from uid id -u
		from gid id -g
	fi
}

# What mv is, all of the coreutils are taken to be. GNU's from version 9 on are known to do what is
# tried of others; new=1.
coreutils() {
	x=$(mv --version 2>&1)
	new=0
	say mv "${x%%
*}"
	case $x in
	*BusyBox*) say busybox 1 ;;
	*'GNU coreutils) '[1-8].*) say reflink 1 ;;
	*'GNU coreutils) '[1-9]*)
		say reflink 1
		say dd_bytes 1
		say mv_exact 1
		new=1
		;;
	esac
}

# The tests that need files, in the directory $1.
with_files() {
	a=$1/a.$N b=$1/b.$N c=$1/c.$N d=$1/d.$N
	true >"$a" || return
	touch -d @1000000001.123456789 "$a"
	x=$(stat -c '%z|%y' "$a")
	case ${x%%|*} in
	*.000000000\ *) ;;
	*.?????????\ *) say stat_ns 1 ;;
	esac
	case ${x#*|} in
	*.123456789\ *) say touch_ns 1 ;;
	esac
	if [ "$new" -eq 0 ]; then
		can dd_bytes dd if="$a" of="$a" iflag=skip_bytes,count_bytes,fullblock \
			oflag=seek_bytes,append conv=notrunc status=none bs=1 skip=0 count=0
		ln -s . "$b"
		mkdir "$c" "$d"
		mv -fT "$a" "$b" && [ -f "$b" ] && mv -fT "$c" "$d" && say mv_exact 1
	fi
	rm -rf "$a" "$b" "$c" "$d"
}

in_files() {
	if [ -w .sbxfs/stage ]; then
		say work_dir 1
		with_files .sbxfs/stage
	else
		with_files /var/tmp || with_files /tmp
	fi
}

# What clients left that nobody has heard of for a day.
sweep() {
	set +f
	for a in .sbxfs/stage/* .sbxfs/held/*; do
		[ -e "$a" ] || continue
		find .sbxfs/stage .sbxfs/held ! -type d -cmin +1440 -exec rm -f {} +
		break
	done
	set -f
}

facts() {
	has w && say base64_w 1
	has f && say find_printf 1
	has z && say gzip 1
	has c && say date_ns 1
	for a in flock setsid sha256sum tar timeout truncate; do
		can "$a" command -v "$a"
	done
	full
}

# Half of the tests beside the other: short records of one write each, which a pipe keeps whole.
report() {
	clock
	if [ "$what" = statfs ]; then
		full
	else
		who
		from cwd pwd -P
		coreutils
		in_files &
		[ "$make_dir" -eq 0 ] || sweep
		facts
		wait
	fi
	say end 1
}

# before: the report, and behind it the answer of survey that comes in: they are made at one time.
before() {
	x=$(report </dev/null | b64)
	read -r head
	echo "SBXFS1 $N - ${#x}${head#"SBXFS1 $N"}"
	echo "$x"
	exec cat
}

what=$1 make_dir=0
shift
umask 077
if [ "$what" = probe ]; then
	T=
	for a in $(tools); do
		case $a in
		[wfz]) T=$T$a ;;
		*.*[!0-9]* | *.) clk=${a%%.*} ;;
		*) clk=$a T=${T}c ;;
		esac
	done
	# The survey is made at once, and needs no later time.
	clock() {
		printf 't%s\0' "$clk"
	}
	has w || [ "$(printf sbxfs | base64)" = c2J4ZnM= ] || refuse base64
	make_dir=$1
	shift
	# Before the survey, which shows its parent.
	[ "$make_dir" -eq 0 ] || workdir
fi
if [ $# -gt 0 ] && flows; then
	survey '' '' "$@" | before
else
	survey - "$(report | b64)" "$@"
fi
