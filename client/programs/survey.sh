# shellcheck shell=sh
# shellcheck disable=SC2016,SC2034,SC2154 # texts for an inner sh; variables of others
# Listing directories, for the programs that do: scan.sh, whose words say what to list and which has
# the records, and those that do it beside their own work.

# count DEPTH PATH...: how many there are, counting no further than the bound.
count() {
	n=$1
	shift
	if has f; then
		x=$(find "$@" -mindepth 1 -maxdepth "$n" -path ./.sbxfs -prune -o -printf x |
			head -c $((max + 1)))
		echo ${#x}
	else
		find "$@" -mindepth 1 -maxdepth "$n" -path ./.sbxfs -prune -o -print |
			head -n $((max + 1)) | wc -l
	fi
}

# blame DEPTH PATH...: after a find that failed: which directories can't be listed.
blame() {
	n=$1
	check='for a; do [ -r "$a" ] && [ -x "$a" ] || printf "x!EACCES\0%s\0" "$a"; done'
	shift
	for a; do
		[ -e "$a" ] || [ -L "$a" ] || printf 'x%s\0%s\0' "$(gone "$a")" "$a"
	done
	[ "$n" -eq 0 ] ||
		find "$@" -maxdepth $((n - 1)) -path ./.sbxfs -prune -o -type d \
			-exec sh -c "$check" sh {} +
}

# tree_depth PATH...: n is how many levels of the tree fit.
tree_depth() {
	n=9999
	[ "$(count $n "$@")" -gt "$max" ] || return 0
	n=1
	while [ $n -lt 64 ] && [ "$(count $((n + 1)) "$@")" -le "$max" ]; do
		n=$((n + 1))
	done
}

# since PATH...: which directories changed, and their listings; what changed in the others.
since() {
	if has f; then
		list='exec find "$@" -ignore_readdir_race -maxdepth 1 -path ./.sbxfs -prune -o \
-printf "$0"'
		find "$@" -maxdepth 0 -newerct "@$time" -exec sh -c "$list" "af $P" {} + -o \
			-printf "au $P" || s=1
		[ "$only" -eq 1 ] || find "$@" -ignore_readdir_race -mindepth 1 -maxdepth 1 \
			-path ./.sbxfs -prune -o -newerct "@$time" -printf "an $P" || s=1
	else
		# No parentheses: BusyBox forgets what an -exec + inside them has gathered. And it
		# replaces every {}, so the inner one is spelled in two halves.
		list='exec find "$@" -maxdepth 1 -path ./.sbxfs -prune -o \
-exec stat -c "$0" "{""}" +'
		find "$@" -maxdepth 0 -cmin "-$min" -exec sh -c "$list" "bf $S" {} + -o \
			-exec stat -c "bu $S" {} + || s=1
		[ "$only" -eq 1 ] || find "$@" -mindepth 1 -maxdepth 1 -path ./.sbxfs -prune -o \
			-cmin "-$min" -exec stat -c "bn $S" {} + || s=1
	fi
}

# scan PATH...: all records.
scan() {
	clock
	s=0 n=1
	case $mode in
	tree) tree_depth "$@" ;;
	lstat) n=0 ;;
	esac
	depth=$n
	printf 'd%s\0' "$depth"
	if [ "$mode" = since ]; then
		since "$@"
	else
		attrs f "$depth" "$@" || s=1
	fi
	[ $s -eq 0 ] || blame "$depth" "$@"
	printf 'e\0'
}

# survey FORM SECTION [MODE ARG...]: the answer: a section, unless FORM is empty, and one with what
# these words ask for, unless that made it longer than a reply may be.
survey() {
	z=$1 y=$2
	shift 2
	if [ $# -eq 0 ]; then
		frame "$z" "$y"
		return
	fi
	mode=$1
	shift
	case $mode in
	tree)
		max=$1
		shift
		;;
	since)
		time=$1 min=$2 only=$3
		shift 3
		;;
	esac
	case $* in
	*:*)
		for a; do
			dec "$a"
			set -- "$@" "$D"
			shift
		done
		;;
	esac
	form=-
	has z && form=z
	if flows; then
		if [ -n "$z" ]; then
			flow "$z" ${#y} $form .
			printf '%s\n' "$y"
		else
			flow $form .
		fi
		scan "$@" | armoured $form
		echo
		flow_end
		return
	fi
	x=$(scan "$@" | armoured $form)
	# A tree that exceeds the reply is shown to fewer levels.
	while [ "$mode" = tree ] && [ "$M" -gt 0 ] && [ ${#x} -gt $((M - 200)) ] &&
		[ "$max" -gt 1 ]; do
		max=$((max / 2))
		x=$(scan "$@" | armoured $form)
	done
	if [ -z "$z" ]; then
		frame $form "$x"
	elif [ "$M" -eq 0 ] || [ $((${#x} + ${#y})) -le $((M - 200)) ]; then
		frame "$z" "$y" $form "$x"
	else
		frame "$z" "$y"
	fi
}
