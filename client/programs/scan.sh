# shellcheck shell=sh
# shellcheck disable=SC2154 # survey.sh's variables
# Directories with the attributes of what they hold (client/scan.h).
#
#   tree MAX_ENTRIES PATH...   whole levels, as many as stay within the bound, at least one
#   list PATH...               one level of each
#   since TIME MINUTES DIRS_ONLY PATH...
#                              one level of each: what changed after TIME, or within MINUTES
#   lstat PATH...
#
# Records beside attributes: tTIME, dDEPTH (how many levels are listed), xWHY\0PATH\0 (not listed),
# e (the end). Kinds of attributes: f seen now, u a directory that did not change, n an entry that
# did, of a directory that did not.

# include survey.sh

survey '' '' "$@"
